//! Messages gathered until there are enough of them, or the first has waited long enough. The clock is an argument.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::partition::Partition;
use super::queue::Message;

/// When a micro-batch is cut: at the first of the three.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// How long after its first entry.
    pub(super) linger: Duration,
}

/// Entries of several partitions in the order in which they were taken; within a partition offsets rise.
#[derive(Debug, Default)]
pub(super) struct MicroBatch {
    /// What entries mean by their partition's index.
    pub(super) partitions: Arc<[Partition]>,
    pub(super) entries: Vec<Entry>,
    /// The values, one behind the other.
    values: Vec<u8>,
    /// What provenance wants besides, for each row.
    pub(super) extras: Option<Extras>,
    /// Partitions that moved, and where they stood before.
    pub(super) touched: Vec<(u32, u64)>,
    began: Option<Instant>,
    num_rows: usize,
}

/// One move of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The index of the partition.
    pub(super) partition: u32,
    pub(super) kind: EntryKind,
    /// The next offset to read behind it.
    pub(super) next: u64,
    /// Where its value ends among the values.
    value_end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A message with a value, at `next - 1`.
    Row,
    /// A move without a row: a tombstone, markers before the end.
    Skip,
    /// The partition's stop.
    Done,
}

/// Of each row what isn't its value.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) timestamps: Vec<Option<i64>>,
    pub(super) keys: Vec<Option<Box<[u8]>>>,
    pub(super) headers: Vec<Vec<Header>>,
    pub(super) wanted: Wanted,
}

/// What of a message is to be kept besides its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) timestamps: bool,
    pub(super) keys: bool,
    pub(super) headers: bool,
}

/// A header's name and value.
pub(super) type Header = (String, Option<Box<[u8]>>);

impl MicroBatch {
    /// Begins a micro-batch, with room for as much as the one before it had.
    pub(super) fn new(partitions: &Arc<[Partition]>, wanted: Wanted, like: Option<(usize, usize)>) -> Self {
        let (entries, bytes) = like.unwrap_or_default();
        Self {
            partitions: Arc::clone(partitions),
            entries: Vec::with_capacity(entries),
            values: Vec::with_capacity(bytes),
            extras: (wanted != Wanted::default()).then(|| Extras { wanted, ..Extras::default() }),
            ..Self::default()
        }
    }

    /// Adds a message's value as a row of `partition`, which stood at `from`.
    pub(super) fn push_row(&mut self, partition: u32, from: u64, message: &Message<'_>, value: &[u8], now: Instant) {
        if let Some(extras) = &mut self.extras {
            extras.push(message);
        }
        self.values.extend_from_slice(value);
        self.num_rows += 1;
        self.push(partition, from, EntryKind::Row, message.offset() + 1, now);
    }

    /// Adds a move of `partition` from `from` to `next`.
    pub(super) fn push(&mut self, partition: u32, from: u64, kind: EntryKind, next: u64, now: Instant) {
        self.began.get_or_insert(now);
        // Messages mostly come in runs of one partition.
        let is_run = self.entries.last().is_some_and(|last| last.partition == partition);
        if !is_run && !self.touched.iter().any(|(known, _)| *known == partition) {
            self.touched.push((partition, from));
        }
        self.entries.push(Entry { partition, kind, next, value_end: self.values.len() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Rows, and other moves, so far.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the values so far.
    pub(super) fn value_bytes(&self) -> usize {
        self.values.len()
    }

    pub(super) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// The values of all rows, one behind the other.
    pub(super) fn values(&self) -> &[u8] {
        &self.values
    }

    /// Where the values of rows end, with the index of each one's entry.
    pub(super) fn value_ends(&self) -> impl Iterator<Item = (usize, usize)> {
        let is_row = |(_, entry): &(usize, &Entry)| entry.kind == EntryKind::Row;
        self.entries.iter().enumerate().filter(is_row).map(|(index, entry)| (index, entry.value_end))
    }

    /// How long it may still wait at `now`: zero if it is to be cut, `None` as long as it is empty.
    pub(super) fn wait(&self, limits: &Limits, now: Instant) -> Option<Duration> {
        let began = self.began?;
        if self.entries.len() >= limits.rows || self.values.len() >= limits.bytes {
            return Some(Duration::ZERO);
        }
        Some((began + limits.linger).saturating_duration_since(now))
    }
}

impl Extras {
    fn push(&mut self, message: &Message<'_>) {
        if self.wanted.timestamps {
            self.timestamps.push(message.timestamp());
        }
        if self.wanted.keys {
            self.keys.push(message.key().map(Into::into));
        }
        if self.wanted.headers {
            let mut headers = Vec::new();
            message.headers(|name, value| headers.push((name.to_owned(), value.map(Into::into))));
            self.headers.push(headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { rows: 3, bytes: 10, linger: Duration::from_millis(20) };

    #[test]
    fn it_is_cut_by_the_linger_after_its_first_entry() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut batch = MicroBatch::default();
        assert_eq!(batch.wait(&LIMITS, at(0)), None, "an empty one waits for ever");
        batch.push(0, 5, EntryKind::Skip, 6, at(100));
        batch.push(0, 6, EntryKind::Skip, 7, at(115));
        assert_eq!(batch.wait(&LIMITS, at(115)), Some(Duration::from_millis(5)));
        assert_eq!(batch.wait(&LIMITS, at(120)), Some(Duration::ZERO));
        assert_eq!(batch.wait(&LIMITS, at(500)), Some(Duration::ZERO));
    }

    #[test]
    fn it_is_cut_by_rows_and_by_bytes() {
        let now = Instant::now();
        let mut batch = MicroBatch::default();
        for next in 1..=3 {
            assert_ne!(batch.wait(&LIMITS, now), Some(Duration::ZERO));
            batch.push(0, next - 1, EntryKind::Skip, next, now);
        }
        assert_eq!(batch.wait(&LIMITS, now), Some(Duration::ZERO));
        assert_eq!(batch.touched, [(0, 0)]);

        let mut batch = MicroBatch::default();
        batch.push(0, 0, EntryKind::Row, 1, now);
        batch.values.extend_from_slice(&[0; 10]);
        assert_eq!(batch.wait(&LIMITS, now), Some(Duration::ZERO));
    }
}
