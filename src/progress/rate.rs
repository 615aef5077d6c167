//! How fast something goes lately. The clock is an argument.

use std::time::{Duration, Instant};

/// A speed is told over the time since the interval before this one began: long enough to be calm, short enough to
/// show that something stands still.
const INTERVAL: Duration = Duration::from_secs(5);

/// Counts what came in this interval and in the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// When this interval began.
    began: Instant,
    count: u64,
    /// What came in the interval before; `None` in the first.
    before: Option<u64>,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, count: 0, before: None }
    }

    pub(super) fn add(&mut self, count: u64, now: Instant) {
        *self = self.at(now);
        self.count += count;
    }

    /// The number a second, lately.
    pub(super) fn per_second(&self, now: Instant) -> f64 {
        /// The first moments say nothing about speed.
        const MIN_TIME: Duration = Duration::from_millis(100);
        let this = self.at(now);
        let age = now.saturating_duration_since(this.began);
        let (count, time) = match this.before {
            None => (this.count, age.max(MIN_TIME)),
            Some(before) => (before + this.count, INTERVAL + age),
        };
        count as f64 / time.as_secs_f64()
    }

    /// The interval of `now`, and what came in the one before it.
    fn at(self, now: Instant) -> Self {
        let age = now.saturating_duration_since(self.began);
        if age < INTERVAL {
            return self;
        }
        if age < 2 * INTERVAL {
            return Self { began: self.began + INTERVAL, count: 0, before: Some(self.count) };
        }
        Self { began: now, count: 0, before: Some(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_last_seconds_and_falls_to_zero_when_nothing_comes() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut rate = Rate::new(start);
        rate.add(100, at(0.5));
        assert_eq!(rate.per_second(at(1.0)), 100.0);
        rate.add(100, at(2.0));
        assert_eq!(rate.per_second(at(2.0)), 100.0);
        assert_eq!(rate.per_second(at(4.0)), 50.0);
        // The first interval is the one before, and then forgotten.
        assert_eq!(rate.per_second(at(5.0)), 40.0);
        rate.add(50, at(7.0));
        assert_eq!(rate.per_second(at(7.5)), 250.0 / 7.5);
        assert_eq!(rate.per_second(at(10.0)), 10.0);
        assert_eq!(rate.per_second(at(15.0)), 0.0);
    }

    #[test]
    fn the_first_moment_is_no_flood() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        rate.add(10, start);
        assert_eq!(rate.per_second(start), 100.0);
    }
}
