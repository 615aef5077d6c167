//! How far a job is: counters that anybody may look at while it runs.
//!
//! The pipeline counts; a progress bar or a log line takes a [`Snapshot`] now and then. Neither waits
//! for the other.

mod rejects;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use rejects::{RejectCount, RejectCounts};

use crate::checkpoint::{SourceState, SplitId, SplitState, Splits};
use crate::error::BadRecord;

/// Counters of a running job.
#[derive(Debug)]
pub struct Progress {
    sources: Box<[SourceProgress]>,
    active: AtomicUsize,
    commits: AtomicU64,
    rejected: Mutex<RejectCounts>,
    started: Mutex<Instant>,
    split: Mutex<Option<SplitId>>,
}

/// Counters of one source. `total` and `lag` are [`UNKNOWN`] if nobody knows them.
#[derive(Debug)]
struct SourceProgress {
    rows: AtomicU64,
    done: AtomicU64,
    done_at_start: AtomicU64,
    total: AtomicU64,
    unit: AtomicUsize,
    /// Splits of a list whose sizes are in `counted` already.
    num_counted: AtomicUsize,
    /// The sizes of the splits that are done.
    counted: AtomicU64,
    /// From positions to the ends that logs had when they were last told.
    lag: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

/// What a source's progress is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Bytes of files, as stored.
    Bytes,
    /// Positions: rows, sequence numbers, offsets.
    Positions,
}

/// Counters at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Since the job was started.
    pub elapsed: Duration,
    /// The index of the source that is being read.
    pub active: usize,
    /// The split that is being read.
    pub split: Option<String>,
    /// Every source of the chain.
    pub sources: Vec<SourceSnapshot>,
    /// Bad records that this run has left out.
    pub rejected: u64,
    /// Commits so far.
    pub commits: u64,
    /// How long the rest of the history will take at the speed so far, if that can be told.
    pub eta: Option<Duration>,
    /// How many messages the active source is behind, if it is live and without an end.
    pub lag: Option<u64>,
}

/// One source's counters at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SourceSnapshot {
    /// Rows delivered by this run.
    pub rows: u64,
    /// What is read, earlier runs included.
    pub done: u64,
    /// What there is to read, if that is known.
    pub total: Option<u64>,
    /// What both are counted in.
    pub unit: ProgressUnit,
    /// How many messages it is behind the ends of its partitions, if it has such.
    pub lag: Option<u64>,
}

impl Snapshot {
    /// Rows delivered by this run.
    pub fn rows(&self) -> u64 {
        self.sources.iter().map(|source| source.rows).sum()
    }

    /// Rows a second since the job was started.
    pub fn rows_per_second(&self) -> f64 {
        self.rows() as f64 / self.elapsed.as_secs_f64().max(1e-3)
    }
}

impl Progress {
    /// Counts for a chain of `num_sources` sources.
    pub fn new(num_sources: usize) -> Self {
        let source = || SourceProgress {
            rows: AtomicU64::new(0),
            done: AtomicU64::new(0),
            done_at_start: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
            unit: AtomicUsize::new(0),
            num_counted: AtomicUsize::new(0),
            counted: AtomicU64::new(0),
            lag: AtomicU64::new(UNKNOWN),
        };
        Self {
            sources: (0..num_sources).map(|_| source()).collect(),
            active: AtomicUsize::new(0),
            commits: AtomicU64::new(0),
            rejected: Mutex::default(),
            started: Mutex::new(Instant::now()),
            split: Mutex::new(None),
        }
    }

    /// Takes up where the sources stand when the job starts.
    pub(crate) fn begin(&self, states: &[SourceState]) {
        *locked(&self.started) = Instant::now();
        for (source, state) in self.sources.iter().zip(states) {
            let (total, unit) = total(state);
            source.total.store(total.unwrap_or(UNKNOWN), Ordering::Relaxed);
            source.unit.store(unit as usize, Ordering::Relaxed);
            source.update(state);
            source.done_at_start.store(source.done.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let num_done = states.iter().take_while(|state| state.is_done()).count();
        self.activate(num_done);
    }

    /// The last source stays active when it is done.
    fn activate(&self, index: usize) {
        self.active.store(index.min(self.sources.len().saturating_sub(1)), Ordering::Relaxed);
    }

    /// Counts an item of source `index`, behind which the source stands at `state`.
    pub(crate) fn advance(&self, index: usize, state: &SourceState, num_rows: u64, split: Option<&SplitId>) {
        let Some(source) = self.sources.get(index) else { return };
        source.rows.fetch_add(num_rows, Ordering::Relaxed);
        source.update(state);
        // The next source may be silent for long.
        self.activate(if state.is_done() { index + 1 } else { index });
        if let Some(split) = split {
            let mut current = locked(&self.split);
            if current.as_ref() != Some(split) {
                *current = Some(split.clone());
            }
        }
    }

    /// Counts bad records that were left out.
    pub(crate) fn reject<'a>(&self, records: impl Iterator<Item = (&'a BadRecord, bool)>) {
        let mut rejected = locked(&self.rejected);
        records.for_each(|(record, is_kept)| rejected.add(record, is_kept));
    }

    /// The bad records that this run has left out.
    pub fn rejected(&self) -> RejectCounts {
        locked(&self.rejected).clone()
    }

    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the counters of this moment.
    pub fn snapshot(&self) -> Snapshot {
        let elapsed = locked(&self.started).elapsed();
        let sources: Vec<SourceSnapshot> = self.sources.iter().map(SourceProgress::snapshot).collect();
        let active = self.active.load(Ordering::Relaxed);
        Snapshot {
            elapsed,
            active,
            split: locked(&self.split).as_ref().map(ToString::to_string),
            eta: self.eta(elapsed, &sources, active),
            lag: sources.get(active).filter(|source| source.total.is_none()).and_then(|source| source.lag),
            sources,
            rejected: locked(&self.rejected).total(),
            commits: self.commits.load(Ordering::Relaxed),
        }
    }

    /// Bytes of all files together; positions of a source by itself, since those of two don't add up.
    fn eta(&self, elapsed: Duration, sources: &[SourceSnapshot], active: usize) -> Option<Duration> {
        let unit = sources.get(active)?.unit;
        let (mut read, mut left) = (0u64, 0u64);
        for (index, source) in sources.iter().enumerate() {
            let counts = index == active || (unit == ProgressUnit::Bytes && source.unit == unit);
            if let (true, Some(total)) = (counts, source.total) {
                let at_start = self.sources[index].done_at_start.load(Ordering::Relaxed);
                read += source.done.saturating_sub(at_start);
                left += total.saturating_sub(source.done);
            }
        }
        sources.get(active)?.total?;
        eta(elapsed, read, left)
    }
}

impl SourceProgress {
    fn update(&self, state: &SourceState) {
        let done = match &state.splits {
            Splits::SideBySide(splits) => {
                let lag = splits.values().filter_map(SplitState::lag).reduce(|sum, lag| sum + lag);
                self.lag.store(lag.unwrap_or(UNKNOWN), Ordering::Relaxed);
                splits.values().map(|split| split.position - split.start.min(split.position)).sum()
            }
            Splits::OneByOne { list, done, current } => {
                let from = self.num_counted.swap(*done, Ordering::Relaxed);
                let sizes = (from..*done).filter_map(|index| list.get(index)?.identity.size);
                let newly: u64 = sizes.sum();
                let counted = self.counted.fetch_add(newly, Ordering::Relaxed) + newly;
                counted + current.as_ref().map_or(0, |split| bytes_of(split, state))
            }
        };
        self.done.store(done, Ordering::Relaxed);
    }

    fn snapshot(&self) -> SourceSnapshot {
        let known = |number: &AtomicU64| Some(number.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN);
        SourceSnapshot {
            rows: self.rows.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
            total: known(&self.total),
            lag: known(&self.lag),
            unit: match self.unit.load(Ordering::Relaxed) {
                unit if unit == ProgressUnit::Bytes as usize => ProgressUnit::Bytes,
                _ => ProgressUnit::Positions,
            },
        }
    }
}

/// What there is to read of a source, from its first position on.
fn total(state: &SourceState) -> (Option<u64>, ProgressUnit) {
    match &state.splits {
        Splits::OneByOne { list, .. } => {
            (list.iter().map(|entry| entry.identity.size).sum::<Option<u64>>(), ProgressUnit::Bytes)
        }
        Splits::SideBySide(splits) => {
            let length = |split: &SplitState| split.stop.map(|stop| stop.saturating_sub(split.start));
            (splits.values().map(length).sum::<Option<u64>>(), ProgressUnit::Positions)
        }
    }
}

/// How many stored bytes of a file that was begun are read. A position says so only where it counts the
/// bytes of a file that isn't compressed, and of UTF-8; other files count when they are done.
fn bytes_of(split: &SplitState, state: &SourceState) -> u64 {
    let name = split.id.as_str();
    let coded = ["compression", "csv.charset"].iter().any(|key| state.options.contains_key(*key))
        || [".gz", ".zst"].iter().any(|suffix| name.ends_with(suffix));
    let by_bytes = matches!(state.options.get("format").map(String::as_str), Some("csv" | "json" | "raw"));
    if by_bytes && !coded { split.position.min(split.identity.size.unwrap_or(0)) } else { 0 }
}

fn eta(elapsed: Duration, read: u64, left: u64) -> Option<Duration> {
    /// The first moments say nothing about speed.
    const MIN_ELAPSED: Duration = Duration::from_millis(500);
    if left == 0 {
        return Some(Duration::ZERO);
    }
    if read == 0 || elapsed < MIN_ELAPSED {
        return None;
    }
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * left as f64 / read as f64).ok()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Advance, Identity, SplitEntry, SplitList};

    fn files(format: &str, sizes: &[(&str, u64)]) -> SourceState {
        let entry = |(name, size): &(&str, u64)| {
            SplitEntry::new((*name).into(), Identity { size: Some(*size), ..Identity::default() })
        };
        SourceState::new("0", "filesystem", Splits::one_by_one(SplitList::new(sizes.iter().map(entry))))
            .with_options([("format".to_owned(), format.to_owned())].into())
    }

    fn done(progress: &Progress) -> (u64, Option<u64>) {
        let source = &progress.snapshot().sources[0];
        (source.done, source.total)
    }

    #[test]
    fn text_counts_bytes_and_compressed_files_when_they_are_done() {
        let mut state = files("csv", &[("a.csv", 100), ("b.csv.gz", 50), ("c.csv", 10)]);
        let progress = Progress::new(1);
        progress.begin(std::slice::from_ref(&state));
        assert_eq!(done(&progress), (0, Some(160)));
        for (advance, expected) in [
            (Advance::new("a.csv".into(), 0, 30), 30),
            (Advance::new("a.csv".into(), 30, 100).with_done(true), 100),
            (Advance::new("b.csv.gz".into(), 0, 400), 100),
            (Advance::new("b.csv.gz".into(), 400, 900).with_done(true), 150),
            (Advance::new("c.csv".into(), 0, 10).with_done(true), 160),
        ] {
            state.apply(std::slice::from_ref(&advance), 2).unwrap();
            progress.advance(0, &state, 2, Some(&advance.split));
            assert_eq!(done(&progress).0, expected, "{advance:?}");
        }
        let snapshot = progress.snapshot();
        assert_eq!((snapshot.rows(), snapshot.split.as_deref()), (10, Some("c.csv")));
        assert_eq!(snapshot.eta, Some(Duration::ZERO));
    }

    #[test]
    fn a_restart_counts_what_was_read_before_as_done_but_not_as_speed() {
        let mut state = files("csv", &[("a.csv", 100)]);
        state.apply(&[Advance::new("a.csv".into(), 0, 60)], 1).unwrap();
        let progress = Progress::new(1);
        progress.begin(&[state]);
        assert_eq!(done(&progress), (60, Some(100)));
        assert_eq!(progress.sources[0].done_at_start.load(Ordering::Relaxed), 60);
        assert_eq!(progress.snapshot().eta, None, "nothing is read yet");
    }

    #[test]
    fn positions_have_a_total_if_there_is_a_stop() {
        let split = |stop| SplitState::new("rows".into(), 10).with_stop(stop);
        for (stop, expected) in [(Some(40), Some(30)), (None, None)] {
            let state = SourceState::new("0", "datagen", Splits::side_by_side([split(stop)]));
            let progress = Progress::new(1);
            progress.begin(&[state]);
            assert_eq!(done(&progress), (0, expected));
        }
    }

    #[test]
    fn a_log_without_a_stop_has_a_lag_instead_of_a_total() {
        let partition = |id: &str, position, stop| {
            let other = [("end".to_owned(), 40.into())].into_iter().collect();
            let identity = Identity { other, ..Identity::default() };
            SplitState::new(id.into(), position).with_stop(stop).with_identity(identity)
        };
        for (stop, expected) in [(None, Some(23)), (Some(40), None)] {
            let splits = [partition("bids/0", 10, stop), partition("bids/1", 40, stop)];
            let mut state = SourceState::new("0", "kafka", Splits::side_by_side(splits));
            let progress = Progress::new(1);
            progress.begin(std::slice::from_ref(&state));
            let advance = Advance::new("bids/0".into(), 10, 17);
            state.apply(std::slice::from_ref(&advance), 1).unwrap();
            progress.advance(0, &state, 1, Some(&advance.split));
            assert_eq!(progress.snapshot().lag, expected);
            assert_eq!(progress.snapshot().sources[0].lag, Some(23));
        }
    }

    #[test]
    fn a_source_that_is_silent_is_active_when_those_before_it_are_done() {
        let topic = || SourceState::new("1", "kafka", Splits::side_by_side([SplitState::new("bids/0".into(), 0)]));
        let mut state = files("csv", &[("a.csv", 100)]);
        let progress = Progress::new(2);
        progress.begin(&[state.clone(), topic()]);
        assert_eq!(progress.snapshot().active, 0);
        state.apply(&[Advance::new("a.csv".into(), 0, 100).with_done(true)], 1).unwrap();
        progress.advance(0, &state, 1, None);
        assert_eq!(progress.snapshot().active, 1);
        let restarted = Progress::new(2);
        restarted.begin(&[state, topic()]);
        assert_eq!(restarted.snapshot().active, 1);
    }

    #[test]
    fn the_rest_takes_as_long_as_what_was_read() {
        assert_eq!(eta(Duration::from_secs(10), 100, 50), Some(Duration::from_secs(5)));
        assert_eq!(eta(Duration::from_secs(10), 0, 50), None);
        assert_eq!(eta(Duration::from_millis(1), 10, 50), None);
        assert_eq!(eta(Duration::ZERO, 0, 0), Some(Duration::ZERO));
    }
}
