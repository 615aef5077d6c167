//! What was read, by split, and how it differs from what should have been read.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::checkpoint::SplitId;
use crate::source::SourceBatch;

/// Rows and their positions, by source and split. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    splits: BTreeMap<(usize, SplitId), SplitRows>,
    num_rows: u64,
}

#[derive(Debug, Clone, Default)]
struct SplitRows {
    positions: Vec<u64>,
    batches: Vec<RecordBatch>,
}

impl Rows {
    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Adds the rows of an item of source `source`.
    pub(super) fn push(&mut self, source: usize, item: &SourceBatch) -> Result<(), String> {
        self.num_rows += item.num_rows() as u64;
        let mut rows_of: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for row in 0..item.num_rows() {
            let advance = item.rows().advance_index(row).ok_or("a row without a position")?;
            rows_of.entry(advance).or_default().push(row as u32);
        }
        for (advance, rows) in rows_of {
            let advance = item.advances().get(advance).ok_or("a row that names no advance of its item")?;
            let split = self.splits.entry((source, advance.split.clone())).or_default();
            split.positions.extend(rows.iter().filter_map(|&row| item.rows().position(row as usize)));
            let batch = if rows.len() == item.num_rows() {
                item.batch().clone()
            } else {
                take_record_batch(item.batch(), &UInt32Array::from(rows)).map_err(|e| e.to_string())?
            };
            split.batches.push(batch);
        }
        Ok(())
    }

    /// Adds what was read after these.
    pub(super) fn extend(&mut self, later: Self) {
        self.num_rows += later.num_rows;
        for (id, rows) in later.splits {
            let split = self.splits.entry(id).or_default();
            split.positions.extend(rows.positions);
            split.batches.extend(rows.batches);
        }
    }

    /// The same rows with only the columns named, in that order.
    pub(super) fn project(&self, columns: &[usize]) -> Result<Self, String> {
        let mut projected = self.clone();
        for batch in projected.splits.values_mut().flat_map(|rows| &mut rows.batches) {
            *batch = batch.project(columns).map_err(|e| e.to_string())?;
        }
        Ok(projected)
    }

    /// Describes the first difference to what was expected, or `None` if there is none.
    pub(super) fn difference(&self, expected: &Self) -> Result<Option<String>, String> {
        let ids = self.splits.keys().chain(expected.splits.keys());
        let none = SplitRows::default();
        for id in ids {
            let (got, want) = (self.splits.get(id).unwrap_or(&none), expected.splits.get(id).unwrap_or(&none));
            if let Some(difference) = got.difference(want).map_err(|e| e.to_string())? {
                return Ok(Some(format!("source {} split {}: {difference}", id.0, id.1)));
            }
        }
        Ok(None)
    }
}

impl SplitRows {
    fn difference(&self, expected: &Self) -> Result<Option<String>, ArrowError> {
        let differing = self.positions.iter().zip(&expected.positions).position(|(got, want)| got != want);
        if let Some(row) = differing {
            let (got, want) = (self.positions[row], expected.positions[row]);
            return Ok(Some(format!("row {row} is at position {got}, expected at {want}")));
        }
        let (got, want) = (self.positions.len(), expected.positions.len());
        if got != want {
            let last = self.positions.last().map_or_else(String::new, |last| format!(", the last at position {last}"));
            return Ok(Some(format!("{got} rows{last}; expected {want}")));
        }
        let place = |row: usize| format!("row {row} (position {})", self.positions[row]);
        difference(&self.batches, &expected.batches, place)
    }
}

/// Describes the first row that differs between two series of batches, or `None` if none does.
pub(super) fn difference(
    got: &[RecordBatch],
    expected: &[RecordBatch],
    place: impl Fn(usize) -> String,
) -> Result<Option<String>, ArrowError> {
    let (Some(first), Some(wanted)) = (got.first(), expected.first()) else {
        let count = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let (got, want) = (count(got), count(expected));
        return Ok((got != want).then(|| format!("{got} rows, expected {want}")));
    };
    if first.schema() != wanted.schema() {
        return Ok(Some(format!("the schema is {}, expected {}", first.schema(), wanted.schema())));
    }
    let got = concat_batches(&first.schema(), got)?;
    let expected = concat_batches(&wanted.schema(), expected)?;
    if got == expected {
        return Ok(None);
    }
    for row in 0..got.num_rows().min(expected.num_rows()) {
        let (is, should) = (got.slice(row, 1), expected.slice(row, 1));
        if is != should {
            return Ok(Some(format!("{} is ({}), expected ({})", place(row), shown(&is)?, shown(&should)?)));
        }
    }
    Ok(Some(format!("{} rows, expected {}", got.num_rows(), expected.num_rows())))
}

fn shown(row: &RecordBatch) -> Result<String, ArrowError> {
    let options = FormatOptions::default().with_null("null");
    let value = |column: &ArrayRef| ArrayFormatter::try_new(column, &options)?.value(0).try_to_string();
    Ok(row.columns().iter().map(value).collect::<Result<Vec<_>, ArrowError>>()?.join(", "))
}
