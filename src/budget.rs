//! A bound in bytes on everything that is buffered.
//!
//! Those who ask are *lanes*: what fetches ahead is one, what decodes is another. Within a lane permits are
//! asked for in reading order by one task or thread, and a lane of which nothing is out gets one whatever its
//! size. So the oldest job of each lane never waits, may overdraw by one chunk, and nothing can deadlock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A number of bytes that may be buffered at once, and one lane of those who share it.
///
/// A clone is the same lane; [`Budget::lane`] makes another.
#[derive(Clone, Debug)]
pub struct Budget {
    total: Arc<Total>,
    /// What is out of this lane; changed only under the total's lock.
    lane: Arc<Mutex<usize>>,
}

#[derive(Debug)]
struct Total {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    limit_bytes: usize,
    /// What the limit may become.
    ceiling_bytes: usize,
    used_bytes: usize,
}

impl Budget {
    /// Allows `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        let state = Mutex::new(State { limit_bytes, ceiling_bytes: limit_bytes, used_bytes: 0 });
        Self { total: Arc::new(Total { state, freed: Notify::new() }), lane: Arc::default() }
    }

    /// Another lane of the same bytes.
    #[must_use]
    pub fn lane(&self) -> Self {
        Self { total: Arc::clone(&self.total), lane: Arc::default() }
    }

    /// How much is allowed in all.
    pub fn limit_bytes(&self) -> usize {
        locked(&self.total.state).limit_bytes
    }

    /// Says that the limit will be raised, up to `ceiling_bytes`, when its owner's turn comes.
    #[must_use]
    pub fn with_ceiling(self, ceiling_bytes: usize) -> Self {
        {
            let mut state = locked(&self.total.state);
            state.ceiling_bytes = ceiling_bytes.max(state.limit_bytes);
        }
        self
    }

    /// What the limit is, or will be: what can't be had with less than this can't be had at all.
    pub fn ceiling_bytes(&self) -> usize {
        let state = locked(&self.total.state);
        state.ceiling_bytes.max(state.limit_bytes)
    }

    /// How much is taken now, by all lanes.
    pub fn used_bytes(&self) -> usize {
        locked(&self.total.state).used_bytes
    }

    /// Changes how much is allowed; what is out stays out.
    pub fn resize(&self, limit_bytes: usize) {
        locked(&self.total.state).limit_bytes = limit_bytes;
        self.total.freed.notify_waiters();
    }

    /// Waits until `bytes` are free, or nothing is out of this lane.
    ///
    /// # Cancel safety
    /// Nothing is taken if dropped.
    ///
    /// # Contract
    /// One task at a time waits on a lane: the order of those who wait is the reading order.
    pub async fn acquire(&self, bytes: usize) -> Permit {
        loop {
            // Made before the look, so that what is given back in between isn't missed.
            let freed = self.total.freed.notified();
            if let Some(permit) = self.try_acquire(bytes) {
                return permit;
            }
            freed.await;
        }
    }

    /// As [`Self::acquire`], or `None` instead of waiting.
    pub fn try_acquire(&self, bytes: usize) -> Option<Permit> {
        let mut state = locked(&self.total.state);
        let mut lane = locked(&self.lane);
        if *lane > 0 && state.used_bytes.saturating_add(bytes) > state.limit_bytes {
            return None;
        }
        state.used_bytes += bytes;
        *lane += bytes;
        Some(Permit { budget: self.clone(), bytes })
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
            let mut state = locked(&self.budget.total.state);
            let mut lane = locked(&self.budget.lane);
            state.used_bytes = state.used_bytes - self.bytes + bytes;
            *lane = *lane - self.bytes + bytes;
        }
        self.bytes = bytes;
        self.budget.total.freed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Nothing panics while it holds these locks, and numbers can't be half-written.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn the_oldest_of_each_lane_never_waits() {
        let decode = Budget::new(10);
        let fetch = decode.lane();
        let fetched = fetch.acquire(10).await;
        let decoding = decode.acquire(5).await;
        assert!(fetch.acquire(1).now_or_never().is_none());
        assert!(decode.acquire(1).now_or_never().is_none());
        drop(decoding);
        assert!(fetch.acquire(1).now_or_never().is_none());
        drop(fetched);
        assert!(fetch.acquire(1).now_or_never().is_some());
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
