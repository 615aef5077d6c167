//! Waits for futures on a thread that has no runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::consumer::NAP;

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread, which needs no runtime, until `go_on`, asked now and then, says no.
pub(super) fn wait_while<T>(work: impl Future<Output = T>, mut go_on: impl FnMut() -> bool) -> Option<T> {
    let mut work = pin!(work);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut context) {
            return Some(value);
        }
        thread::park_timeout(NAP);
        if !go_on() {
            return None;
        }
    }
}
