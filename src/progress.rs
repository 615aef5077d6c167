//! How far a job is: counters that anybody may look at while it runs.
//!
//! The stream of a chain counts, and the pipeline its commits; a progress bar, a log line or a scrape takes a
//! [`Snapshot`] now and then. What a source has fetched ahead it tells itself, through [`FetchGauges`].

mod extent;
mod fetching;
mod rate;
mod rejects;
mod snapshot;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub use fetching::{FetchGauges, FetchQueue, Fetching, SplitFetch};
pub use rejects::{RejectCount, RejectCounts};
pub use snapshot::{FilesSnapshot, PartitionSnapshot, ProgressUnit, Snapshot, SourceSnapshot};

use self::extent::Extent;
use self::rate::Rate;
use crate::checkpoint::{Advance, RowPositions, SourceState, SplitId, SplitState};
use crate::error::BadRecord;

/// Counters of a running job.
#[derive(Debug)]
pub struct Progress {
    /// Of each source, in the order of the chain.
    gauges: Box<[Arc<FetchGauges>]>,
    /// Held for as long as it takes to add or to copy numbers.
    counters: Mutex<Counters>,
}

#[derive(Debug)]
struct Counters {
    sources: Vec<SourceCounters>,
    active: usize,
    split: Option<SplitId>,
    started: Instant,
    rate: Rate,
    commits: u64,
    last_commit: Option<SystemTime>,
}

/// Counters of one source.
#[derive(Debug)]
struct SourceCounters {
    name: Arc<str>,
    rows: u64,
    rejected: RejectCounts,
    is_done: bool,
    /// `None` before the job begins.
    extent: Option<Extent>,
    done_at_start: u64,
}

/// What an item has moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved<'a> {
    pub(crate) rows: &'a RowPositions,
    pub(crate) advances: &'a [Advance],
    pub(crate) changed: &'a [SplitState],
}

impl Progress {
    /// Counts for a chain of sources with these names.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        let source = |name: Arc<str>| SourceCounters {
            name,
            rows: 0,
            rejected: RejectCounts::default(),
            is_done: false,
            extent: None,
            done_at_start: 0,
        };
        let sources: Vec<SourceCounters> = names.into_iter().map(|name| source(name.into())).collect();
        let now = Instant::now();
        Self {
            gauges: sources.iter().map(|_| Arc::default()).collect(),
            counters: Mutex::new(Counters {
                sources,
                active: 0,
                split: None,
                started: now,
                rate: Rate::new(now),
                commits: 0,
                last_commit: None,
            }),
        }
    }

    /// Where source `index` tells what it has fetched.
    pub(crate) fn gauges(&self, index: usize) -> Option<Arc<FetchGauges>> {
        self.gauges.get(index).cloned()
    }

    /// Takes up where the sources stand when they begin to be read.
    pub(crate) fn begin(&self, states: &[SourceState]) {
        let mut counters = self.counters();
        let now = Instant::now();
        (counters.started, counters.rate) = (now, Rate::new(now));
        for (source, state) in counters.sources.iter_mut().zip(states) {
            let extent = Extent::new(state, now);
            source.done_at_start = extent.done();
            source.is_done = state.is_done();
            source.extent = Some(extent);
        }
        let num_done = states.iter().take_while(|state| state.is_done()).count();
        counters.activate(num_done);
    }

    /// Counts an item of source `index`, behind which the source stands at `state`.
    pub(crate) fn advance(&self, index: usize, state: &SourceState, moved: &Moved<'_>) {
        let mut counters = self.counters();
        let now = Instant::now();
        let Some(source) = counters.sources.get_mut(index) else { return };
        let num_rows = moved.rows.num_rows() as u64;
        source.rows += num_rows;
        source.is_done = state.is_done();
        if let Some(extent) = &mut source.extent {
            extent.advance(state, moved, now);
        }
        counters.rate.add(num_rows, now);
        // The next source may be silent for long.
        counters.activate(if state.is_done() { index + 1 } else { index });
        if let Some(advance) = moved.advances.last()
            && counters.split.as_ref() != Some(&advance.split)
        {
            counters.split = Some(advance.split.clone());
        }
    }

    /// Counts bad records of source `index` that were left out.
    pub(crate) fn reject<'a>(&self, index: usize, records: impl Iterator<Item = (&'a BadRecord, bool)>) {
        if let Some(source) = self.counters().sources.get_mut(index) {
            records.for_each(|(record, is_kept)| source.rejected.add(record, is_kept));
        }
    }

    pub(crate) fn committed(&self) {
        let mut counters = self.counters();
        counters.commits += 1;
        counters.last_commit = Some(SystemTime::now());
    }

    /// The bad records that this run has left out, of all sources.
    pub fn rejected(&self) -> RejectCounts {
        let counters = self.counters();
        counters.sources.iter().fold(RejectCounts::default(), |all, source| all.joined(&source.rejected))
    }

    /// Takes the counters of this moment.
    pub fn snapshot(&self) -> Snapshot {
        let fetching: Vec<Fetching> = self.gauges.iter().map(|gauges| gauges.last()).collect();
        let counters = self.counters();
        let now = Instant::now();
        let sources = counters.sources.iter().zip(&fetching);
        let sources: Vec<SourceSnapshot> = sources.map(|(source, fetching)| source.snapshot(fetching, now)).collect();
        let elapsed = now.saturating_duration_since(counters.started);
        let active = sources.get(counters.active);
        Snapshot {
            elapsed,
            active: counters.active,
            split: counters.split.clone(),
            rows_per_second: counters.rate.per_second(now),
            commits: counters.commits,
            last_commit: counters.last_commit,
            eta: counters.eta(elapsed, &sources),
            lag: active.filter(|source| source.total.is_none()).and_then(|source| source.lag),
            sources,
        }
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        // Nothing panics while it holds the lock.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    /// The last source stays active when it is done.
    fn activate(&mut self, index: usize) {
        self.active = index.min(self.sources.len().saturating_sub(1));
    }

    /// Bytes of all files together; positions of a source by itself, since those of two don't add up.
    fn eta(&self, elapsed: Duration, sources: &[SourceSnapshot]) -> Option<Duration> {
        let active = sources.get(self.active)?;
        let (mut read, mut left) = (0u64, 0u64);
        for (index, source) in sources.iter().enumerate() {
            let counts = index == self.active || (active.unit == ProgressUnit::Bytes && source.unit == active.unit);
            if let (true, Some(total)) = (counts, source.total) {
                read += source.done.saturating_sub(self.sources[index].done_at_start);
                left += total.saturating_sub(source.done);
            }
        }
        active.total?;
        eta(elapsed, read, left)
    }
}

impl SourceCounters {
    fn snapshot(&self, fetching: &Fetching, now: Instant) -> SourceSnapshot {
        let extent = self.extent.as_ref();
        let partitions = extent.map_or_else(Vec::new, |extent| extent.partitions(fetching, now));
        SourceSnapshot {
            name: Arc::clone(&self.name),
            rows: self.rows,
            rejected: self.rejected.clone(),
            done: extent.map_or(0, Extent::done),
            total: extent.and_then(Extent::total),
            unit: extent.map_or(ProgressUnit::Positions, Extent::unit),
            is_done: self.is_done,
            lag: partitions.iter().filter_map(|partition| partition.lag).reduce(|sum, lag| sum + lag),
            files: extent.and_then(Extent::files),
            partitions,
            fetch_queue: fetching.queue,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Identity, SplitEntry, SplitList, Splits};

    fn files(format: &str, sizes: &[(&str, u64)]) -> SourceState {
        let entry = |(name, size): &(&str, u64)| {
            SplitEntry::new((*name).into(), Identity { size: Some(*size), ..Identity::default() })
        };
        SourceState::new("0", "filesystem", Splits::one_by_one(SplitList::new(sizes.iter().map(entry))))
            .with_options([("format".to_owned(), format.to_owned())].into())
    }

    /// Counts `num_rows` rows of one advance of the first source.
    fn count(progress: &Progress, state: &SourceState, advance: &Advance, num_rows: usize) {
        let rows = RowPositions::consecutive(advance.from, num_rows);
        progress.advance(0, state, &Moved { rows: &rows, advances: std::slice::from_ref(advance), changed: &[] });
    }

    fn done(progress: &Progress) -> (u64, Option<u64>) {
        let source = &progress.snapshot().sources[0];
        (source.done, source.total)
    }

    #[test]
    fn text_counts_bytes_and_compressed_files_when_they_are_done() {
        let mut state = files("csv", &[("a.csv", 100), ("b.csv.gz", 50), ("c.csv", 10)]);
        let progress = Progress::new(["0"]);
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
            count(&progress, &state, &advance, 2);
            assert_eq!(done(&progress).0, expected, "{advance:?}");
        }
        let snapshot = progress.snapshot();
        assert_eq!((snapshot.rows(), snapshot.split.clone()), (10, Some("c.csv".into())));
        assert_eq!(snapshot.eta, Some(Duration::ZERO));
    }

    #[test]
    fn a_restart_counts_what_was_read_before_as_done_but_not_as_speed() {
        let mut state = files("csv", &[("a.csv", 100)]);
        state.apply(&[Advance::new("a.csv".into(), 0, 60)], 1).unwrap();
        let progress = Progress::new(["0"]);
        progress.begin(&[state]);
        assert_eq!(done(&progress), (60, Some(100)));
        assert_eq!(progress.counters().sources[0].done_at_start, 60);
        assert_eq!(progress.snapshot().eta, None, "nothing is read yet");
    }

    #[test]
    fn positions_have_a_total_if_there_is_a_stop() {
        let split = |stop| SplitState::new("rows".into(), 10).with_stop(stop);
        for (stop, expected) in [(Some(40), Some(30)), (None, None)] {
            let state = SourceState::new("0", "datagen", Splits::side_by_side([split(stop)]));
            let progress = Progress::new(["0"]);
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
            let progress = Progress::new(["0"]);
            progress.begin(std::slice::from_ref(&state));
            let advance = Advance::new("bids/0".into(), 10, 17);
            state.apply(std::slice::from_ref(&advance), 1).unwrap();
            count(&progress, &state, &advance, 1);
            assert_eq!(progress.snapshot().lag, expected);
            assert_eq!(progress.snapshot().sources[0].lag, Some(23));
        }
    }

    #[test]
    fn every_partition_has_its_rows_and_what_the_source_says_of_it_between_items() {
        let split = |id: &str, position| {
            let other = [("end".to_owned(), 40.into())].into_iter().collect();
            SplitState::new(id.into(), position).with_identity(Identity { other, ..Identity::default() })
        };
        let mut state =
            SourceState::new("0", "kafka", Splits::side_by_side([split("bids/0", 10), split("bids/1", 40)]));
        let progress = Progress::new(["live"]);
        progress.begin(std::slice::from_ref(&state));
        // A partition that was found later comes with the item that tells of it.
        let added = split("bids/2", 0);
        state.take_up(std::slice::from_ref(&added));
        let advances = [Advance::new("bids/0".into(), 10, 13), Advance::new("bids/2".into(), 0, 2)];
        state.apply(&advances, 4).unwrap();
        let rows = RowPositions::mixed(vec![0, 0, 1, 1], vec![10, 12, 0, 1]).unwrap();
        progress.advance(0, &state, &Moved { rows: &rows, advances: &advances, changed: &[added] });
        let fetch = |messages, end| SplitFetch { messages, end };
        progress.gauges(0).unwrap().tell(Fetching {
            queue: Some(FetchQueue { messages: 9, bytes: 900 }),
            splits: [("bids/0".into(), fetch(8, Some(55))), ("bids/1".into(), fetch(0, Some(39)))].into(),
        });
        let snapshot = progress.snapshot();
        let source = &snapshot.sources[0];
        let shown = |split: &str| {
            let partition = source.partitions.iter().find(|partition| partition.split.as_str() == split).unwrap();
            (partition.position, partition.end, partition.lag, partition.rows, partition.fetched)
        };
        assert_eq!(shown("bids/0"), (13, Some(55), Some(42), 2, Some(8)));
        assert_eq!(shown("bids/1"), (40, Some(40), Some(0), 0, Some(0)));
        assert_eq!(shown("bids/2"), (2, Some(40), Some(38), 2, None));
        assert_eq!((&*source.name, source.rows, source.lag, snapshot.lag), ("live", 4, Some(80), Some(80)));
        assert_eq!(source.furthest_behind().unwrap().split.as_str(), "bids/0");
        assert_eq!(source.fetch_queue, Some(FetchQueue { messages: 9, bytes: 900 }));
        assert!(snapshot.rows_per_second > 0.0);
    }

    #[test]
    fn a_source_that_is_silent_is_active_when_those_before_it_are_done() {
        let topic = || SourceState::new("1", "kafka", Splits::side_by_side([SplitState::new("bids/0".into(), 0)]));
        let mut state = files("csv", &[("a.csv", 100)]);
        let progress = Progress::new(["0", "1"]);
        progress.begin(&[state.clone(), topic()]);
        assert_eq!(progress.snapshot().active, 0);
        let done = Advance::new("a.csv".into(), 0, 100).with_done(true);
        state.apply(std::slice::from_ref(&done), 1).unwrap();
        count(&progress, &state, &done, 1);
        assert_eq!(progress.snapshot().active, 1);
        let restarted = Progress::new(["0", "1"]);
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
