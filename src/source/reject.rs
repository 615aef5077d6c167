//! Bad records, and what becomes of them.

use bytes::Bytes;

use crate::checkpoint::SplitId;
use crate::error::BadRecord;

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
