//! A bound in bytes on everything that is buffered.
//!
//! Permits are asked for in reading order by one task or thread per budget, and whoever asks while
//! nothing is out gets one whatever its size: so the oldest job never waits, may overdraw by one
//! chunk, and nothing can deadlock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A number of bytes that may be buffered at once. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    limit_bytes: usize,
    used_bytes: usize,
}

impl Budget {
    /// Allows `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        let state = State { limit_bytes, used_bytes: 0 };
        Self(Arc::new(Inner { state: Mutex::new(state), freed: Notify::new() }))
    }

    /// How much is allowed in all.
    pub fn limit_bytes(&self) -> usize {
        self.state().limit_bytes
    }

    /// How much is taken now.
    pub fn used_bytes(&self) -> usize {
        self.state().used_bytes
    }

    /// Changes how much is allowed; what is out stays out.
    pub fn resize(&self, limit_bytes: usize) {
        self.state().limit_bytes = limit_bytes;
        self.0.freed.notify_one();
    }

    /// Waits until `bytes` are free, or nothing is out.
    ///
    /// # Cancel safety
    /// Nothing is taken if dropped.
    ///
    /// # Contract
    /// One task at a time waits on a budget: the order of those who wait is the reading order.
    pub async fn acquire(&self, bytes: usize) -> Permit {
        loop {
            let freed = self.0.freed.notified();
            {
                let mut state = self.state();
                if state.used_bytes == 0 || state.used_bytes.saturating_add(bytes) <= state.limit_bytes {
                    state.used_bytes += bytes;
                    return Permit { budget: self.clone(), bytes };
                }
            }
            freed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and two numbers can't be half-written.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes taken from a [`Budget`]; they are given back when this is dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Budget,
    bytes: usize,
}

impl Permit {
    /// Corrects an estimate, up or down, without waiting.
    pub fn resize(&mut self, bytes: usize) {
        {
            let mut state = self.budget.state();
            state.used_bytes = state.used_bytes - self.bytes + bytes;
        }
        self.bytes = bytes;
        self.budget.0.freed.notify_one();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.state().used_bytes -= self.bytes;
        self.budget.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_permit_waits_until_enough_is_given_back() {
        let budget = Budget::new(10);
        let first = budget.acquire(7).await;
        assert!(budget.acquire(4).now_or_never().is_none());
        let waiting = budget.acquire(4);
        drop(first);
        let second = waiting.await;
        assert_eq!(budget.used_bytes(), 4);
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn the_oldest_never_waits_even_if_it_is_larger_than_the_budget() {
        let budget = Budget::new(10);
        let large = budget.acquire(100).await;
        assert!(budget.acquire(1).now_or_never().is_none());
        drop(large);
        assert!(budget.acquire(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn an_estimate_can_be_corrected() {
        let budget = Budget::new(10);
        let mut permit = budget.acquire(9).await;
        permit.resize(3);
        assert!(budget.acquire(7).now_or_never().is_some());
        permit.resize(30);
        assert_eq!(budget.used_bytes(), 30);
        budget.resize(40);
        assert!(budget.acquire(10).now_or_never().is_some());
    }
}
