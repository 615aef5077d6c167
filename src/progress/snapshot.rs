//! Counters at one moment.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{FetchQueue, RejectCounts};
use crate::checkpoint::SplitId;

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
    /// Since reading began.
    pub elapsed: Duration,
    /// The index of the source that is being read.
    pub active: usize,
    /// The split that is being read.
    pub split: Option<SplitId>,
    /// Every source of the chain.
    pub sources: Vec<SourceSnapshot>,
    /// Rows a second, in the last five to ten seconds.
    pub rows_per_second: f64,
    /// Commits so far.
    pub commits: u64,
    /// When the last one was made.
    pub last_commit: Option<SystemTime>,
    /// How long the rest of the history will take at the speed so far, if that can be told.
    pub eta: Option<Duration>,
    /// How many messages the active source is behind, if it is live and without an end.
    pub lag: Option<u64>,
}

/// One source's counters at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SourceSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// Rows delivered by this run.
    pub rows: u64,
    /// Bad records that this run has left out.
    pub rejected: RejectCounts,
    /// What is read, earlier runs included.
    pub done: u64,
    /// What there is to read, if that is known.
    pub total: Option<u64>,
    /// What both are counted in.
    pub unit: ProgressUnit,
    /// Whether nothing of it is left to read.
    pub is_done: bool,
    /// How many messages it is behind the ends of its partitions, if it has such.
    pub lag: Option<u64>,
    /// Its files, if it reads one after the other.
    pub files: Option<FilesSnapshot>,
    /// Its splits, if it reads them side by side.
    pub partitions: Vec<PartitionSnapshot>,
    /// What it has fetched and nobody took yet, if it says so.
    pub fetch_queue: Option<FetchQueue>,
}

/// How many files there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilesSnapshot {
    /// Files that are read to their end.
    pub done: u64,
    /// All files.
    pub total: u64,
}

/// One partition's counters at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartitionSnapshot {
    /// Its name.
    pub split: SplitId,
    /// The next thing to read.
    pub position: u64,
    /// Where it ends, exclusive, if it was given a stop.
    pub stop: Option<u64>,
    /// The end of its log, exclusive, when it was last told.
    pub end: Option<u64>,
    /// How far the position is behind that; 0 means caught up.
    pub lag: Option<u64>,
    /// Offsets that were left out since its log no longer had them, over the job's life.
    pub lost: u64,
    /// Whether nothing of it is left to read.
    pub is_done: bool,
    /// Rows delivered by this run.
    pub rows: u64,
    /// Rows a second, in the last five to ten seconds.
    pub rows_per_second: f64,
    /// How far fetching is ahead of what was taken, in offsets, if the source says so.
    pub fetched: Option<u64>,
}

impl Snapshot {
    /// Rows delivered by this run.
    pub fn rows(&self) -> u64 {
        self.sources.iter().map(|source| source.rows).sum()
    }

    /// Bad records that this run has left out.
    pub fn rejected(&self) -> u64 {
        self.sources.iter().map(|source| source.rejected.total()).sum()
    }
}

impl SourceSnapshot {
    /// The partition that is furthest behind; none if none is behind, or nobody knows.
    pub fn furthest_behind(&self) -> Option<&PartitionSnapshot> {
        // The first of equals, so that what is shown doesn't jump.
        let behind = self.partitions.iter().rev().filter(|partition| partition.lag > Some(0));
        behind.max_by_key(|partition| partition.lag)
    }
}
