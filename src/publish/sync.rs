//! The only place that says where atomics and cells come from, so that the protocol can be run by model checkers:
//! `--cfg loom` (all interleavings of small models, weak memory included) and `--cfg shuttle` (random schedules of
//! larger ones).

#[cfg(loom)]
mod imp {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, Ordering, fence};
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    /// Few, so that small models get to later chunks.
    pub const FIRST_CHUNK: usize = 2;

    loom::thread_local! {
        /// The thread wrote with `SeqCst`, and did not load with it since.
        static WROTE: std::cell::Cell<bool> = std::cell::Cell::new(false);
    }

    fn wrote(order: Ordering) {
        if order == Ordering::SeqCst {
            WROTE.with(|wrote| wrote.set(true));
        }
    }

    /// The model checker takes `SeqCst` accesses as acquiring and releasing only. What the protocol needs of them is
    /// that a load is not done before a write of the same thread, which a fence between the two says as well.
    fn will_load(order: Ordering) {
        if order == Ordering::SeqCst && WROTE.with(|wrote| wrote.replace(false)) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    macro_rules! atomic {
        ($name:ident, $of:ty) => {
            pub struct $name(loom::sync::atomic::$name);

            #[allow(dead_code)]
            impl $name {
                #[track_caller]
                pub fn new(value: $of) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                #[track_caller]
                pub fn load(&self, order: Ordering) -> $of {
                    will_load(order);
                    self.0.load(order)
                }

                #[track_caller]
                pub fn store(&self, value: $of, order: Ordering) {
                    wrote(order);
                    self.0.store(value, order);
                }

                atomic!(rmw $of: swap fetch_add fetch_sub fetch_and fetch_or fetch_min);

                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    old: $of,
                    new: $of,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$of, $of> {
                    self.0.compare_exchange(old, new, success, failure)
                }

                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    old: $of,
                    new: $of,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$of, $of> {
                    self.0.compare_exchange_weak(old, new, success, failure)
                }
            }
        };
        (rmw $of:ty: $($method:ident)*) => {
            $(
                #[track_caller]
                pub fn $method(&self, value: $of, order: Ordering) -> $of {
                    wrote(order);
                    self.0.$method(value, order)
                }
            )*
        };
    }

    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);

    /// `std`'s, with its guarantee told to the model checker: who gets the value has seen it made.
    pub struct OnceLock<T> {
        cell: std::sync::OnceLock<T>,
        made: AtomicBool,
    }

    impl<T> OnceLock<T> {
        pub fn new() -> Self {
            Self { cell: std::sync::OnceLock::new(), made: AtomicBool::new(false) }
        }

        pub fn get(&self) -> Option<&T> {
            if self.made.load(Ordering::Acquire) { self.cell.get() } else { None }
        }

        pub fn get_mut(&mut self) -> Option<&mut T> {
            self.cell.get_mut()
        }

        pub fn take(&mut self) -> Option<T> {
            self.made = AtomicBool::new(false);
            self.cell.take()
        }

        pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let made_before = self.cell.get().is_some();
            let value = self.cell.get_or_init(make);
            // Changed by these only, so that the one who made it is seen by all others.
            self.made.fetch_or(true, if made_before { Ordering::Acquire } else { Ordering::Release });
            value
        }
    }
}

#[cfg(shuttle)]
mod imp {
    pub use super::cell::UnsafeCell;
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use std::sync::OnceLock;

    /// Few, so that small models get to later chunks.
    pub const FIRST_CHUNK: usize = 2;
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub use super::cell::UnsafeCell;
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

    /// Slots in the first chunk.
    pub const FIRST_CHUNK: usize = 8;
}

#[cfg(not(loom))]
mod cell {
    /// `std`'s cell with the interface of the model checker's, which reports accesses that overlap.
    #[derive(Default)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

pub use imp::*;
