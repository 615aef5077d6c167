//! Bad records that were left out, by reason.

use std::collections::BTreeMap;

use crate::error::{BadRecord, Reason};

/// Bad records that were left out, counted by reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RejectCounts(BTreeMap<Reason, RejectCount>);

/// Bad records of one reason.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RejectCount {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: BadRecord,
}

impl RejectCounts {
    /// Adds a bad record.
    pub fn add(&mut self, record: &BadRecord) {
        let of_reason = self.0.entry(record.reason);
        of_reason.or_insert_with(|| RejectCount { count: 0, first: record.clone() }).count += 1;
    }

    /// Each reason that came up.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, &RejectCount)> {
        self.0.iter().map(|(reason, count)| (*reason, count))
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().map(|count| count.count).sum()
    }
}
