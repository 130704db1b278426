//! A waker for event loops that wait for sockets: waking it makes one readable.
//!
//! It needs nothing of the loop's language, so a thread that has never heard of an interpreter can wake an
//! asyncio loop with it.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::task::{Wake, Waker};

#[cfg(unix)]
pub use std::os::fd::OwnedFd as Receiver;
#[cfg(windows)]
pub use std::os::windows::io::OwnedSocket as Receiver;

/// The end that is written to. A `TcpStream` whatever it is, as that is on every platform, and asks for no
/// SIGPIPE.
struct Sender(TcpStream);

impl Wake for Sender {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Without room for one more byte there are bytes to be read, which is as good. Without a reader
        // nobody is left to wake.
        while (&self.0).write(&[0]).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
    }
}

/// A waker, and the non-blocking stream socket in which it leaves a byte each time it is woken.
pub fn signal() -> io::Result<(Waker, Receiver)> {
    #[cfg(unix)]
    let (sender, receiver) = {
        let (sender, receiver) = std::os::unix::net::UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        (TcpStream::from(Receiver::from(sender)), receiver.into())
    };
    #[cfg(windows)]
    let (sender, receiver) = {
        let (sender, receiver) = over_loopback()?;
        receiver.set_nonblocking(true)?;
        sender.set_nodelay(true)?;
        (sender, receiver.into())
    };
    sender.set_nonblocking(true)?;
    Ok((Waker::from(Arc::new(Sender(sender))), receiver))
}

/// Two sockets connected to each other, where the system has no call for that.
#[cfg(any(windows, test))]
fn over_loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let own = one.local_addr()?;
    loop {
        // Anybody on this machine can connect to the port: take nobody else.
        let (other, peer) = listener.accept()?;
        if peer == own {
            return Ok((one, other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_woken_can_be_read_and_waking_never_blocks() {
        let (waker, receiver) = signal().unwrap();
        let mut receiver = TcpStream::from(receiver);
        let mut bytes = vec![9; 1 << 20];
        let nothing = receiver.read(&mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(receiver.read(&mut bytes).unwrap(), 2);
        assert_eq!(bytes[..3], [0, 0, 9]);
        // More than fits.
        (0..1 << 20).for_each(|_| waker.wake_by_ref());
        assert!(receiver.read(&mut bytes).unwrap() > 0);
    }

    #[test]
    fn waking_whom_is_gone_is_nothing() {
        let (waker, receiver) = signal().unwrap();
        drop(receiver);
        waker.wake();
    }

    #[test]
    fn the_end_closes_with_the_last_waker() {
        let (waker, receiver) = signal().unwrap();
        let mut receiver = TcpStream::from(receiver);
        let other = waker.clone();
        drop(waker);
        assert_eq!(receiver.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(other);
        assert_eq!(receiver.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn loopback_ends_are_connected_to_each_other() {
        let (mut one, mut other) = over_loopback().unwrap();
        one.write_all(b"ab").unwrap();
        let mut bytes = [0; 2];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ab");
        assert_eq!(one.peer_addr().unwrap(), other.local_addr().unwrap());
    }
}
