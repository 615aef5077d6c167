//! Messages gathered until there are enough of them, or the first has waited long enough. The clock is an argument.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::partition::Partition;
use super::queue::Message;
use crate::checkpoint::Advance;

/// When a micro-batch is cut: at the first of the three.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// How long after its first entry.
    pub(super) linger: Duration,
}

/// Moves of several partitions in the order in which they were taken; within a partition offsets rise.
#[derive(Debug, Default)]
pub(super) struct MicroBatch {
    /// What runs mean by their partition's index.
    pub(super) partitions: Arc<[Partition]>,
    runs: Vec<Run>,
    /// The values one behind the other, each with a line feed behind it, so that they are lines mostly.
    values: Vec<u8>,
    /// Where the value of each row ends.
    ends: Vec<usize>,
    /// Which of the rows have no value; none if those are no rows.
    tombstones: Vec<usize>,
    /// What provenance wants besides, for each row.
    pub(super) extras: Option<Extras>,
    began: Option<Instant>,
    num_moves: usize,
}

/// Rows of one partition at consecutive offsets, or one move without a row: messages mostly come in long runs, and what
/// is kept for a run costs nothing for each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The index of the partition.
    partition: u32,
    kind: RunKind,
    /// Where the partition stood before.
    from: u64,
    /// The next offset to read behind it.
    next: u64,
    /// How many rows of the micro-batch are before it.
    rows_before: usize,
    num_rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunKind {
    /// Messages, the last of them at `next - 1`.
    Rows,
    /// A move without a row: a tombstone that is left out, markers before the end.
    Skip,
    /// The partition's stop.
    Done,
}

impl Run {
    /// The offset of its first row.
    fn first_offset(&self) -> u64 {
        self.next - self.num_rows as u64
    }

    /// Those of its rows that are among `rows`; maybe none.
    fn rows_among(&self, rows: &Range<usize>) -> Range<usize> {
        let start = self.rows_before.max(rows.start);
        start..(self.rows_before + self.num_rows).min(rows.end).max(start)
    }

    fn offset_of(&self, row: usize) -> u64 {
        self.first_offset() + (row - self.rows_before) as u64
    }
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
    /// Begins a micro-batch, with room for as many rows and bytes as the one before it had.
    pub(super) fn new(partitions: &Arc<[Partition]>, wanted: Wanted, like: Option<(usize, usize)>) -> Self {
        let (rows, bytes) = like.unwrap_or_default();
        Self {
            partitions: Arc::clone(partitions),
            values: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(rows),
            extras: (wanted != Wanted::default()).then(|| Extras { wanted, ..Extras::default() }),
            ..Self::default()
        }
    }

    /// Adds a message as a row of `partition`, which stood at `from`.
    pub(super) fn push_row(&mut self, partition: u32, from: u64, message: &Message<'_>, now: Instant) {
        if let Some(extras) = &mut self.extras {
            extras.push(message);
        }
        self.push_value(partition, from, message.offset(), message.value(), now);
    }

    /// Adds a row with a value, or that of a tombstone.
    pub(super) fn push_value(&mut self, partition: u32, from: u64, offset: u64, value: Option<&[u8]>, now: Instant) {
        match value {
            Some(value) => self.values.extend_from_slice(value),
            None => self.tombstones.push(self.ends.len()),
        }
        self.ends.push(self.values.len());
        self.values.push(b'\n');
        match self.runs.last_mut() {
            Some(run) if run.kind == RunKind::Rows && run.partition == partition && run.next == offset => {
                run.next += 1;
                run.num_rows += 1;
            }
            _ => {
                let rows_before = self.ends.len() - 1;
                let run = Run { partition, kind: RunKind::Rows, from, next: offset + 1, rows_before, num_rows: 1 };
                self.push_run(run, now);
            }
        }
    }

    /// Adds a move of `partition` from `from` to `next`, without a row.
    pub(super) fn push(&mut self, partition: u32, from: u64, kind: RunKind, next: u64, now: Instant) {
        self.num_moves += 1;
        self.push_run(Run { partition, kind, from, next, rows_before: self.ends.len(), num_rows: 0 }, now);
    }

    fn push_run(&mut self, run: Run, now: Instant) {
        self.began.get_or_insert(now);
        self.runs.push(run);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Rows, and other moves, so far.
    pub(super) fn len(&self) -> usize {
        self.ends.len() + self.num_moves
    }

    /// Bytes of the values so far.
    pub(super) fn value_bytes(&self) -> usize {
        self.values.len()
    }

    pub(super) fn num_rows(&self) -> usize {
        self.ends.len()
    }

    /// The values of all rows, each with a line feed behind it.
    pub(super) fn values(&self) -> &[u8] {
        &self.values
    }

    /// The rows that have no value, in their order.
    pub(super) fn tombstones(&self) -> &[usize] {
        &self.tombstones
    }

    /// Where the values of rows end.
    pub(super) fn value_ends(&self) -> &[usize] {
        &self.ends
    }

    /// The partitions that moved; one may come up several times.
    pub(super) fn moved(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().map(|run| run.partition)
    }

    /// How partitions move with `rows`, by what comes in between without a row, and by what comes behind up to the next
    /// row. Of a partition that isn't there, there is no advance.
    pub(super) fn advances(&self, rows: &Range<usize>) -> Advances {
        let mut advances = Advances::default();
        for run in &self.runs {
            let among = run.rows_among(rows);
            // Moves before the first row belong to whoever read the row before.
            let is_between = (rows.start == 0 || run.rows_before > rows.start) && run.rows_before <= rows.end;
            if among.is_empty() && !(run.kind != RunKind::Rows && is_between) {
                continue;
            }
            let from = if among.start > run.rows_before { run.offset_of(among.start) } else { run.from };
            let advance = advances.of(run.partition, from, &self.partitions);
            let is_whole = among.end == run.rows_before + run.num_rows;
            advance.to = if is_whole { run.next } else { run.offset_of(among.end) };
            advance.done |= run.kind == RunKind::Done;
        }
        advances
    }

    /// Where `rows` stand, run by run: the partition, the offset of the first of them, and how many there are.
    pub(super) fn places(&self, rows: Range<usize>) -> impl Iterator<Item = (u32, u64, usize)> {
        let first = self.runs.partition_point(|run| run.rows_before + run.num_rows <= rows.start);
        let behind = rows.end;
        let runs = self.runs[first..].iter().take_while(move |run| run.rows_before < behind);
        runs.filter(|run| run.num_rows > 0).map(move |run| {
            let among = run.rows_among(&rows);
            (run.partition, run.offset_of(among.start), among.len())
        })
    }

    /// The partition and the offset of a row.
    pub(super) fn place(&self, row: usize) -> (&Partition, u64) {
        let run = self.runs[self.runs.partition_point(|run| run.rows_before + run.num_rows <= row)];
        (&self.partitions[run.partition as usize], run.offset_of(row))
    }

    /// How long it may still wait at `now`: zero if it is to be cut, `None` as long as it is empty.
    pub(super) fn wait(&self, limits: &Limits, now: Instant) -> Option<Duration> {
        let began = self.began?;
        if self.len() >= limits.rows || self.values.len() >= limits.bytes {
            return Some(Duration::ZERO);
        }
        Some((began + limits.linger).saturating_duration_since(now))
    }
}

/// One advance for each partition that moved, in the order in which they first did.
#[derive(Debug, Default)]
pub(super) struct Advances {
    pub(super) list: Vec<Advance>,
    /// The place of each partition's advance.
    index: Vec<Option<u32>>,
}

impl Advances {
    /// The advance of a partition, begun at `from` if there is none yet.
    fn of(&mut self, partition: u32, from: u64, partitions: &[Partition]) -> &mut Advance {
        let which = partition as usize;
        if self.index.len() <= which {
            self.index.resize(which + 1, None);
        }
        let place = *self.index[which].get_or_insert(self.list.len() as u32) as usize;
        if place == self.list.len() {
            self.list.push(Advance::new(partitions[which].split.clone(), from, from));
        }
        &mut self.list[place]
    }

    /// The place of a partition's advance; only of one that moved.
    pub(super) fn index_of(&self, partition: u32) -> u32 {
        self.index.get(partition as usize).copied().flatten().unwrap_or_default()
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
    use crate::checkpoint::SplitId;

    const LIMITS: Limits = Limits { rows: 3, bytes: 10, linger: Duration::from_millis(20) };

    #[test]
    fn it_is_cut_by_the_linger_after_its_first_entry() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut batch = MicroBatch::default();
        assert_eq!(batch.wait(&LIMITS, at(0)), None, "an empty one waits for ever");
        batch.push(0, 5, RunKind::Skip, 6, at(100));
        batch.push(0, 6, RunKind::Skip, 7, at(115));
        assert_eq!(batch.wait(&LIMITS, at(115)), Some(Duration::from_millis(5)));
        assert_eq!(batch.wait(&LIMITS, at(120)), Some(Duration::ZERO));
        assert_eq!(batch.wait(&LIMITS, at(500)), Some(Duration::ZERO));
    }

    #[test]
    fn it_is_cut_by_rows_and_by_bytes() {
        let now = Instant::now();
        let mut batch = MicroBatch::default();
        for offset in 0..3 {
            assert_ne!(batch.wait(&LIMITS, now), Some(Duration::ZERO));
            match offset {
                1 => batch.push(0, offset, RunKind::Skip, offset + 1, now),
                _ => batch.push_value(0, offset, offset, Some(b"a"), now),
            }
        }
        assert_eq!(batch.wait(&LIMITS, now), Some(Duration::ZERO));

        let mut batch = MicroBatch::default();
        batch.push_value(0, 0, 0, Some(&[b'a'; 10]), now);
        assert_eq!(batch.wait(&LIMITS, now), Some(Duration::ZERO));
    }

    /// Rows at 5, 6 | 100, a tombstone at 101, 102 | 8 (7 is a marker) | the first one's stop at 10.
    fn of_two_partitions() -> MicroBatch {
        let partition =
            |id: i32| Partition { split: SplitId::new(format!("t/{id}")), topic: 0, topic_name: "t".into(), id };
        let now = Instant::now();
        let mut batch = MicroBatch::new(&[partition(0), partition(1)].into(), Wanted::default(), None);
        batch.push_value(0, 5, 5, Some(b"v"), now);
        batch.push_value(0, 6, 6, Some(b"v"), now);
        batch.push_value(1, 100, 100, Some(b"v"), now);
        batch.push(1, 101, RunKind::Skip, 102, now);
        batch.push_value(1, 102, 102, Some(b"v"), now);
        batch.push_value(0, 7, 8, Some(b"v"), now);
        batch.push(0, 9, RunKind::Skip, 10, now);
        batch.push(0, 10, RunKind::Done, 10, now);
        batch
    }

    #[test]
    fn advances_of_any_two_parts_add_up_to_those_of_all_rows() {
        let batch = of_two_partitions();
        let shown = |rows: Range<usize>| {
            let advances = batch.advances(&rows).list;
            advances
                .iter()
                .map(|a| format!("{} {}..{}{}", a.split, a.from, a.to, ["", " done"][usize::from(a.done)]))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(0..5), ["t/0 5..10 done", "t/1 100..103"]);
        assert_eq!(shown(0..0), Vec::<String>::new());
        assert_eq!(
            (shown(0..1), shown(1..5)),
            (vec!["t/0 5..6".into()], vec!["t/0 6..10 done".into(), "t/1 100..103".into()])
        );
        assert_eq!(
            (shown(0..2), shown(2..5)),
            (vec!["t/0 5..7".into()], vec!["t/1 100..103".into(), "t/0 7..10 done".into()])
        );
        // What has no row belongs to the row before.
        assert_eq!(
            (shown(0..3), shown(3..5)),
            (vec!["t/0 5..7".into(), "t/1 100..102".into()], vec!["t/1 102..103".into(), "t/0 7..10 done".into()])
        );
        assert_eq!(shown(4..5), ["t/0 7..10 done"]);
    }

    #[test]
    fn places_are_told_run_by_run() {
        let batch = of_two_partitions();
        let places = |rows| batch.places(rows).collect::<Vec<_>>();
        assert_eq!(places(0..5), [(0, 5, 2), (1, 100, 1), (1, 102, 1), (0, 8, 1)]);
        assert_eq!(places(1..3), [(0, 6, 1), (1, 100, 1)]);
        assert_eq!(places(3..4), [(1, 102, 1)]);
        assert_eq!(places(2..2), []);
    }
}
