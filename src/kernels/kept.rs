//! What came back, to be used again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Calls `work` with what readers share, or with something of its own while another reader works with that, for whom this one
/// does not wait, or one did that was not forked along.
pub fn with_shared<S: Default, R>(shared: &Mutex<S>, work: impl FnOnce(&mut S) -> R) -> R {
    match shared.try_lock() {
        Ok(mut shared) => work(&mut shared),
        Err(_) => work(&mut S::default()),
    }
}

/// Things that publications may refer to, kept for use again once they do not.
pub struct Kept<T> {
    free: Vec<Arc<T>>,
    /// What publications may still refer to, in the order in which it came.
    lent: VecDeque<Arc<T>>,
    most: usize,
}

impl<T> Kept<T> {
    pub fn new(most: usize) -> Self {
        Self { free: Vec::new(), lent: VecDeque::new(), most }
    }

    /// Something that nobody else refers to, with its old content.
    pub fn take(&mut self) -> Option<Arc<T>> {
        self.free.pop().or_else(|| {
            let free = self.lent.iter_mut().position(|lent| Arc::get_mut(lent).is_some());
            free.and_then(|place| self.lent.remove(place))
        })
    }

    pub fn keep(&mut self, mut back: Arc<T>) {
        if Arc::get_mut(&mut back).is_none() {
            if self.lent.len() == self.most {
                self.lent.pop_front();
            }
            self.lent.push_back(back);
        } else if self.free.len() < self.most {
            self.free.push(back);
        }
    }
}
