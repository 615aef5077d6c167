//! The rules, one record and one byte after the other: what a record is, and what is wrong with one.
//!
//! Whatever reads faster takes what this takes, and asks it for the fault of what it doesn't take.

use std::ops::Range;

use super::column::Column;
use super::keys::Members;
use super::scan::{Scanner, Slot, Syntax};
use crate::error::Reason;
use crate::format::RecordFault;

/// Decodes record by record.
#[derive(Debug)]
pub(super) struct StrictDecoder {
    members: Members,
    /// For each column the index of its key among the members.
    keys: Vec<usize>,
    columns: Vec<Column>,
    num_rows: usize,
    max_depth: usize,
}

impl StrictDecoder {
    /// Fills `columns` with the values of `keys`.
    pub(super) fn new(members: Members, keys: &[usize], columns: Vec<Column>, max_depth: usize) -> Self {
        Self { members, keys: keys.into(), columns, num_rows: 0, max_depth }
    }

    /// Takes the rows out, of which there are as many as in each column.
    #[cfg(any(test, fuzzing))]
    pub(super) fn finish(
        &mut self,
        schema: arrow::datatypes::SchemaRef,
    ) -> Result<arrow::array::RecordBatch, arrow::error::ArrowError> {
        let columns = self.columns.iter_mut().map(Column::finish).collect::<Result<_, _>>()?;
        arrow::array::RecordBatch::try_new(schema, columns)
    }

    /// Adds the record at `start..end` of `text`; `false` if there are only blanks.
    ///
    /// # Errors
    /// What is wrong with it; nothing of it stays. The record of the fault ends where its line does.
    pub(super) fn record(&mut self, text: &str, start: usize, end: usize) -> Result<bool, RecordFault> {
        let mut scanner = Scanner::new(text, start, end, self.max_depth);
        scanner.skip_whitespace();
        if scanner.at() == end {
            return Ok(false);
        }
        check_object(&scanner, start..end)?;
        let slots = self.members.read(&mut scanner, text, 0).map_err(|syntax| broken(&syntax, start..end))?;
        let fault = push_row(&mut self.columns, &self.keys, text, slots, start..end).err();
        scanner.skip_whitespace();
        let fault = fault.or_else(|| (scanner.at() != end).then(|| more_than_an_object(&scanner, start..end)));
        if let Some(fault) = fault {
            self.columns.iter_mut().for_each(|column| column.truncate(self.num_rows));
            return Err(fault);
        }
        self.num_rows += 1;
        Ok(true)
    }
}

/// Adds a value to each column.
fn push_row(
    columns: &mut [Column],
    keys: &[usize],
    text: &str,
    slots: &[Slot],
    record: Range<usize>,
) -> Result<(), RecordFault> {
    for (column, &key) in columns.iter_mut().zip(keys) {
        column.push(text, slots[key]).map_err(|fault| RecordFault {
            hint: fault.hint.map(Into::into),
            ..RecordFault::new(record.clone(), fault.reason, fault.message).in_column(format!(
                "{}{}",
                column.name(),
                fault.path
            ))
        })?;
    }
    Ok(())
}

fn more_than_an_object(scanner: &Scanner<'_>, record: Range<usize>) -> RecordFault {
    let fault = broken(&scanner.expected("the end of the record"), record);
    match scanner.peek() {
        Some(b'{') => fault.with_hint("a line, and a message, holds one object"),
        _ => fault,
    }
}

/// A record that is JSON and no object deserves more than a syntax error.
pub(super) fn check_object(scanner: &Scanner<'_>, record: Range<usize>) -> Result<(), RecordFault> {
    let what = match scanner.peek() {
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => return Ok(()),
    };
    let fault = RecordFault::new(record, Reason::Syntax, format!("{what} where an object is expected"));
    Err(fault.with_hint("JSON is read as one object a line; `jq -c '.[]'` makes lines of an array"))
}

/// Makes a fault of broken grammar in the record at `record`.
pub(super) fn broken(syntax: &Syntax, record: Range<usize>) -> RecordFault {
    let Range { start, end } = record;
    let message = format!("{} (byte {} of the record)", syntax.message, syntax.at - start);
    let fault = RecordFault::new(record, Reason::Syntax, message);
    if syntax.message.starts_with("nested deeper") {
        fault.with_hint("json.max-depth allows more")
    } else if syntax.at >= end {
        fault.with_hint("an object must be whole on one line")
    } else {
        fault
    }
}
