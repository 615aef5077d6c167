//! A table for people: columns side by side, one line a row, as the rows come.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};

use super::values::{TextColumn, check_type};
use super::{Encoder, unpack};
use crate::error::Result;
use crate::sink::Header;

/// Characters of a value that are shown; a longer one is cut, with `…` at its end.
const MAX_CHARS: usize = 48;

/// The narrowest column: the first batch of a live stream may be one row, and tells little of those to come.
const MIN_CHARS: usize = 4;

/// What is shown for a null: text can be empty too.
const NULL: &str = "NULL";

/// Writes a table. The first batch decides the widths; a wider value later shifts its own line only.
#[derive(Debug)]
pub(in crate::sink) struct TableEncoder {
    header: Header,
    schema: Option<SchemaRef>,
    /// Characters of each column; empty before the first row.
    widths: Vec<usize>,
}

impl TableEncoder {
    pub(in crate::sink) fn new(header: Header) -> Self {
        Self { header, schema: None, widths: Vec::new() }
    }

    /// Fixes the widths by the cells of the first batch, and writes the header.
    fn write_header(&mut self, cells: &[Vec<String>], out: &mut Vec<u8>) {
        let Some(schema) = &self.schema else { return };
        let mut titles = Vec::with_capacity(schema.fields().len());
        for (index, field) in schema.fields().iter().enumerate() {
            let title = shown(field.name());
            let widest = cells.get(index).into_iter().flatten().map(|cell| cell.chars().count()).max().unwrap_or(0);
            let least = match field.data_type() {
                DataType::Timestamp(..) => 19,
                _ => MIN_CHARS,
            };
            self.widths.push(widest.max(title.chars().count()).max(least));
            titles.push(title);
        }
        if self.header == Header::Written {
            let rules: Vec<String> = self.widths.iter().map(|&width| "-".repeat(width)).collect();
            let numbers: Vec<bool> = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
            self.write_line(titles.iter().map(String::as_str), &numbers, out);
            self.write_line(rules.iter().map(String::as_str), &numbers, out);
        }
    }

    fn write_line<'a>(&self, cells: impl Iterator<Item = &'a str>, right: &[bool], out: &mut Vec<u8>) {
        let start = out.len();
        for ((index, cell), &width) in cells.enumerate().zip(&self.widths) {
            if index > 0 {
                out.extend_from_slice(b"  ");
            }
            let padding = std::iter::repeat_n(b' ', width.saturating_sub(cell.chars().count()));
            if right.get(index).is_some_and(|right| *right) {
                out.extend(padding);
                out.extend_from_slice(cell.as_bytes());
            } else {
                out.extend_from_slice(cell.as_bytes());
                out.extend(padding);
            }
        }
        while out.len() > start && out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'\n');
    }
}

impl Encoder for TableEncoder {
    fn begin(&mut self, schema: &SchemaRef, _out: &mut Vec<u8>) -> Result<()> {
        schema.fields().iter().try_for_each(|field| check_type(field))?;
        self.schema = Some(SchemaRef::clone(schema));
        Ok(())
    }

    fn rows(&mut self, batch: &RecordBatch, from: usize, _full_bytes: usize, out: &mut Vec<u8>) -> Result<usize> {
        let columns = unpack(batch)?;
        let cells: Vec<Vec<String>> =
            columns.iter().map(|column| (from..batch.num_rows()).map(|row| cell(column, row)).collect()).collect();
        if self.widths.is_empty() {
            self.write_header(&cells, out);
        }
        let numbers: Vec<bool> = columns.iter().map(TextColumn::is_number).collect();
        for row in 0..batch.num_rows() - from {
            self.write_line(cells.iter().map(|column| column[row].as_str()), &numbers, out);
        }
        Ok(batch.num_rows())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if self.widths.is_empty() {
            self.write_header(&[], out);
        }
        Ok(())
    }
}

fn cell(column: &TextColumn, row: usize) -> String {
    if column.is_null(row) {
        return NULL.to_owned();
    }
    let mut text = Vec::new();
    column.write_text(row, &mut text);
    shown(&String::from_utf8_lossy(&text))
}

/// A value as one short line that does nothing to a terminal.
fn shown(text: &str) -> String {
    let mut chars = text.chars().map(|c| match c {
        '\n' => '⏎',
        c if c.is_control() => '\u{fffd}',
        c => c,
    });
    let mut shown: String = chars.by_ref().take(MAX_CHARS).collect();
    if chars.next().is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch(ids: Vec<Option<i64>>, names: Vec<&str>) -> RecordBatch {
        let id: ArrayRef = Arc::new(Int64Array::from(ids));
        let name: ArrayRef = Arc::new(StringArray::from(names));
        RecordBatch::try_from_iter_with_nullable([("id", id, true), ("name", name, true)]).unwrap()
    }

    #[test]
    fn the_first_batch_decides_the_widths_and_the_header_stands_once() {
        let mut table = TableEncoder::new(Header::Written);
        let mut out = Vec::new();
        let first = batch(vec![Some(7), None], vec!["two\nlines \u{1b}[31m", ""]);
        table.begin(&first.schema(), &mut out).unwrap();
        table.rows(&first, 0, usize::MAX, &mut out).unwrap();
        let long = "x".repeat(60);
        table.rows(&batch(vec![Some(123_456)], vec![&long]), 0, usize::MAX, &mut out).unwrap();
        table.end(&mut out).unwrap();
        let expected = format!(
            "  id  name\n----  ---------------\n   7  two⏎lines \u{fffd}[31m\nNULL\n123456  {}…\n",
            "x".repeat(47)
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn without_rows_there_is_a_header() {
        let mut table = TableEncoder::new(Header::Written);
        let mut out = Vec::new();
        table.begin(&batch(vec![], vec![]).schema(), &mut out).unwrap();
        assert!(out.is_empty(), "widths aren't known yet");
        table.end(&mut out).unwrap();
        assert_eq!(out, b"  id  name\n----  ----\n");
    }
}
