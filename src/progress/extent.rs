//! How far one source is: through a list of files, or side by side through partitions.

use std::collections::BTreeMap;
use std::time::Instant;

use super::rate::Rate;
use super::snapshot::{FilesSnapshot, PartitionSnapshot, ProgressUnit};
use super::{Fetching, Moved};
use crate::checkpoint::{SourceState, SplitId, SplitState, Splits};

/// How far a source is.
#[derive(Debug)]
pub(super) enum Extent {
    Files(Files),
    Partitions(BTreeMap<SplitId, Partition>),
}

/// A list of files, of which only the current one moves: what is counted of it doesn't grow with their number.
#[derive(Debug, Default)]
pub(super) struct Files {
    num_files: usize,
    num_done: usize,
    /// The sizes of the files that are done.
    done_bytes: u64,
    /// What is read of the current one.
    current_bytes: u64,
    total_bytes: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Partition {
    start: u64,
    position: u64,
    stop: Option<u64>,
    end: Option<u64>,
    lost: u64,
    is_done: bool,
    rows: u64,
    rate: Rate,
}

impl Extent {
    /// Takes up where a source stands.
    pub(super) fn new(state: &SourceState, now: Instant) -> Self {
        match &state.splits {
            Splits::OneByOne { list, .. } => {
                let total_bytes = list.iter().map(|entry| entry.identity.size).sum();
                let mut files = Files { num_files: list.len(), total_bytes, ..Files::default() };
                files.update(state);
                Self::Files(files)
            }
            Splits::SideBySide(splits) => {
                let partition = |split: &SplitState| (split.id.clone(), Partition::new(split, now));
                Self::Partitions(splits.values().map(partition).collect())
            }
        }
    }

    /// Counts what an item has moved, behind which the source stands at `state`. Only what has moved is looked at:
    /// items are many, and so may be partitions.
    pub(super) fn advance(&mut self, state: &SourceState, moved: &Moved<'_>, now: Instant) {
        match (self, &state.splits) {
            (Self::Files(files), _) => files.update(state),
            (Self::Partitions(partitions), Splits::SideBySide(splits)) => {
                let rows = moved.rows.count_by_advance(moved.advances.len());
                let advanced = moved.advances.iter().map(|advance| &advance.split).zip(rows);
                let changed = moved.changed.iter().map(|split| (&split.id, 0));
                for (id, num_rows) in changed.chain(advanced) {
                    let Some(split) = splits.get(id) else { continue };
                    let partition = partitions.entry(id.clone()).or_insert_with(|| Partition::new(split, now));
                    partition.update(split);
                    partition.rows += num_rows;
                    partition.rate.add(num_rows, now);
                }
            }
            (Self::Partitions(_), Splits::OneByOne { .. }) => {}
        }
    }

    pub(super) fn unit(&self) -> ProgressUnit {
        match self {
            Self::Files(_) => ProgressUnit::Bytes,
            Self::Partitions(_) => ProgressUnit::Positions,
        }
    }

    /// What is read, from the first position of all on.
    pub(super) fn done(&self) -> u64 {
        match self {
            Self::Files(files) => files.done_bytes + files.current_bytes,
            Self::Partitions(partitions) => {
                partitions.values().map(|partition| partition.position.saturating_sub(partition.start)).sum()
            }
        }
    }

    /// What there is to read, from the first position of all on.
    pub(super) fn total(&self) -> Option<u64> {
        match self {
            Self::Files(files) => files.total_bytes,
            Self::Partitions(partitions) => {
                let length = |partition: &Partition| Some(partition.stop?.saturating_sub(partition.start));
                partitions.values().map(length).sum()
            }
        }
    }

    pub(super) fn files(&self) -> Option<FilesSnapshot> {
        match self {
            Self::Files(files) => Some(FilesSnapshot { done: files.num_done as u64, total: files.num_files as u64 }),
            Self::Partitions(_) => None,
        }
    }

    /// Each partition, with what is fetched of it.
    pub(super) fn partitions(&self, fetching: &Fetching, now: Instant) -> Vec<PartitionSnapshot> {
        let Self::Partitions(partitions) = self else { return Vec::new() };
        let snapshot = |(split, partition): (&SplitId, &Partition)| {
            let fetch = fetching.splits.get(split);
            // Whichever was told last: a log only grows.
            let end = partition.end.max(fetch.and_then(|fetch| fetch.end));
            PartitionSnapshot {
                split: split.clone(),
                position: partition.position,
                stop: partition.stop,
                end,
                lag: end.map(|end| end.saturating_sub(partition.position)),
                lost: partition.lost,
                is_done: partition.is_done,
                rows: partition.rows,
                rows_per_second: partition.rate.per_second(now),
                fetched: fetch.map(|fetch| fetch.messages),
            }
        };
        partitions.iter().map(snapshot).collect()
    }
}

impl Files {
    fn update(&mut self, state: &SourceState) {
        let Splits::OneByOne { list, done, current } = &state.splits else { return };
        let newly = (self.num_done..*done).filter_map(|index| list.get(index)?.identity.size);
        self.done_bytes += newly.sum::<u64>();
        self.num_done = *done;
        self.current_bytes = current.as_ref().map_or(0, |split| bytes_of(split, state));
    }
}

impl Partition {
    fn new(split: &SplitState, now: Instant) -> Self {
        let mut partition = Self {
            start: split.start,
            position: split.position,
            stop: None,
            end: None,
            lost: 0,
            is_done: false,
            rows: 0,
            rate: Rate::new(now),
        };
        partition.update(split);
        partition
    }

    fn update(&mut self, split: &SplitState) {
        self.position = split.position;
        self.stop = split.stop;
        self.end = split.end();
        self.lost = split.lost();
        self.is_done = split.done;
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
