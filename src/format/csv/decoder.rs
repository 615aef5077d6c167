//! Decodes records: column by column where they are regular, else field by field by the strict scalar reference.
//!
//! The reference decides. A regular record is one of which both say the same; the first that isn't goes through the
//! reference, which takes it or says what is wrong with it, and behind it the columns go on. A value that a column
//! won't take is found and placed by the reference too.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};

use super::OnFieldCount;
use super::chunk::Chunk;
use super::columnar::{BadValue, Columnar, Indexing};
use super::messages::Lines;
use super::plan::{CsvColumn, CsvPlan};
use super::record::{BrokenQuotes, Scan, Span, text_of};
use crate::error::{Error, Result, quoted};
use crate::format::raw::invalid_utf8;
use crate::format::{RecordDecoder, RecordFault, decode_each_message, without_line_end};
use crate::schema::{ColumnBuilder, ValueOptions};

impl CsvPlan {
    /// Prepares a decoder for about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type that text can't become.
    pub(crate) fn decoder(&self, rows: usize) -> Result<CsvDecoder> {
        let values =
            ValueOptions { bytes_format: self.options.bytes_format, decimal_rounding: self.options.decimal_rounding };
        let builder = |column: &CsvColumn| ColumnBuilder::try_new(&column.field, values, rows);
        let columns = self.columns.iter().map(builder).collect::<Result<Vec<_>>>()?;
        let (plan, indexing) = (self.clone(), Indexing::detect());
        Ok(CsvDecoder { plan, columns, indexing, fields: Vec::new(), num_rows: 0 })
    }
}

/// Decodes whole records.
#[derive(Debug)]
pub(crate) struct CsvDecoder {
    plan: CsvPlan,
    columns: Vec<ColumnBuilder>,
    indexing: Indexing,
    fields: Vec<Span>,
    num_rows: usize,
}

impl CsvDecoder {
    /// By columns as far as records are regular. Without a fault it is all decoded.
    fn decode_by_column(
        &mut self,
        chunk: &Chunk<'_>,
        starts: &mut Vec<u64>,
    ) -> Result<Result<(), RecordFault>, BadValue> {
        let mut columnar = Columnar::new(self.indexing, *chunk);
        let mut at = 0;
        loop {
            let num_starts = starts.len();
            at = columnar.decode(&self.plan, &mut self.columns, at, starts)?;
            self.num_rows += starts.len() - num_starts;
            if at == chunk.bytes.len() {
                return Ok(Ok(()));
            }
            match self.record_at(chunk, at, starts) {
                Ok(next) => at = next,
                Err(fault) => return Ok(Err(fault)),
            }
        }
    }

    /// Record by record, from `at` on.
    fn decode_by_record(&mut self, chunk: &Chunk<'_>, mut at: usize, starts: &mut Vec<u64>) -> Result<(), RecordFault> {
        while at < chunk.bytes.len() {
            at = self.record_at(chunk, at, starts)?;
        }
        Ok(())
    }

    /// Decodes what starts at `start`, notes where if it is a row, and returns where the next one starts.
    fn record_at(&mut self, chunk: &Chunk<'_>, start: usize, starts: &mut Vec<u64>) -> Result<usize, RecordFault> {
        let (next, is_row) = self.record(chunk, start)?;
        if is_row {
            starts.push(start as u64);
        }
        Ok(next)
    }

    /// Messages, by columns as far as they are regular. Without a fault all are decoded; `None` if one isn't
    /// exactly one of the lines, or a value is bad.
    fn messages_by_column(
        &mut self,
        lines: &Lines,
        values: &[u8],
        ends: &[usize],
    ) -> Option<Result<(), (usize, RecordFault)>> {
        let mut columnar = Columnar::new(self.indexing, Chunk::new(&lines.bytes));
        let (mut starts, mut index) = (Vec::with_capacity(ends.len()), 0);
        loop {
            starts.clear();
            let at = lines.start(index);
            let end = columnar.decode(&self.plan, &mut self.columns, at, &mut starts).ok()?;
            if !lines.are_messages(index, &starts, end) {
                return None;
            }
            self.num_rows += starts.len();
            index += starts.len();
            let Some(message_end) = ends.get(index) else { return Some(Ok(())) };
            let message_start = if index == 0 { 0 } else { ends[index - 1] };
            if let Err(fault) = self.decode_message(&values[message_start..*message_end]) {
                return Some(Err((index, fault)));
            }
            index += 1;
        }
    }

    /// Forgets all rows.
    fn discard(&mut self) {
        for column in &mut self.columns {
            column.finish();
        }
        self.num_rows = 0;
    }

    /// Scans what starts at `start` and adds the row, if it is one. Returns where the next one starts, and
    /// whether a row was added.
    fn record(&mut self, chunk: &Chunk<'_>, start: usize) -> Result<(usize, bool), RecordFault> {
        let Chunk { bytes: data, text } = *chunk;
        self.fields.clear();
        let next = match self.plan.dialect.scan(data, start, true, &mut self.fields) {
            Scan::Record { next } => next,
            // With one column an empty line is a record with an empty field.
            Scan::Blank { next } if self.plan.num_fields == 1 => {
                self.fields.push(Span { start, end: start, quoted: false, escaped: false });
                next
            }
            Scan::Blank { next } | Scan::Comment { next } => return Ok((next, false)),
            Scan::Broken { next, why } => return Err(broken(data, start, next, why)),
            // Whole records only: an unfinished one at the end is a record.
            Scan::Incomplete => return Err(RecordFault::new(start, "the record isn't whole")),
        };
        if next <= text.len() {
            self.row(text, 0, start)?;
        } else {
            // A comment may hold bytes that aren't text, and records behind it may be good.
            let record = &data[start..next];
            let record = std::str::from_utf8(record).map_err(|e| invalid_utf8(start, record, &e))?;
            self.row(record, start, start)?;
        }
        Ok((next, true))
    }

    /// Adds the record that starts at `start`; `text` begins at `text_start`.
    fn row(&mut self, text: &str, text_start: usize, start: usize) -> Result<(), RecordFault> {
        let CsvPlan { dialect, options, columns, num_fields, .. } = &self.plan;
        let found = self.fields.len();
        let wrong_count = (found < *num_fields && options.missing_fields == OnFieldCount::Fail)
            || (found > *num_fields && options.extra_fields == OnFieldCount::Fail);
        if wrong_count {
            let (plural, key) = (
                if found == 1 { "" } else { "s" },
                if found < *num_fields { "csv.missing-fields=null" } else { "csv.extra-fields=ignore" },
            );
            let fault = RecordFault::new(start, format!("{found} field{plural} where {num_fields} are expected"));
            return Err(fault.with_hint(format!("{key} lets such records pass")));
        }
        for (column, CsvColumn { index, .. }) in self.columns.iter_mut().zip(columns.iter()) {
            let outcome = match self.fields.get(*index) {
                None => column.push_null().map_err(|fault| (fault, Cow::Borrowed(""))),
                Some(span) => {
                    let span = Span { start: span.start - text_start, end: span.end - text_start, ..*span };
                    let value = text_of(dialect, text, &span);
                    let is_null = (value.is_empty() && !column.is_text())
                        || (!span.quoted && options.null_literal.as_deref() == Some(&*value));
                    let outcome = if is_null { column.push_null() } else { column.push(&value) };
                    outcome.map_err(|fault| (fault, value))
                }
            };
            if let Err((fault, value)) = outcome {
                let message = fault.describe(value.as_bytes(), column.field());
                return Err(RecordFault::new(start, message).in_column(column.field().name()));
            }
        }
        self.num_rows += 1;
        Ok(())
    }
}

impl RecordDecoder for CsvDecoder {
    fn decode(&mut self, chunk: &[u8], starts: &mut Vec<u64>) -> Result<(), RecordFault> {
        let chunk = Chunk::new(chunk);
        let is_fresh = self.num_rows == 0;
        if !is_fresh || !Columnar::can_decode(&self.plan, chunk.bytes) {
            return self.decode_by_record(&chunk, 0, starts);
        }
        let num_starts = starts.len();
        let BadValue { start } = match self.decode_by_column(&chunk, starts) {
            Ok(outcome) => return outcome,
            Err(bad_value) => bad_value,
        };
        // Everything before was good, so the reference need not look at it again to find the same fault.
        self.decode_by_record(&chunk, start, starts)?;
        debug_assert!(false, "a column refused what the reference takes");
        self.discard();
        starts.truncate(num_starts);
        self.decode_by_record(&chunk, 0, starts)
    }

    fn decode_message(&mut self, message: &[u8]) -> Result<(), RecordFault> {
        let record = without_line_end(message);
        if record.is_empty() {
            return Err(RecordFault::new(0, "an empty message is no record"));
        }
        match self.record(&Chunk::new(record), 0)? {
            (next, true) if next == record.len() && !record.ends_with(b"\n") => Ok(()),
            (_, true) => Err(RecordFault::new(0, "the message holds several lines: one message is one record")),
            (_, false) => Err(RecordFault::new(0, "the message holds no record")),
        }
    }

    fn decode_messages(&mut self, values: &[u8], ends: &[usize]) -> Result<(), (usize, RecordFault)> {
        if self.num_rows == 0
            && let Some(lines) = Lines::join(values, ends)
            && Columnar::can_decode(&self.plan, &lines.bytes)
        {
            match self.messages_by_column(&lines, values, ends) {
                Some(outcome) => return outcome,
                None => self.discard(),
            }
        }
        decode_each_message(self, values, ends)
    }

    fn finish(&mut self) -> Result<RecordBatch> {
        let arrays = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.num_rows)));
        RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), arrays, &options)
            .map_err(|e| Error::Other { context: "csv records".into(), source: e.into() })
    }
}

fn broken(data: &[u8], start: usize, next: usize, why: BrokenQuotes) -> RecordFault {
    let line = data[start..next].trim_ascii_end();
    let message = match why {
        BrokenQuotes::TextBehind(at) => {
            format!("text behind a closing quote, at byte {} of the record: {}", at - start, quoted(line))
        }
        BrokenQuotes::StillOpen(at) => {
            format!("a quote opened at byte {} of the record isn't closed: {}", at - start, quoted(line))
        }
    };
    RecordFault::new(start, message)
}

#[cfg(any(test, fuzzing))]
impl CsvDecoder {
    /// Indexes in another way.
    pub(super) fn with_indexing(mut self, indexing: Indexing) -> Self {
        self.indexing = indexing;
        self
    }

    /// Decodes by the reference alone.
    pub(super) fn decode_by_reference(&mut self, chunk: &[u8], starts: &mut Vec<u64>) -> Result<(), RecordFault> {
        self.decode_by_record(&Chunk::new(chunk), 0, starts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CsvOptions;
    use arrow::util::pretty::pretty_format_batches;

    use super::*;
    use crate::schema::parse_schema;

    fn plan(schema: &str, options: &CsvOptions) -> CsvPlan {
        let schema = parse_schema(schema).unwrap();
        let columns =
            schema.fields().iter().enumerate().map(|(index, field)| CsvColumn { index, field: Arc::clone(field) });
        CsvPlan::new(options, columns.collect(), schema.fields().len())
    }

    /// The rows as a table's lines, and where they start.
    fn decode(schema: &str, options: &CsvOptions, chunk: &str) -> Result<(Vec<String>, Vec<u64>), RecordFault> {
        let mut decoder = plan(schema, options).decoder(8).unwrap();
        let mut starts = Vec::new();
        decoder.decode(chunk.as_bytes(), &mut starts)?;
        let batch = decoder.finish().unwrap();
        let options = arrow::util::display::FormatOptions::default().with_null("NULL");
        let table = arrow::util::pretty::pretty_format_batches_with_options(&[batch], &options).unwrap().to_string();
        let rows = table.lines().skip(3).filter(|line| line.starts_with('|'));
        Ok((rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>().join("|")).collect(), starts))
    }

    #[track_caller]
    fn check(schema: &str, options: &CsvOptions, chunk: &str, rows: &[&str], starts: &[u64]) {
        let got = decode(schema, options, chunk).unwrap();
        assert_eq!(
            (got.0.iter().map(String::as_str).collect::<Vec<_>>(), got.1.as_slice()),
            (rows.to_vec(), starts),
            "{chunk:?}"
        );
    }

    #[track_caller]
    fn fault(schema: &str, options: &CsvOptions, chunk: &str, start: usize, message: &str) {
        let fault = decode(schema, options, chunk).unwrap_err();
        let place = fault.column.as_ref().map_or_else(String::new, |column| format!("{column}: "));
        assert_eq!((fault.start, format!("{place}{}", fault.message)), (start, message.to_owned()), "{chunk:?}");
    }

    #[test]
    fn empty_is_null_for_all_but_text() {
        let plain = CsvOptions::default();
        check("i INT, s STRING", &plain, "1,a\n,\n\"\",\"\"\n", &["|1|a|", "|NULL||", "|NULL||"], &[0, 4, 6]);
        let nulls = CsvOptions { null_literal: Some("-".into()), ..CsvOptions::default() };
        check("i INT, s STRING", &nulls, "-,-\n1,\"-\"\n", &["|NULL|NULL|", "|1|-|"], &[0, 4]);
    }

    #[test]
    fn blank_lines_are_records_only_with_one_column() {
        let plain = CsvOptions::default();
        check("i INT, j INT", &plain, "\n1,2\n\r\n3,4", &["|1|2|", "|3|4|"], &[1, 7]);
        check("s STRING", &plain, "\na\n", &["||", "|a|"], &[0, 1]);
        check("i INT", &plain, "\n1\n", &["|NULL|", "|1|"], &[0, 1]);
    }

    #[test]
    fn faults_have_their_place() {
        let plain = CsvOptions::default();
        fault("id INT, v DOUBLE", &plain, "1,2\n2,x7\n", 4, "v: 'x7' is not a DOUBLE");
        fault("id INT, v DOUBLE", &plain, "1,2\n99999999999,1\n", 4, "id: '99999999999' is out of range for INT");
        fault("id INT, v DOUBLE", &plain, "1\n", 0, "1 field where 2 are expected");
        fault("id INT, v DOUBLE", &plain, "1,2,3\n", 0, "3 fields where 2 are expected");
        fault("id INT NOT NULL", &plain, "1\n\n", 2, "id: null in a NOT NULL column (INT)");
        fault(
            "id INT, s STRING",
            &plain,
            "1,\"open\n2,x\n",
            0,
            "a quote opened at byte 2 of the record isn't closed: '1,\\\"open'",
        );
        fault(
            "id INT, s STRING",
            &plain,
            "1,a\n2,\"a\"b\n",
            4,
            "text behind a closing quote, at byte 5 of the record: '2,\\\"a\\\"b'",
        );
    }

    #[test]
    fn lenient_counts_are_opted_into() {
        let lenient = CsvOptions {
            missing_fields: OnFieldCount::Lenient,
            extra_fields: OnFieldCount::Lenient,
            ..CsvOptions::default()
        };
        check("i INT, s STRING", &lenient, "1\n1,a,x\n", &["|1|NULL|", "|1|a|"], &[0, 2]);
    }

    #[test]
    fn unread_columns_are_not_converted_but_quotes_count_and_utf8_are_checked() {
        let schema = parse_schema("i INT").unwrap();
        let plan = CsvPlan::new(
            &CsvOptions::default(),
            vec![CsvColumn { index: 1, field: Arc::clone(&schema.fields()[0]) }],
            2,
        );
        let rows = |chunk: &[u8]| plan.decoder(1).unwrap().decode(chunk, &mut Vec::new());
        assert_eq!(rows(b"x,1\n"), Ok(()));
        assert!(rows(b"x,1,2\n").is_err());
        assert!(rows(b"\"x,1\n").is_err());
        let fault = rows(b"x,1\n\xff,1\n").unwrap_err();
        assert_eq!((fault.start, fault.message.as_str()), (4, "invalid UTF-8: byte 0xff at byte 0 of the record"));
    }

    // It panicked: the record behind was looked up in the text before.
    #[test]
    fn a_comment_may_hold_what_is_not_text() {
        let options = CsvOptions { comment: Some(b'#'), ..CsvOptions::default() };
        let mut decoder = plan("i INT, s STRING", &options).decoder(1).unwrap();
        let mut starts = Vec::new();
        assert_eq!(decoder.decode(b"1,a\n#\xff\n2,b\n", &mut starts), Ok(()));
        assert_eq!((starts, decoder.finish().unwrap().num_rows()), (vec![0, 7], 2));
        let fault = decoder.decode(b"1,a\n#\xff\n2,\xff\n", &mut Vec::new()).unwrap_err();
        assert_eq!((fault.start, fault.message.as_str()), (7, "invalid UTF-8: byte 0xff at byte 2 of the record"));
    }

    #[test]
    fn a_message_is_one_record() {
        let plan = plan("i INT, s STRING", &CsvOptions::default());
        let message = |message: &[u8]| plan.decoder(1).unwrap().decode_message(message).map_err(|fault| fault.message);
        for good in [b"1,a".as_slice(), b"1,a\n", b"1,a\r\n", b"1,\"a\nb\""] {
            assert_eq!(message(good), Ok(()));
        }
        for bad in [b"".as_slice(), b"\n", b"1,a\n2,b", b"1,a\n\n", b"1,\"a", b"1"] {
            assert!(message(bad).is_err(), "{bad:?}");
        }
        assert_eq!(message(b"1,a\n2,b"), Err("the message holds several lines: one message is one record".into()));
    }

    #[test]
    fn messages_end_where_they_end_whatever_their_lines_add_up_to() {
        let decode = |messages: &[&str]| {
            let ends: Vec<usize> =
                (1..=messages.len()).map(|count| messages[..count].iter().map(|message| message.len()).sum()).collect();
            let mut decoder = plan("s STRING", &CsvOptions::default()).decoder(8).unwrap();
            let outcome = decoder.decode_messages(messages.concat().as_bytes(), &ends);
            outcome.map(|()| decoder.finish().unwrap().num_rows()).map_err(|(index, fault)| (index, fault.message))
        };
        assert_eq!(decode(&["a", "\"b\nc\"\n", "6\" nail", "d\r\n", "e\r"]), Ok(5));
        assert_eq!(decode(&[]), Ok(0));
        let several = "the message holds several lines: one message is one record";
        // As lines of one chunk these would be three records, too.
        assert_eq!(decode(&["a\nb", "\"c", "d\""]), Err((0, several.to_owned())));
        assert_eq!(decode(&["a", "b", "c\n\n"]), Err((2, several.to_owned())));
        assert_eq!(decode(&["a", ""]), Err((1, "an empty message is no record".to_owned())));
    }

    #[test]
    fn columns_can_be_wanted_twice_or_not_at_all() {
        let schema = parse_schema("a INT, b STRING").unwrap();
        let twice = schema.fields().iter().map(|field| CsvColumn { index: 0, field: Arc::clone(field) }).collect();
        let mut decoder = CsvPlan::new(&CsvOptions::default(), twice, 1).decoder(1).unwrap();
        decoder.decode(b"7\n", &mut Vec::new()).unwrap();
        assert!(pretty_format_batches(&[decoder.finish().unwrap()]).unwrap().to_string().contains("| 7 | 7 |"));
        let mut decoder = CsvPlan::new(&CsvOptions::default(), vec![], 1).decoder(1).unwrap();
        decoder.decode(b"7\n8\n", &mut Vec::new()).unwrap();
        assert_eq!(decoder.finish().unwrap().num_rows(), 2);
    }
}
