//! Positions and how they move: pure values, no I/O.
//!
//! A position is **the next thing to read**, always. The beginning is 0; that a split is finished is
//! a flag beside it, never a special number.

use std::fmt;
use std::sync::Arc;

use arrow::array::Int64Array;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Names a split: a file by its path relative to the source's root, a topic partition as `topic/partition`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SplitId(Arc<str>);

impl SplitId {
    /// Names a split.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Borrows the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SplitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SplitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for SplitId {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// One move of one split's position: `from` inclusive, `to` exclusive.
#[derive(Clone, PartialEq, Eq)]
pub struct Advance {
    /// The split that moves.
    pub split: SplitId,
    /// Where it stood; must be the position that the checkpoint knows.
    pub from: u64,
    /// Where it stands now: the next thing to read.
    pub to: u64,
    /// Whether the split is finished with it.
    pub done: bool,
}

impl Advance {
    /// Moves `split` over `from..to`.
    pub fn new(split: SplitId, from: u64, to: u64) -> Self {
        Self { split, from, to, done: false }
    }

    /// Says whether this ends the split.
    #[must_use]
    pub fn with_done(mut self, done: bool) -> Self {
        self.done = done;
        self
    }
}

/// `bids/0 17..42`, with ` done` behind it at the end of a split.
impl fmt::Debug for Advance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}..{}", self.split, self.from, self.to)?;
        if self.done {
            f.write_str(" done")?;
        }
        Ok(())
    }
}

/// What tells a split from another one of the same name, and a file from its later self.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Length in bytes as stored (compressed, if it is).
    pub size: Option<u64>,
    /// Time of the last change, in nanoseconds since the epoch.
    pub modified_ns: Option<i64>,
    /// The object store's tag of the content.
    pub etag: Option<Arc<str>>,
    /// What only the source itself understands: leader epoch, topic id. Stored as it is.
    pub other: Map<String, Value>,
}

impl Identity {
    /// Describes how `now` differs from what was stored, or `None` if it is the same thing.
    ///
    /// Two tags decide alone; without them size and modified time do.
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.size != now.size {
            return Some(format!("size was {}, now {}", shown(&self.size), shown(&now.size)));
        }
        match (&self.etag, &now.etag) {
            (Some(was), Some(is)) => (was != is).then(|| format!("etag was {was}, now {is}")),
            _ => (self.modified_ns != now.modified_ns)
                .then(|| format!("modified was {}, now {}", time(self.modified_ns), time(now.modified_ns))),
        }
    }
}

fn shown(size: &Option<u64>) -> String {
    size.map_or_else(|| "unknown".into(), |bytes| format!("{bytes} bytes"))
}

fn time(ns: Option<i64>) -> String {
    ns.map_or_else(|| "unknown".into(), |ns| chrono::DateTime::from_timestamp_nanos(ns).to_rfc3339())
}

/// Where one split stands.
#[derive(Clone, PartialEq, Eq)]
pub struct SplitState {
    /// Its name.
    pub id: SplitId,
    /// Where it began, inclusive.
    pub start: u64,
    /// The next thing to read.
    pub position: u64,
    /// Where it ends, exclusive, if it is known that it does.
    pub stop: Option<u64>,
    /// Whether nothing of it is left to read.
    pub done: bool,
    /// What tells it from another of the same name.
    pub identity: Identity,
}

impl SplitState {
    /// Starts a split at `start`.
    pub fn new(id: SplitId, start: u64) -> Self {
        Self { id, start, position: start, stop: None, done: false, identity: Identity::default() }
    }

    /// Sets where the split ends, exclusive.
    #[must_use]
    pub fn with_stop(mut self, stop: Option<u64>) -> Self {
        self.stop = stop;
        self
    }

    /// Sets what tells the split from another.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// The first offset of a partition's log, inclusive, when it was last told.
    pub fn log_start(&self) -> Option<u64> {
        self.identity.other.get("log_start")?.as_u64()
    }

    /// The end of a partition's log, exclusive, when it was last told.
    pub fn end(&self) -> Option<u64> {
        self.identity.other.get("end")?.as_u64()
    }

    /// How many offsets of a partition were left out since its log no longer had them.
    pub fn lost(&self) -> u64 {
        self.identity.other.get("lost").and_then(Value::as_u64).unwrap_or(0)
    }

    /// How far the position is behind the end of a partition's log; 0 means caught up.
    pub fn lag(&self) -> Option<u64> {
        Some(self.end()?.saturating_sub(self.position))
    }

    /// Moves the position.
    ///
    /// # Errors
    /// [`Error::NotContinuous`] if the advance doesn't start where the split stands,
    /// [`Error::UnexpectedSplit`] if the split is done or the advance runs backwards.
    pub fn apply(&mut self, advance: &Advance) -> Result<()> {
        if self.done {
            return Err(unexpected(&advance.split, "it is done and can't move"));
        }
        if advance.from != self.position {
            return Err(Error::NotContinuous {
                split: self.id.to_string(),
                position: self.position,
                from: advance.from,
            });
        }
        if advance.to < advance.from {
            return Err(unexpected(
                &advance.split,
                &format!("it can't go back from {} to {}", advance.from, advance.to),
            ));
        }
        self.position = advance.to;
        self.done = advance.done;
        Ok(())
    }
}

/// `bids/0 @17`, with ` ..42` for its stop and ` done`.
impl fmt::Debug for SplitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{}", self.id, self.position)?;
        if let Some(stop) = self.stop {
            write!(f, " ..{stop}")?;
        }
        if self.done {
            f.write_str(" done")?;
        }
        Ok(())
    }
}

pub(crate) fn unexpected(split: &SplitId, reason: &str) -> Error {
    Error::UnexpectedSplit { split: split.to_string(), reason: reason.into() }
}

/// The positions of a batch's rows, in row order and compactly.
///
/// Within a split they rise. Cloning and slicing are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPositions {
    kind: Kind,
    offset: usize,
    len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// One split; row `i` is at `first + i`.
    Consecutive(u64),
    /// One split; where each row starts.
    Starts(Arc<[u64]>),
    /// Several splits: for each row the index of its advance, and its position.
    Mixed(Arc<[u32]>, Arc<[u64]>),
}

impl RowPositions {
    /// The positions of no rows.
    pub fn none() -> Self {
        Self::consecutive(0, 0)
    }

    /// `len` rows of one split at `first`, `first + 1`, …
    pub fn consecutive(first: u64, len: usize) -> Self {
        Self { kind: Kind::Consecutive(first), offset: 0, len }
    }

    /// Rows of one split that start at the given positions.
    pub fn starts(starts: impl Into<Arc<[u64]>>) -> Self {
        let starts = starts.into();
        Self { len: starts.len(), kind: Kind::Starts(starts), offset: 0 }
    }

    /// Rows of several splits: per row the index into the item's advances, and the position.
    ///
    /// # Errors
    /// [`Error::Other`] if the two differ in length.
    pub fn mixed(advance: impl Into<Arc<[u32]>>, positions: impl Into<Arc<[u64]>>) -> Result<Self> {
        let (advance, positions) = (advance.into(), positions.into());
        if advance.len() != positions.len() {
            return Err(Error::Other {
                context: "row positions".into(),
                source: format!("{} splits for {} positions", advance.len(), positions.len()).into(),
            });
        }
        Ok(Self { len: positions.len(), kind: Kind::Mixed(advance, positions), offset: 0 })
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.len
    }

    /// The position of row `row`, or `None` behind the last.
    pub fn position(&self, row: usize) -> Option<u64> {
        self.get(row).map(|(_, position)| position)
    }

    /// The index of row `row`'s advance among those of its item.
    pub fn advance_index(&self, row: usize) -> Option<usize> {
        self.get(row).map(|(advance, _)| advance)
    }

    fn get(&self, row: usize) -> Option<(usize, u64)> {
        if row >= self.len {
            return None;
        }
        let at = self.offset + row;
        Some(match &self.kind {
            Kind::Consecutive(first) => (0, first + at as u64),
            Kind::Starts(starts) => (0, starts[at]),
            Kind::Mixed(advance, positions) => (advance[at] as usize, positions[at]),
        })
    }

    /// How many rows each of an item's `num_advances` advances has.
    pub(crate) fn count_by_advance(&self, num_advances: usize) -> Vec<u64> {
        let mut counts = vec![0; num_advances];
        match &self.kind {
            Kind::Mixed(advance, _) => {
                for &index in &advance[self.offset..self.offset + self.len] {
                    if let Some(count) = counts.get_mut(index as usize) {
                        *count += 1;
                    }
                }
            }
            Kind::Consecutive(_) | Kind::Starts(_) => {
                if let Some(count) = counts.first_mut() {
                    *count = self.len as u64;
                }
            }
        }
        counts
    }

    /// The first row of an advance that stands at `position` or behind it; the number of rows if there is none.
    pub(crate) fn first_behind(&self, advance: usize, position: u64) -> usize {
        match &self.kind {
            Kind::Consecutive(first) => {
                let from = first + self.offset as u64;
                usize::try_from(position.saturating_sub(from)).unwrap_or(usize::MAX).min(self.len)
            }
            Kind::Starts(starts) => {
                starts[self.offset..self.offset + self.len].partition_point(|start| *start < position)
            }
            Kind::Mixed(..) => {
                let is_behind = |row: &usize| self.get(*row).is_some_and(|(of, at)| of == advance && at >= position);
                (0..self.len).find(is_behind).unwrap_or(self.len)
            }
        }
    }

    /// The positions of some of the rows.
    ///
    /// # Errors
    /// [`Error::Other`] never: the two lists have one length.
    pub(crate) fn pick(&self, rows: &[usize]) -> Result<Self> {
        let picked = || rows.iter().filter_map(|&row| self.get(row));
        match &self.kind {
            Kind::Mixed(..) => Self::mixed(
                picked().map(|(advance, _)| advance as u32).collect::<Vec<_>>(),
                picked().map(|(_, position)| position).collect::<Vec<_>>(),
            ),
            _ => Ok(Self::starts(picked().map(|(_, position)| position).collect::<Vec<_>>())),
        }
    }

    /// The rows `from..from + len`, clamped to what there is.
    #[must_use]
    pub fn slice(&self, from: usize, len: usize) -> Self {
        let from = from.min(self.len);
        Self { kind: self.kind.clone(), offset: self.offset + from, len: len.min(self.len - from) }
    }

    /// The positions as the column `_position`.
    pub(crate) fn to_array(&self) -> Int64Array {
        (0..self.len).map(|row| self.position(row).map(|position| position as i64)).collect()
    }

    /// Cuts before row `row`: the advances and rows of both sides, each exact.
    pub(crate) fn cut(&self, advances: &[Advance], row: usize) -> (Piece, Piece) {
        let row = row.min(self.len);
        // For each advance the first position that stays on the right side, if any row does.
        let mut cut_of = vec![None; advances.len()];
        let mut missing = advances.len();
        for later in row..self.len {
            let Some((advance, position)) = self.get(later) else { break };
            if let Some(slot @ None) = cut_of.get_mut(advance) {
                *slot = Some(position);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        let (mut before, mut after) = (Piece::default(), Piece::default());
        let (mut index_before, mut index_after) = (Vec::new(), Vec::new());
        for (advance, cut) in advances.iter().zip(cut_of) {
            index_before.push(before.advances.len() as u32);
            index_after.push(after.advances.len() as u32);
            match cut {
                None => before.advances.push(advance.clone()),
                Some(cut) => {
                    if cut > advance.from {
                        before.advances.push(Advance::new(advance.split.clone(), advance.from, cut));
                    }
                    after.advances.push(Advance { from: cut, ..advance.clone() });
                }
            }
        }
        before.rows = self.slice(0, row).renumbered(&index_before);
        after.rows = self.slice(row, self.len).renumbered(&index_after);
        (before, after)
    }

    fn renumbered(self, index: &[u32]) -> Self {
        let Kind::Mixed(advance, positions) = &self.kind else { return self };
        let range = self.offset..self.offset + self.len;
        let advance = advance[range.clone()].iter().map(|&old| index[old as usize]).collect();
        Self { kind: Kind::Mixed(advance, positions[range].into()), offset: 0, len: self.len }
    }
}

/// One side of a cut.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) advances: Vec<Advance>,
    pub(crate) rows: RowPositions,
}

impl Default for RowPositions {
    fn default() -> Self {
        Self::none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gap_and_an_overlap_name_the_split_and_both_positions() {
        let mut split = SplitState::new("bids/0".into(), 17);
        let gap = split.apply(&Advance::new("bids/0".into(), 18, 20)).unwrap_err();
        assert_eq!(gap.to_string(), "split bids/0: gap at position 17: an advance starts at 18");
        let overlap = split.apply(&Advance::new("bids/0".into(), 16, 20)).unwrap_err();
        assert_eq!(overlap.to_string(), "split bids/0: overlap at position 17: an advance starts at 16");
        assert_eq!(split.position, 17, "a refused advance changes nothing");
    }

    #[test]
    fn a_done_split_stays_where_it_is() {
        let mut split = SplitState::new("a".into(), 0);
        split.apply(&Advance::new("a".into(), 0, 4).with_done(true)).unwrap();
        assert_eq!(format!("{split:?}"), "a @4 done");
        assert!(split.apply(&Advance::new("a".into(), 4, 5)).is_err());
    }

    #[test]
    fn an_advance_never_runs_backwards() {
        let mut split = SplitState::new("a".into(), 5);
        assert!(split.apply(&Advance::new("a".into(), 5, 3)).is_err());
        assert_eq!(split.position, 5);
    }

    #[test]
    fn identity_is_decided_by_the_tag_if_both_have_one() {
        let was = Identity { size: Some(3), modified_ns: Some(1), etag: Some("x".into()), ..Identity::default() };
        let touched = Identity { modified_ns: Some(2), ..was.clone() };
        assert_eq!(was.difference(&touched), None);
        let rewritten = Identity { etag: Some("y".into()), ..was.clone() };
        assert_eq!(was.difference(&rewritten).unwrap(), "etag was x, now y");
        let untagged = Identity { etag: None, modified_ns: Some(2), ..was.clone() };
        assert!(was.difference(&untagged).unwrap().starts_with("modified was"));
    }

    /// Rows of up to three splits at rising positions with holes, and the advances that carry them.
    fn items() -> impl Strategy<Value = (Vec<Advance>, RowPositions)> {
        prop::collection::vec((0u32..3, 1u64..5), 0..40).prop_map(|rows| {
            let mut next = [7u64, 0, 100];
            let start = next;
            let (mut which, mut at) = (Vec::new(), Vec::new());
            for (split, step) in rows {
                let position = next[split as usize] + step - 1;
                which.push(split);
                at.push(position);
                next[split as usize] = position + 1;
            }
            let advances = (0..3)
                .map(|i| Advance::new(SplitId::new(format!("s/{i}")), start[i], next[i] + 1).with_done(i == 1))
                .collect();
            (advances, RowPositions::mixed(which, at).unwrap())
        })
    }

    proptest! {
        /// However often an item is cut, applying the pieces in order ends where the whole ends.
        #[test]
        fn any_cuts_add_up_to_the_whole((advances, rows) in items(), cuts in prop::collection::vec(0usize..45, 0..5)) {
            let state = || -> Vec<SplitState> {
                advances.iter().map(|a| SplitState::new(a.split.clone(), a.from)).collect()
            };
            let apply = |state: &mut Vec<SplitState>, moves: &[Advance]| {
                for advance in moves {
                    state.iter_mut().find(|s| s.id == advance.split).unwrap().apply(advance).unwrap();
                }
            };
            let mut whole = state();
            apply(&mut whole, &advances);

            let mut pieces = state();
            let (mut moves, mut rows) = (advances.clone(), rows);
            for cut in cuts {
                let (before, after) = rows.cut(&moves, cut);
                prop_assert_eq!(before.rows.num_rows() + after.rows.num_rows(), rows.num_rows());
                for row in 0..rows.num_rows() {
                    let split = &moves[rows.advance_index(row).unwrap()].split;
                    let position = rows.position(row).unwrap();
                    let passed = before.advances.iter().any(|a| a.split == *split && (a.from..a.to).contains(&position));
                    prop_assert_eq!(passed, row < cut);
                    let (side, at) = if row < cut { (&before, row) } else { (&after, row - cut) };
                    prop_assert_eq!(side.rows.position(at), Some(position));
                    prop_assert_eq!(&side.advances[side.rows.advance_index(at).unwrap()].split, split);
                }
                apply(&mut pieces, &before.advances);
                (moves, rows) = (after.advances, after.rows);
            }
            apply(&mut pieces, &moves);
            prop_assert_eq!(pieces, whole);
        }
    }
}
