//! What a source says of itself between its items.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::checkpoint::SplitId;

/// What one source has fetched and nobody took yet: written by the source, read by whoever shows it.
///
/// A source finds it in its request, if somebody looks; telling it often costs, so sources tell it every few seconds.
#[derive(Debug, Default)]
pub struct FetchGauges(Mutex<Fetching>);

/// What a source has fetched, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetching {
    /// Of all splits; `None` if it isn't known.
    pub queue: Option<FetchQueue>,
    /// Of each split.
    pub splits: BTreeMap<SplitId, SplitFetch>,
}

/// Messages that were fetched and that nobody took yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchQueue {
    /// How many.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
}

/// What a source has fetched of one split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitFetch {
    /// How far fetching is ahead of what was taken, in offsets.
    pub messages: u64,
    /// The end of the log as of the last fetch.
    pub end: Option<u64>,
}

impl FetchGauges {
    /// Takes the place of what was told before.
    pub fn tell(&self, fetching: Fetching) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fetching;
    }

    /// What was told last.
    pub fn last(&self) -> Fetching {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
