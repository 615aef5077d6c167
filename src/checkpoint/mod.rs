//! Where a job stands, and the proof that nothing is skipped and nothing is read twice.
//!
//! A [`Checkpoint`] holds one [`SourceState`] per source of the chain, and a source state holds its
//! splits. Progress travels with the data: every item of a stream carries [`Advance`]s, and
//! [`Checkpoint::apply`] demands that each one starts exactly where its split stands.
//!
//! ```text
//! Checkpoint ── SourceState "0" (files, one by one)      done_through b.csv │ c.csv @4096
//!            └─ SourceState "1" (partitions, side by side)     bids/0 @17   │ bids/1 @3
//! ```
//!
//! A file source's list of splits may be long; it is written once, under the name of its content's
//! hash, and the checkpoint holds that name ([`SplitList`]).

mod json;
mod list;
mod position;
mod store;

use std::collections::BTreeMap;

use serde_json::Value;

pub use list::{SplitEntry, SplitList};
pub use position::{Advance, Identity, RowPositions, SplitId, SplitState};
pub use store::{CheckpointStore, FileCheckpointStore, JobLock, ObjectCheckpointStore};

pub(crate) use list::hash_of;
use position::unexpected;
pub(crate) use store::{sync_dir, write_durably};

use crate::error::{Error, Result};

/// The version of the JSON that this release writes, and the newest that it reads.
pub const CHECKPOINT_VERSION: u64 = 1;

/// All positions of a job, what identifies each split, and the options that give positions their meaning.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Checkpoint {
    /// Names the job.
    pub job: String,
    /// Counts the commits of a sink; 0 before the first.
    pub epoch: u64,
    /// When it was written, RFC 3339 in UTC; empty before the first time.
    pub written: String,
    /// The unified schema, in the words of `--schema`.
    pub schema: String,
    /// One state per source, in chain order.
    pub sources: Vec<SourceState>,
}

/// Where one source stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceState {
    /// The source's name, unique in the chain.
    pub name: String,
    /// What kind of source: `filesystem`, `kafka`, `datagen`, `memory`, or a user's own word.
    pub connector: String,
    /// The options that give positions their meaning; compared at a restart.
    pub options: BTreeMap<String, String>,
    /// What was found out once and must stay, such as `header`.
    pub notes: BTreeMap<String, Value>,
    /// The splits and their positions.
    pub splits: Splits,
    /// Rows delivered over the job's life.
    pub rows: u64,
    /// Records rejected over the job's life.
    pub rejected: u64,
}

/// The splits of a source, and the order in which they are read.
#[derive(Clone, Debug, PartialEq)]
pub enum Splits {
    /// One after the other, in the order of the list: files.
    OneByOne {
        /// All splits, in reading order.
        list: SplitList,
        /// How many of them are done, from the start of the list.
        done: usize,
        /// The split that was begun and isn't done.
        current: Option<SplitState>,
    },
    /// All at the same time: topic partitions.
    SideBySide(BTreeMap<SplitId, SplitState>),
}

impl Splits {
    /// Starts a list of splits at its beginning.
    pub fn one_by_one(list: SplitList) -> Self {
        Self::OneByOne { list, done: 0, current: None }
    }

    /// Starts splits that are read at the same time.
    pub fn side_by_side(splits: impl IntoIterator<Item = SplitState>) -> Self {
        Self::SideBySide(splits.into_iter().map(|split| (split.id.clone(), split)).collect())
    }

    /// Says whether every split is done.
    pub fn is_done(&self) -> bool {
        match self {
            Self::OneByOne { list, done, .. } => *done == list.len(),
            Self::SideBySide(splits) => splits.values().all(|split| split.done),
        }
    }

    fn apply(&mut self, advance: &Advance) -> Result<()> {
        match self {
            Self::SideBySide(splits) => splits
                .get_mut(&advance.split)
                .ok_or_else(|| unexpected(&advance.split, "it is none of this source's splits"))?
                .apply(advance),
            Self::OneByOne { list, done, current } => {
                let mut state = match current.take() {
                    Some(state) => state,
                    None => list
                        .get(*done)
                        .map(SplitEntry::to_state)
                        .ok_or_else(|| unexpected(&advance.split, "every split of the list is done"))?,
                };
                let moved = if state.id == advance.split {
                    state.apply(advance)
                } else {
                    Err(unexpected(&advance.split, &format!("it is the turn of {}", state.id)))
                };
                if state.done {
                    *done += 1;
                } else if state.position > state.start || moved.is_ok() {
                    *current = Some(state);
                }
                moved
            }
        }
    }
}

impl SourceState {
    /// Starts a source.
    pub fn new(name: impl Into<String>, connector: impl Into<String>, splits: Splits) -> Self {
        Self {
            name: name.into(),
            connector: connector.into(),
            options: BTreeMap::new(),
            notes: BTreeMap::new(),
            splits,
            rows: 0,
            rejected: 0,
        }
    }

    /// Sets the options that give positions their meaning.
    #[must_use]
    pub fn with_options(mut self, options: BTreeMap<String, String>) -> Self {
        self.options = options;
        self
    }

    /// Says whether nothing of this source is left to read.
    pub fn is_done(&self) -> bool {
        self.splits.is_done()
    }

    /// Takes up splits that were found later, and what is known better of those there are. Positions stay.
    pub fn take_up(&mut self, changed: &[SplitState]) {
        let Splits::SideBySide(splits) = &mut self.splits else { return };
        for split in changed {
            match splits.get_mut(&split.id) {
                Some(known) => {
                    known.identity = split.identity.clone();
                    known.stop = split.stop;
                }
                None => {
                    splits.insert(split.id.clone(), split.clone());
                }
            }
        }
    }

    /// Moves the splits by an item's advances and counts its rows.
    ///
    /// # Errors
    /// As [`SplitState::apply`]; the state is unusable then, and reading must end.
    pub fn apply(&mut self, advances: &[Advance], num_rows: u64) -> Result<()> {
        for advance in advances {
            self.splits.apply(advance)?;
        }
        self.rows += num_rows;
        Ok(())
    }
}

impl Checkpoint {
    /// Moves source `source` by an item's advances and counts its rows.
    ///
    /// # Errors
    /// [`Error::NotContinuous`] on a gap or an overlap, [`Error::UnexpectedSplit`] for a split out of
    /// its turn, [`Error::Chain`] for a source that isn't in the chain.
    pub fn apply(&mut self, source: usize, advances: &[Advance], num_rows: u64) -> Result<()> {
        let num_sources = self.sources.len();
        self.sources
            .get_mut(source)
            .ok_or_else(|| Error::Chain(format!("source {source} isn't in a chain of {num_sources}")))?
            .apply(advances, num_rows)
    }

    /// The index of the source that is being read: the first one that isn't done.
    pub fn active(&self) -> Option<usize> {
        self.sources.iter().position(|source| !source.is_done())
    }

    /// Says whether every source is done.
    pub fn is_done(&self) -> bool {
        self.active().is_none()
    }

    /// The state of the source called `name`.
    pub fn source(&self, name: &str) -> Option<&SourceState> {
        self.sources.iter().find(|source| source.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Splits {
        Splits::one_by_one(SplitList::new(
            names.iter().map(|name| SplitEntry::new((*name).into(), Identity::default())),
        ))
    }

    fn advance(split: &str, from: u64, to: u64) -> Advance {
        Advance::new(split.into(), from, to)
    }

    #[test]
    fn files_are_read_in_the_order_of_their_list() {
        let mut source = SourceState::new("0", "filesystem", files(&["a", "b"]));
        let early = source.clone().apply(&[advance("b", 0, 3)], 1).unwrap_err();
        assert_eq!(early.to_string(), "split b: it is the turn of a");

        source.apply(&[advance("a", 0, 5)], 1).unwrap();
        let early = source.clone().apply(&[advance("b", 0, 3)], 1).unwrap_err();
        assert_eq!(early.to_string(), "split b: it is the turn of a");

        source.apply(&[advance("a", 5, 9).with_done(true), advance("b", 0, 0).with_done(true)], 1).unwrap();
        assert!(source.is_done());
        assert!(source.apply(&[advance("b", 0, 0)], 0).is_err());
        assert_eq!(source.rows, 2);
    }

    #[test]
    fn the_first_source_that_is_not_done_is_active() {
        let mut checkpoint = Checkpoint {
            sources: vec![
                SourceState::new("0", "filesystem", files(&["a"])),
                SourceState::new("1", "kafka", Splits::side_by_side([SplitState::new("t/0".into(), 4)])),
            ],
            ..Checkpoint::default()
        };
        assert_eq!(checkpoint.active(), Some(0));
        checkpoint.apply(0, &[advance("a", 0, 1).with_done(true)], 1).unwrap();
        assert_eq!(checkpoint.active(), Some(1));
        checkpoint.apply(1, &[advance("t/0", 4, 9)], 2).unwrap();
        assert!(!checkpoint.is_done());
        assert!(checkpoint.apply(2, &[], 0).is_err());
        assert!(checkpoint.apply(1, &[advance("t/7", 0, 1)], 1).is_err());
    }

    #[test]
    fn a_source_without_splits_is_done() {
        assert!(SourceState::new("0", "filesystem", files(&[])).is_done());
    }
}
