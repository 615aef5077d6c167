//! Bad records that were left out, by what was wrong with them.

use std::collections::BTreeMap;

use crate::error::{BadRecord, Reason};

/// Bad records that were left out, counted by reason and column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RejectCounts {
    counts: BTreeMap<(Reason, Option<String>), RejectCount>,
    num_kept: u64,
}

/// Bad records of one reason, and one column if the reason is about a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RejectCount {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: BadRecord,
}

impl RejectCounts {
    /// Adds a bad record; `is_kept` says that it is handed on, as a dead letter.
    pub fn add(&mut self, record: &BadRecord, is_kept: bool) {
        let alike = self.counts.entry((record.reason, record.column.clone()));
        alike.or_insert_with(|| RejectCount { count: 0, first: record.clone() }).count += 1;
        self.num_kept += u64::from(is_kept);
    }

    /// Both together.
    #[must_use]
    pub(super) fn joined(mut self, other: &Self) -> Self {
        for (key, alike) in &other.counts {
            let first = || RejectCount { count: 0, first: alike.first.clone() };
            self.counts.entry(key.clone()).or_insert_with(first).count += alike.count;
        }
        self.num_kept += other.num_kept;
        self
    }

    /// Each reason, and column, that came up.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, &RejectCount)> {
        self.counts.iter().map(|((reason, _), count)| (*reason, count))
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.counts.values().map(|count| count.count).sum()
    }

    /// How many of them were handed on.
    pub fn num_kept(&self) -> u64 {
        self.num_kept
    }
}
