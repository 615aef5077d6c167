//! Bad records, and what becomes of them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::checkpoint::SplitId;
use crate::error::{BadRecord, Reason};

/// What becomes of bad records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BadRecords {
    /// The first one ends reading, behind the rows before it.
    #[default]
    Fail,
    /// They are left out and counted.
    Skip,
    /// They are left out, counted, and handed on with what they were.
    Keep,
}

/// A bad record that was left out. It travels with the item whose advances move over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The split that it is of.
    pub split: SplitId,
    /// Where it starts, and what is wrong with it.
    pub record: BadRecord,
    /// Whether it is handed on, and not only counted.
    pub is_kept: bool,
    /// As it stands in the input, without its line end; only if it is handed on, and if the input is text.
    pub raw: Option<Bytes>,
}

/// Bytes that the rejects of one decoding job may take, about; the job ends then, and what is left of its chunk is
/// decoded when those are taken. So a file of nothing but bad records fills no memory.
pub(crate) const MAX_REJECT_BYTES: usize = 256 << 10;

impl Reject {
    /// The memory that it takes, about.
    pub(crate) fn num_bytes(&self) -> usize {
        let BadRecord { message, hint, column, split, .. } = &self.record;
        let texts = message.len() + split.len() + [hint, column].into_iter().flatten().map(String::len).sum::<usize>();
        size_of::<Self>() + texts + self.raw.as_ref().map_or(0, Bytes::len)
    }
}

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
    /// Adds the bad records of an item.
    pub fn add(&mut self, rejects: &[Reject]) {
        for Reject { record, .. } in rejects {
            let of_reason = self.0.entry(record.reason);
            of_reason.or_insert_with(|| RejectCount { count: 0, first: record.clone() }).count += 1;
        }
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
