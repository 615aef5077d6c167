//! Decodes records: column by column where they are regular, else field by field by the strict scalar reference.
//!
//! The reference decides. A regular record is one of which both say the same; the first that isn't goes through the
//! reference, which takes it or says what is wrong with it, and behind it the columns go on. A value that a column
//! won't take is found and placed by the reference too.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::DataType;

use super::chain::Chain;
use super::chunk::Chunk;
use super::columnar::{Columnar, Indexing};
use super::messages::Lines;
use super::plan::{CsvColumn, CsvPlan};
use super::record::{Scan, Span, record_text, text_of};
use super::{OnFieldCount, Undecodable};
use crate::error::{Error, Reason, Result};
use crate::format::{
    OnBadMessage, OnBadRecord, RecordDecoder, RecordFault, decode_each_message, each_message, message_range,
    without_line_end,
};
use crate::schema::{ColumnBuilder, ValueOptions};

impl CsvPlan {
    /// Prepares a decoder for about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type that text can't become.
    pub(crate) fn decoder(&self, rows: usize) -> Result<CsvDecoder> {
        let values = ValueOptions {
            bytes_format: self.options.bytes_format,
            decimal_rounding: self.options.decimal_rounding,
            timestamp_format: self.options.timestamp_format.as_ref(),
        };
        let builder = |column: &CsvColumn| ColumnBuilder::try_new(&column.field, values, rows);
        let columns = self.columns.iter().map(builder).collect::<Result<Vec<_>>>()?;
        let (plan, indexing) = (self.clone(), Indexing::detect());
        Ok(CsvDecoder { plan, columns, indexing, fields: Vec::new(), chain: Chain::default(), num_rows: 0 })
    }
}

/// Decodes whole records.
#[derive(Debug)]
pub(crate) struct CsvDecoder {
    plan: CsvPlan,
    columns: Vec<ColumnBuilder>,
    indexing: Indexing,
    fields: Vec<Span>,
    /// Of the chunk that is being decoded.
    chain: Chain,
    num_rows: usize,
}

impl CsvDecoder {
    /// Decodes records from `at` on: by columns as far as they are regular, one by one without `columnar`.
    fn decode_records(
        &mut self,
        chunk: &Chunk<'_>,
        mut columnar: Option<Columnar<'_>>,
        mut at: usize,
        starts: &mut Vec<u64>,
        on_bad: &mut OnBadRecord<'_>,
    ) -> usize {
        if at == 0 {
            self.chain.clear();
        }
        while at < chunk.bytes.len() {
            // Along the chain the index would go as far in vain, too.
            if let Some(columnar) = &mut columnar
                && !self.chain.reaches(at)
            {
                let num_starts = starts.len();
                at = columnar.decode(&self.plan, &mut self.columns, self.num_rows, at, starts);
                self.num_rows += starts.len() - num_starts;
                if at == chunk.bytes.len() {
                    break;
                }
            }
            match self.record(chunk, at) {
                Ok((next, is_row)) => {
                    if is_row {
                        starts.push(at as u64);
                    }
                    at = next;
                }
                Err(fault) => {
                    at = fault.end;
                    if on_bad(fault).is_break() {
                        break;
                    }
                }
            }
        }
        at
    }

    /// Decodes messages from `first` on, by columns as far as they are regular.
    fn messages_by_column(
        &mut self,
        lines: &Lines<'_>,
        values: &[u8],
        ends: &[usize],
        first: usize,
        on_bad: &mut OnBadMessage<'_>,
    ) -> usize {
        let mut columnar = Columnar::new(self.indexing, Chunk::new(&lines.bytes));
        let (mut starts, mut index) = (Vec::with_capacity(ends.len() - first), first);
        while index < ends.len() {
            starts.clear();
            let line = index - first;
            let end = columnar.decode(&self.plan, &mut self.columns, self.num_rows, lines.start(line), &mut starts);
            if !lines.are_messages(line, &starts, end) {
                self.columns.iter_mut().for_each(|column| column.truncate(self.num_rows));
                return each_message(values, ends, index, on_bad, |message| self.text_message(message));
            }
            self.num_rows += starts.len();
            index += starts.len();
            if index == ends.len() {
                break;
            }
            if let Err(fault) = self.text_message(&values[message_range(ends, index)])
                && on_bad(index, fault).is_break()
            {
                return index + 1;
            }
            index += 1;
        }
        ends.len()
    }

    /// Decodes messages that are UTF-8 from `first` on.
    fn text_messages(&mut self, values: &[u8], ends: &[usize], first: usize, on_bad: &mut OnBadMessage<'_>) -> usize {
        match Lines::of(values, ends, first) {
            Some(lines) if Columnar::can_decode(&self.plan, &lines.bytes) => {
                self.messages_by_column(&lines, values, ends, first, on_bad)
            }
            _ => each_message(values, ends, first, on_bad, |message| self.text_message(message)),
        }
    }

    /// Decodes a message that is UTF-8.
    fn text_message(&mut self, message: &[u8]) -> Result<(), RecordFault> {
        let record = without_line_end(message);
        let fault = |message: &str| RecordFault::new(0..record.len(), Reason::Message, message);
        if record.is_empty() {
            return Err(fault("an empty message is no record"));
        }
        self.chain.clear();
        match self.scan(record, 0)? {
            (next, true) if next == record.len() && !record.ends_with(b"\n") => {
                self.row_of(&Chunk::new(record), 0..next)
            }
            (_, true) => Err(fault("the message holds several lines: one message is one record")),
            (_, false) => Err(fault("the message holds no record")),
        }
    }

    /// Scans what starts at `start` and adds the row, if it is one. Returns where the next one starts, and
    /// whether a row was added.
    fn record(&mut self, chunk: &Chunk<'_>, start: usize) -> Result<(usize, bool), RecordFault> {
        let (next, is_row) = self.scan(chunk.bytes, start)?;
        if is_row {
            self.row_of(chunk, start..next)?;
        }
        Ok((next, is_row))
    }

    /// Finds the fields of what starts at `start`. Returns where the next one starts, and whether it is a row.
    fn scan(&mut self, data: &[u8], start: usize) -> Result<(usize, bool), RecordFault> {
        self.fields.clear();
        match self.plan.dialect.scan(data, start, true, &mut self.fields, &mut self.chain) {
            Scan::Record { next } => Ok((next, true)),
            // With one column an empty line is a record with an empty field.
            Scan::Blank { next } if self.plan.num_fields == 1 => {
                self.fields.push(Span { start, end: start, quoted: false, escaped: false });
                Ok((next, true))
            }
            Scan::Blank { next } | Scan::Comment { next } => Ok((next, false)),
            Scan::Broken { next, why } => Err(why.fault(data, start..next)),
            // Whole records only: an unfinished one at the end is a record.
            Scan::Incomplete => Err(RecordFault::new(start..data.len(), Reason::Quotes, "the record isn't whole")),
        }
    }

    /// Adds the record that was scanned last.
    fn row_of(&mut self, chunk: &Chunk<'_>, record: Range<usize>) -> Result<(), RecordFault> {
        if record.end <= chunk.text.len() {
            return self.row(chunk.text, 0, record);
        }
        // A comment may hold bytes that aren't text, and records behind it may be good.
        let (start, bytes) = (record.start, &chunk.bytes[record.clone()]);
        let text = record_text(bytes, record.clone())?;
        self.row(text, start, record)
    }

    /// Adds the record that stands at `record`; `text` begins at `text_start`.
    fn row(&mut self, text: &str, text_start: usize, record: Range<usize>) -> Result<(), RecordFault> {
        let CsvPlan { options, num_fields, .. } = &self.plan;
        let found = self.fields.len();
        let wrong_count = (found < *num_fields && options.missing_fields == OnFieldCount::Fail)
            || (found > *num_fields && options.extra_fields == OnFieldCount::Fail);
        if wrong_count {
            let (plural, verb) = (if found == 1 { "" } else { "s" }, if *num_fields == 1 { "is" } else { "are" });
            let message = format!("{found} field{plural} where {num_fields} {verb} expected");
            let hint = match found < *num_fields {
                _ if *num_fields == 1 => {
                    "csv.field-delimiter says what stands between fields, and csv.allow-comments that lines with # are none"
                }
                true => "csv.missing-fields=null lets such records pass",
                false => "csv.extra-fields=ignore lets such records pass",
            };
            return Err(RecordFault::new(record, Reason::Fields, message).with_hint(hint));
        }
        for (place, column) in self.columns.iter_mut().enumerate() {
            let value = value(&self.plan, &self.fields, place, text, text_start, column.is_text());
            if let Err(fault) = column.extend(std::iter::once(value.as_deref())) {
                let value = value.unwrap_or_default();
                let message = fault.describe(value.as_bytes(), column.field());
                let mut fault = RecordFault::new(record, fault.reason(), message).in_column(column.field().name());
                fault.hint = hint(&self.plan, fault.reason, &value, column.field().data_type()).map(Into::into);
                self.columns.iter_mut().for_each(|column| column.truncate(self.num_rows));
                return Err(fault);
            }
        }
        self.num_rows += 1;
        Ok(())
    }
}

/// What may help against a value that is none of its type.
fn hint(plan: &CsvPlan, reason: Reason, value: &str, data_type: &DataType) -> Option<&'static str> {
    const NULLS: [&str; 7] = ["null", "\\n", "na", "n/a", "nan", "none", "-"];
    let is_timestamp = matches!(data_type, DataType::Timestamp(..));
    if reason != Reason::Type {
        None
    } else if plan.options.null_literal.is_none() && NULLS.contains(&value.to_ascii_lowercase().as_str()) {
        Some("csv.null-literal says which text is null")
    } else if is_timestamp && plan.options.timestamp_format.is_none() {
        Some("csv.timestamp-format says how timestamps are written")
    } else {
        None
    }
}

/// What the column at `place` reads in a record of these fields; `None` is null.
fn value<'a>(
    plan: &CsvPlan,
    fields: &[Span],
    place: usize,
    text: &'a str,
    text_start: usize,
    is_text: bool,
) -> Option<Cow<'a, str>> {
    let span = fields.get(plan.columns[place].index)?;
    let value = text_of(&plan.dialect, text, &span.moved_down(text_start));
    let is_null =
        (value.is_empty() && !is_text) || (!span.quoted && plan.options.null_literal.as_deref() == Some(&*value));
    (!is_null).then_some(value)
}

impl RecordDecoder for CsvDecoder {
    fn decode(&mut self, chunk: &[u8], at: usize, starts: &mut Vec<u64>, on_bad: &mut OnBadRecord<'_>) -> usize {
        let chunk = Chunk::new(chunk);
        let columnar = Columnar::can_decode(&self.plan, chunk.bytes).then(|| Columnar::new(self.indexing, chunk));
        self.decode_records(&chunk, columnar, at, starts, on_bad)
    }

    fn decode_message(&mut self, message: &[u8]) -> Result<(), RecordFault> {
        let charset = self.plan.options.charset;
        if charset.is_utf8() {
            return self.text_message(message);
        }
        let mut text = String::new();
        charset.decode(message, &mut text).map_err(|Undecodable { at, .. }| {
            let byte = usize::try_from(at).ok().and_then(|at| message.get(at)).copied().unwrap_or_default();
            let told = format!("not {charset}: byte 0x{byte:02x} at byte {at} of the message");
            RecordFault::new(0..message.len(), Reason::Encoding, told)
        })?;
        self.text_message(text.as_bytes())
    }

    fn decode_messages(&mut self, values: &[u8], ends: &[usize], first: usize, on_bad: &mut OnBadMessage<'_>) -> usize {
        let charset = self.plan.options.charset;
        if charset.is_utf8() {
            return self.text_messages(values, ends, first, on_bad);
        }
        match charset.decode_messages(values, ends, first) {
            Some((texts, ends)) => self.text_messages(&texts, &ends, first, on_bad),
            None => decode_each_message(self, values, ends, first, on_bad),
        }
    }

    fn finish(&mut self) -> Result<RecordBatch> {
        let arrays = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.num_rows)));
        RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), arrays, &options)
            .map_err(|e| Error::Other { context: "csv records".into(), source: e.into() })
    }
}

#[cfg(any(test, fuzzing))]
impl CsvDecoder {
    /// Indexes in another way.
    pub(super) fn with_indexing(mut self, indexing: Indexing) -> Self {
        self.indexing = indexing;
        self
    }

    /// Decodes by the reference alone.
    pub(super) fn decode_by_reference(
        &mut self,
        chunk: &[u8],
        starts: &mut Vec<u64>,
        on_bad: &mut OnBadRecord<'_>,
    ) -> usize {
        self.decode_records(&Chunk::new(chunk), None, 0, starts, on_bad)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CsvOptions;
    use arrow::util::pretty::pretty_format_batches;

    use std::ops::ControlFlow;

    use super::*;
    use crate::format::{DecodeStrictly, join_messages};
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
        decoder.decode_all(chunk.as_bytes(), &mut starts)?;
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
            "the quote at byte 2 of the record isn't closed: '1,\"open'",
        );
        fault(
            "id INT, s STRING",
            &plain,
            "1,a\n2,\"a\"b\n",
            4,
            "text behind a closing quote, at byte 5 of the record: '2,\"a\"b'",
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
        let rows = |chunk: &[u8]| plan.decoder(1).unwrap().decode_all(chunk, &mut Vec::new());
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
        assert_eq!(decoder.decode_all(b"1,a\n#\xff\n2,b\n", &mut starts), Ok(()));
        assert_eq!((starts, decoder.finish().unwrap().num_rows()), (vec![0, 7], 2));
        let fault = decoder.decode_all(b"1,a\n#\xff\n2,\xff\n", &mut Vec::new()).unwrap_err();
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
    fn a_message_is_decoded_by_itself_from_its_charset() {
        let rows = |charset: &str, message: &[u8]| {
            let options = CsvOptions { charset: charset.parse().unwrap(), ..CsvOptions::default() };
            let mut decoder = plan("i INT, s STRING", &options).decoder(1).unwrap();
            decoder.decode_message(message).map_err(|fault| fault.message)?;
            let batch = decoder.finish().unwrap();
            Ok::<_, String>(
                arrow::util::pretty::pretty_format_columns("s", &[Arc::clone(batch.column(1))]).unwrap().to_string(),
            )
        };
        for (charset, message) in [
            ("latin1", b"1,caf\xe9\n".as_slice()),
            ("utf-16le", b"1\0,\0c\0a\0f\0\xe9\0\r\0\n\0"),
            ("utf-16be", b"\xfe\xff\x001\0,\0c\0a\0f\0\xe9"),
        ] {
            assert!(rows(charset, message).unwrap().contains("| café |"), "{charset}");
        }
        let fault = rows("utf-16le", b"1\0,\0c").unwrap_err();
        assert_eq!(fault, "not UTF-16LE: byte 0x63 at byte 4 of the message");
        assert!(rows("latin1", b"").unwrap_err().contains("an empty message"));
    }

    #[test]
    fn messages_end_where_they_end_whatever_their_lines_add_up_to() {
        let decode = |messages: &[&str]| {
            let (values, ends) = join_messages(messages);
            let mut decoder = plan("s STRING", &CsvOptions::default()).decoder(8).unwrap();
            let mut first = None;
            decoder.decode_messages(&values, &ends, 0, &mut |index, fault| {
                first = Some((index, fault.message));
                ControlFlow::Break(())
            });
            first.map_or_else(|| Ok(decoder.finish().unwrap().num_rows()), Err)
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
        decoder.decode_all(b"7\n", &mut Vec::new()).unwrap();
        assert!(pretty_format_batches(&[decoder.finish().unwrap()]).unwrap().to_string().contains("| 7 | 7 |"));
        let mut decoder = CsvPlan::new(&CsvOptions::default(), vec![], 1).decoder(1).unwrap();
        decoder.decode_all(b"7\n8\n", &mut Vec::new()).unwrap();
        assert_eq!(decoder.finish().unwrap().num_rows(), 2);
    }
}
