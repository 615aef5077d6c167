//! Whole records to columns.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::JsonOptions;
use super::column::Column;
use super::keys::Members;
use super::scan::{Scanner, Slot};
use super::shape::{Seen, Shape};
use super::strict::StrictDecoder;
use crate::error::{Error, Reason, Result};
use crate::format::raw::invalid_utf8;
use crate::format::{
    OnBadMessage, OnBadRecord, RecordDecoder, RecordFault, decode_each_message, message_range, without_line_end,
};

/// Rows whose values are found before they are converted column by column: enough that each column's loop pays, few
/// enough that their text is still in the nearest cache.
const BLOCK_ROWS: usize = 256;

/// Which keys become which columns. Made once per source; each chunk gets a decoder of its own.
#[derive(Debug, Clone)]
pub(crate) struct JsonPlan {
    schema: SchemaRef,
    members: Members,
    /// For each column the index of its key among the members.
    keys: Arc<[usize]>,
    options: JsonOptions,
}

impl JsonPlan {
    /// Wants for each column the value of a key, as the field's type. Batches have these fields in this order.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type that JSON can't become.
    pub(crate) fn try_new(columns: Vec<(String, FieldRef)>, options: &JsonOptions) -> Result<Self> {
        let mut names: Vec<String> = Vec::new();
        let mut keys = Vec::with_capacity(columns.len());
        let mut fields = Vec::with_capacity(columns.len());
        for (key, field) in columns {
            Column::try_new(&field, options, 0)?;
            fields.push(field);
            let known = names.iter().position(|name| *name == key);
            keys.push(known.unwrap_or(names.len()));
            if known.is_none() {
                names.push(key);
            }
        }
        let members = Members::new(names, options.case_insensitive_names);
        Ok(Self { schema: Arc::new(Schema::new(fields)), members, keys: keys.into(), options: *options })
    }

    /// Begins to decode about `rows` rows.
    ///
    /// # Errors
    /// None that [`Self::try_new`] wouldn't have had.
    pub(crate) fn decoder(&self, rows: usize) -> Result<JsonDecoder> {
        Ok(JsonDecoder {
            plan: self.clone(),
            columns: self.columns(rows)?,
            num_rows: 0,
            shape: Shape::default(),
            seen: Vec::new(),
            block: Block { num_keys: self.members.num_keys(), ..Block::default() },
        })
    }

    /// A decoder that tells what is wrong with a record.
    pub(super) fn strict_decoder(&self) -> Result<StrictDecoder> {
        Ok(StrictDecoder::new(self.members.clone(), &self.keys, self.columns(1)?, self.options.max_depth))
    }

    fn columns(&self, rows: usize) -> Result<Vec<Column>> {
        self.schema.fields().iter().map(|field| Column::try_new(field, &self.options, rows)).collect()
    }
}

/// Decodes lines, or messages, of one object each.
///
/// Values are found record by record, by the shape of the records before where that is enough and by the strict
/// scanner where not; then they are converted column by column. A record that either refuses is given to the
/// [`StrictDecoder`], whose fault is the one that is told.
#[derive(Debug)]
pub(crate) struct JsonDecoder {
    plan: JsonPlan,
    columns: Vec<Column>,
    num_rows: usize,
    shape: Shape,
    /// The members of one record, kept for its memory.
    seen: Vec<Seen>,
    block: Block,
}

/// Places of values that aren't converted yet.
#[derive(Debug, Default)]
struct Block {
    /// Row by row, in each the keys that are wanted.
    slots: Vec<Slot>,
    num_keys: usize,
    num_rows: usize,
}

impl Block {
    /// The values of the row behind the last one, all missing yet.
    fn next_row(&mut self) -> &mut [Slot] {
        let start = self.num_rows * self.num_keys;
        self.slots.truncate(start);
        self.slots.resize(start + self.num_keys, Slot::default());
        &mut self.slots[start..]
    }

    /// The values of one key.
    fn values(&self, key: usize) -> impl Iterator<Item = Slot> + Clone {
        self.slots.iter().skip(key).step_by(self.num_keys.max(1)).copied()
    }
}

impl JsonDecoder {
    /// Reads the record that begins at `at` into the block's next row, and returns where it ends; `None` if it has a
    /// shape of its own, or a fault.
    #[inline]
    fn read_by_shape(&mut self, text: &str, at: usize) -> Option<usize> {
        let end = self.shape.read(text, at, self.plan.options.max_depth, self.block.next_row())?;
        self.block.num_rows += 1;
        Some(end)
    }

    /// Reads the record at `start..end` into the block's next row, and learns its shape; `false` if there are only
    /// blanks, `None` if it has a fault.
    #[cold]
    fn read_strictly(&mut self, text: &str, start: usize, end: usize) -> Option<bool> {
        let mut scanner = Scanner::new(text, start, end, self.plan.options.max_depth);
        scanner.skip_whitespace();
        if scanner.at() == end {
            return Some(false);
        }
        self.seen.clear();
        let seen = |member| self.seen.push(member);
        let slots = self.plan.members.read_seen(&mut scanner, text, 0, seen).ok()?;
        scanner.skip_whitespace();
        if scanner.at() != end {
            return None;
        }
        self.block.next_row().copy_from_slice(slots);
        self.block.num_rows += 1;
        self.shape.learn(text, &self.seen);
        Some(true)
    }

    /// Converts the values of the block's rows from `first` on, up to the first bad row; its index if there is one.
    fn convert(&mut self, text: &str, first: usize) -> Option<usize> {
        let num_rows = self.block.num_rows - first;
        let mut num_good = num_rows;
        for (column, &key) in self.columns.iter_mut().zip(self.plan.keys.iter()) {
            // In columns behind one with a fault only an earlier fault counts.
            let values = self.block.values(key).skip(first).take(num_good);
            if !column.extend(text, values) {
                num_good = column.num_rows() - self.num_rows;
            }
        }
        self.num_rows += num_good;
        if num_good == num_rows {
            return None;
        }
        self.columns.iter_mut().for_each(|column| column.truncate(self.num_rows));
        Some(first + num_good)
    }

    /// Converts the block's values. Its records are the last of `starts`; those of bad ones are taken out. Returns where
    /// the next record starts if `on_bad` stops.
    fn convert_records(
        &mut self,
        text: &str,
        base: usize,
        starts: &mut Vec<u64>,
        on_bad: &mut OnBadRecord<'_>,
    ) -> ControlFlow<usize> {
        let mut first = 0;
        while let Some(row) = self.convert(text, first) {
            let place = starts.len() - (self.block.num_rows - row);
            let start = starts.remove(place) as usize - base;
            let fault = self.fault(text, base, start, line_end(text, start));
            let end = fault.end;
            if on_bad(fault).is_break() {
                starts.truncate(place);
                self.block.num_rows = 0;
                return ControlFlow::Break(end);
            }
            first = row + 1;
        }
        self.block.num_rows = 0;
        ControlFlow::Continue(())
    }

    /// Converts the values of the block, whose rows are the messages from `first` on, at `ends` of `text`. Breaks with the
    /// index of the next message if `on_bad` stops.
    fn convert_messages(
        &mut self,
        text: &str,
        ends: &[usize],
        first: usize,
        on_bad: &mut OnBadMessage<'_>,
    ) -> ControlFlow<usize> {
        let mut next_row = 0;
        while let Some(row) = self.convert(text, next_row) {
            let message = &text[message_range(ends, first + row)];
            let message = &message[..without_line_end(message.as_bytes()).len()];
            if on_bad(first + row, self.fault(message, 0, 0, message.len())).is_break() {
                self.block.num_rows = 0;
                return ControlFlow::Break(first + row + 1);
            }
            next_row = row + 1;
        }
        self.block.num_rows = 0;
        ControlFlow::Continue(())
    }

    /// Decodes messages from `first` on that are text, as many at once as have a known shape. Breaks with the index of
    /// the next message if `on_bad` stops.
    fn text_messages(
        &mut self,
        text: &str,
        ends: &[usize],
        first: usize,
        on_bad: &mut OnBadMessage<'_>,
    ) -> ControlFlow<usize> {
        let mut block_first = first;
        for index in first..ends.len() {
            let range = message_range(ends, index);
            // By its shape a record ends at a line end; a message may go on behind it.
            let end = range.start + without_line_end(&text.as_bytes()[range.clone()]).len();
            let max_depth = self.plan.options.max_depth;
            if self.shape.read(&text[..end], range.start, max_depth, self.block.next_row()) == Some(end) {
                self.block.num_rows += 1;
                if self.block.num_rows == BLOCK_ROWS {
                    self.convert_messages(text, ends, block_first, on_bad)?;
                    block_first = index + 1;
                }
                continue;
            }
            // Those before have their turn first.
            self.convert_messages(text, ends, block_first, on_bad)?;
            block_first = index + 1;
            if let Err(fault) = self.decode_message(text[range].as_bytes())
                && on_bad(index, fault).is_break()
            {
                return ControlFlow::Break(index + 1);
            }
        }
        self.convert_messages(text, ends, block_first, on_bad)
    }

    /// What is wrong with the record at `start..end` of `text`, which begins `base` bytes behind the start of the chunk.
    #[cold]
    fn fault(&self, text: &str, base: usize, start: usize, end: usize) -> RecordFault {
        let fault = match self.plan.strict_decoder().map(|mut strict| strict.record(text, start, end)) {
            Ok(Err(fault)) => fault,
            // The strict decoder takes no more than the fast one, so this doesn't come up.
            _ => {
                let message = "it can't be decoded, and nothing is wrong with it: this is a bug";
                RecordFault::new(start..end, Reason::Syntax, message)
            }
        };
        // The line end is the record's.
        let end = text.len().min(end + 1);
        RecordFault { start: base + start, end: base + end, ..fault }
    }

    /// Decodes the records of `text` from its start on. It begins at `base` of the chunk. Breaks where the next record
    /// starts if `on_bad` stops.
    fn decode_text(
        &mut self,
        text: &str,
        base: usize,
        starts: &mut Vec<u64>,
        on_bad: &mut OnBadRecord<'_>,
    ) -> ControlFlow<usize> {
        let mut at = 0;
        while at < text.len() {
            let start = at;
            if let Some(end) = self.read_by_shape(text, start) {
                starts.push((base + start) as u64);
                at = end;
            } else {
                let end = line_end(text, start);
                match self.read_strictly(text, start, end) {
                    Some(true) => starts.push((base + start) as u64),
                    Some(false) => {}
                    None => {
                        // Those before have their turn first.
                        self.convert_records(text, base, starts, on_bad)?;
                        let fault = self.fault(text, base, start, end);
                        let next = fault.end;
                        if on_bad(fault).is_break() {
                            return ControlFlow::Break(next);
                        }
                    }
                }
                at = end + 1;
            }
            if self.block.num_rows == BLOCK_ROWS {
                self.convert_records(text, base, starts, on_bad)?;
            }
        }
        self.convert_records(text, base, starts, on_bad)
    }
}

/// Where the line ends in which byte `at` is.
fn line_end(text: &str, at: usize) -> usize {
    memchr::memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |len| at + len)
}

/// The text of `chunk` up to the first record that isn't UTF-8, and the fault of that record.
pub(super) fn valid_records(chunk: &[u8]) -> (&str, Option<RecordFault>) {
    match std::str::from_utf8(chunk) {
        Ok(text) => (text, None),
        Err(e) => {
            let valid = &chunk[..e.valid_up_to()];
            let start = memchr::memrchr(b'\n', valid).map_or(0, |end| end + 1);
            let end = memchr::memchr(b'\n', &chunk[valid.len()..]).map_or(chunk.len(), |len| valid.len() + len + 1);
            let record = &chunk[start..];
            let fault = std::str::from_utf8(record).err().map(|e| invalid_utf8(start..end, record, &e));
            (std::str::from_utf8(&chunk[..start]).unwrap_or_default(), fault)
        }
    }
}

impl RecordDecoder for JsonDecoder {
    fn decode(&mut self, chunk: &[u8], at: usize, starts: &mut Vec<u64>, on_bad: &mut OnBadRecord<'_>) -> usize {
        let mut base = at;
        loop {
            let (text, fault) = valid_records(&chunk[base..]);
            if let ControlFlow::Break(next) = self.decode_text(text, base, starts, on_bad) {
                return next;
            }
            let Some(fault) = fault else { return chunk.len() };
            let fault = RecordFault { start: base + fault.start, end: base + fault.end, ..fault };
            base = fault.end;
            if on_bad(fault).is_break() {
                return base;
            }
        }
    }

    fn decode_message(&mut self, message: &[u8]) -> Result<(), RecordFault> {
        let message = without_line_end(message);
        let whole = 0..message.len();
        let text = std::str::from_utf8(message).map_err(|e| invalid_utf8(whole.clone(), message, &e))?;
        // By its shape a record ends at a line end; a message may go on behind it.
        if self.read_by_shape(text, 0) != Some(text.len()) {
            self.block.num_rows = 0;
            match self.read_strictly(text, 0, text.len()) {
                Some(true) => {}
                Some(false) => return Err(RecordFault::new(whole, Reason::Message, "the message is empty")),
                None => return Err(self.fault(text, 0, 0, text.len())),
            }
        }
        let outcome = self.convert(text, 0);
        self.block.num_rows = 0;
        outcome.map_or(Ok(()), |_| Err(self.fault(text, 0, 0, text.len())))
    }

    fn decode_messages(&mut self, values: &[u8], ends: &[usize], first: usize, on_bad: &mut OnBadMessage<'_>) -> usize {
        let Ok(text) = std::str::from_utf8(values) else {
            return decode_each_message(self, values, ends, first, on_bad);
        };
        match self.text_messages(text, ends, first, on_bad) {
            ControlFlow::Break(next) => next,
            ControlFlow::Continue(()) => ends.len(),
        }
    }

    fn finish(&mut self) -> Result<RecordBatch> {
        let failed = |e| Error::Other { context: "JSON records".into(), source: Box::new(e) };
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.num_rows)));
        let columns = self.columns.iter_mut().map(Column::finish).collect::<Result<_, _>>().map_err(failed)?;
        RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), columns, &options).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, AsArray};
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use proptest::prelude::*;

    use super::*;
    use crate::format::{DecodeStrictly, join_messages};
    use crate::schema::parse_schema;

    fn plan(schema: &str, options: JsonOptions) -> JsonPlan {
        let schema = parse_schema(schema).unwrap();
        let columns = schema.fields().iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
        JsonPlan::try_new(columns, &options).unwrap()
    }

    fn decode(schema: &str, records: &[u8], options: JsonOptions) -> Result<(RecordBatch, Vec<u64>), RecordFault> {
        let mut decoder = plan(schema, options).decoder(4).unwrap();
        let mut starts = Vec::new();
        decoder.decode_all(records, &mut starts)?;
        let batch = decoder.finish().unwrap();
        assert_eq!(batch.num_rows(), starts.len());
        Ok((batch, starts))
    }

    fn shown(array: &ArrayRef, row: usize) -> String {
        let options = FormatOptions::default().with_null("null");
        ArrayFormatter::try_new(array, &options).unwrap().value(row).to_string()
    }

    fn one(sql: &str, value: &str, options: JsonOptions) -> Result<String, String> {
        let record = format!("{{\"c\":{value}}}");
        let decoded = decode(&format!("c {sql}"), record.as_bytes(), options);
        decoded.map(|(batch, _)| shown(batch.column(0), 0)).map_err(|fault| fault.message)
    }

    #[track_caller]
    fn check(sql: &str, rows: &[(&str, Result<&str, &str>)]) {
        for (value, expected) in rows {
            let got = one(sql, value, JsonOptions::default());
            assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{value} as {sql}");
        }
    }

    #[test]
    fn numbers_are_exact_and_of_their_type() {
        check(
            "BIGINT",
            &[
                ("9223372036854775807", Ok("9223372036854775807")),
                ("-9223372036854775808", Ok("-9223372036854775808")),
                ("9223372036854775808", Err("'9223372036854775808' is out of range for BIGINT")),
                ("-0", Ok("0")),
                ("1.0", Err("'1.0' is not a BIGINT")),
                ("1e3", Err("'1e3' is not a BIGINT")),
                ("\"1\"", Err("the string '1' is not a BIGINT")),
                ("true", Err("'true' is not a BIGINT")),
                ("[1]", Err("an array is not a BIGINT")),
                ("{}", Err("an object is not a BIGINT")),
                ("null", Ok("null")),
            ],
        );
        check(
            "DOUBLE",
            &[
                ("0.1", Ok("0.1")),
                ("1e400", Ok("inf")),
                ("-1E-400", Ok("-0.0")),
                ("\"NaN\"", Ok("NaN")),
                ("\"Infinity\"", Ok("inf")),
                ("\"-Infinity\"", Ok("-inf")),
                ("\"inf\"", Err("the string 'inf' is not a DOUBLE")),
                ("\"1.5\"", Err("the string '1.5' is not a DOUBLE")),
            ],
        );
        check(
            "DECIMAL(20,2)",
            &[
                ("123456789012345678.25", Ok("123456789012345678.25")),
                ("\"0.10\"", Ok("0.10")),
                ("1.5e1", Ok("15.00")),
                ("0.125", Err("'0.125' has more digits than DECIMAL(20,2) holds")),
                ("true", Err("'true' is not a DECIMAL(20,2)")),
            ],
        );
    }

    #[test]
    fn text_and_what_is_written_as_text() {
        check(
            "STRING",
            &[
                ("\"\"", Ok("")),
                (r#""a\n\u00e9\ud83d\ude00""#, Ok("a\né😀")),
                (r#""\u0000""#, Ok("\0")),
                ("1", Err("the number '1' is not a STRING")),
                ("false", Err("'false' is not a STRING")),
                ("{\"a\":1}", Err("an object is not a STRING")),
            ],
        );
        check(
            "BOOLEAN",
            &[
                ("true", Ok("true")),
                ("1", Err("'1' is not a BOOLEAN")),
                ("\"true\"", Err("the string 'true' is not a BOOLEAN")),
            ],
        );
        check(
            "DATE",
            &[
                ("\"2024-02-29\"", Ok("2024-02-29")),
                (r#""2024\u002d02-29""#, Ok("2024-02-29")),
                ("5", Err("'5' is not a DATE")),
            ],
        );
        check("TIMESTAMP(3)", &[("\"2023-08-15T14:37:35.4119+02:00\"", Ok("2023-08-15T12:37:35.411"))]);
        check("TIME(0)", &[("\"14:37:35\"", Ok("14:37:35"))]);
        check("BYTES", &[("\"AQL/\"", Ok("0102ff")), ("\"*\"", Err("'*' is not a BYTES"))]);
    }

    #[test]
    fn coercion_is_asked_for() {
        let coerce = JsonOptions { coerce: true, ..JsonOptions::default() };
        for (sql, value, expected) in [
            ("INT", "\"12\"", Ok("12")),
            ("DOUBLE", "\"1.5\"", Ok("1.5")),
            ("BOOLEAN", "\"true\"", Ok("true")),
            ("STRING", "1.50", Ok("1.50")),
            ("STRING", "true", Ok("true")),
            ("INT", "\"x\"", Err("'x' is not an INT")),
            ("INT", "true", Err("'true' is not an INT")),
            ("STRING", "[1]", Err("an array is not a STRING")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(one(sql, value, coerce), expected, "{value} as {sql}");
        }
    }

    #[test]
    fn nested_values_follow_the_same_rules() {
        check("ARRAY<INT>", &[("[1, null, 3]", Ok("[1, null, 3]")), ("[]", Ok("[]")), ("null", Ok("null"))]);
        check("ARRAY<BYTES>", &[("[\"AQL/\"]", Ok("[0102ff]"))]);
        check(
            "ROW<a INT, b STRING>",
            &[(r#"{"b":"x","z":[{}],"a":1,"a":2}"#, Ok("{a: 2, b: x}")), ("{}", Ok("{a: null, b: null}"))],
        );
        check("MAP<STRING, DECIMAL(4,2)>", &[(r#"{"x":1.5,"y":null,"x":2}"#, Ok("{x: 2.00, y: null}"))]);
        check(
            "MAP<INT, ARRAY<ROW<t TIMESTAMP(3)>>>",
            &[(r#"{"7":[{"t":"2024-01-01"}]}"#, Ok("{7: [{t: 2024-01-01T00:00:00}]}"))],
        );
    }

    #[test]
    fn a_fault_inside_a_nested_value_says_where() {
        let schema = "c ROW<a ARRAY<ROW<n INT NOT NULL>>, m MAP<STRING, INT>>";
        for (record, column, message) in [
            (r#"{"c":{"a":[{"n":1},{"n":"x"}]}}"#, "c.a[1].n", "the string 'x' is not an INT"),
            (r#"{"c":{"a":[{}]}}"#, "c.a[0].n", "the key is missing in a NOT NULL column (INT)"),
            (r#"{"c":{"m":{"k":1.5}}}"#, "c.m['k']", "'1.5' is not an INT"),
            (r#"{"c":[]}"#, "c", "an array is not a ROW<a ARRAY<ROW<n INT NOT NULL>>, m MAP<STRING, INT>>"),
        ] {
            let fault = decode(schema, record.as_bytes(), JsonOptions::default()).unwrap_err();
            assert_eq!((fault.column.as_deref(), fault.message.as_str()), (Some(column), message), "{record}");
        }
        // A null ROW hides what is NOT NULL in it.
        let (batch, _) = decode(
            "c ROW<n INT NOT NULL, l ARRAY<INT NOT NULL> NOT NULL>",
            b"{\"c\":null}\n{\"c\":{\"n\":1,\"l\":[2]}}",
            JsonOptions::default(),
        )
        .unwrap();
        assert!(batch.column(0).is_null(0) && batch.column(0).is_valid(1));
    }

    #[test]
    fn keys_are_found_in_any_order_and_the_last_of_two_counts() {
        let records =
            b"{\"a\":1,\"b\":2}\n{\"b\":3,\"x\":{\"a\":9},\"a\":4}\n \t\r\n{\"a\":5,\"\\u0061\":6}\n{\"A\":7}\r\n{}";
        let (batch, starts) = decode("b INT, a INT", records, JsonOptions::default()).unwrap();
        let rows =
            |column: usize| (0..batch.num_rows()).map(|row| shown(batch.column(column), row)).collect::<Vec<_>>();
        assert_eq!(rows(0), ["2", "3", "null", "null", "null"]);
        assert_eq!(rows(1), ["1", "4", "6", "null", "null"]);
        assert_eq!(starts, [0, 14, 44, 63, 72]);
        let ignore_case = JsonOptions { case_insensitive_names: true, ..JsonOptions::default() };
        let (batch, _) = decode("b INT, a INT", records, ignore_case).unwrap();
        assert_eq!(shown(batch.column(1), 3), "7");
    }

    #[test]
    fn one_key_may_fill_two_columns_and_no_column_is_still_a_row() {
        let field = |name: &str, sql: &str| parse_schema(&format!("{name} {sql}")).unwrap().fields()[0].clone();
        let columns = vec![("k".to_owned(), field("a", "INT")), ("k".to_owned(), field("b", "DOUBLE"))];
        let mut decoder = JsonPlan::try_new(columns, &JsonOptions::default()).unwrap().decoder(4).unwrap();
        decoder.decode_message(b"{\"k\":1}").unwrap();
        let batch = decoder.finish().unwrap();
        assert_eq!((shown(batch.column(0), 0), shown(batch.column(1), 0)), ("1".into(), "1.0".into()));
        let mut decoder = JsonPlan::try_new(vec![], &JsonOptions::default()).unwrap().decoder(4).unwrap();
        decoder.decode_all(b"{\"k\":1}\n{}\n", &mut Vec::new()).unwrap();
        assert_eq!(decoder.finish().unwrap().num_rows(), 2);
        assert_eq!(decoder.finish().unwrap().num_rows(), 0);
    }

    #[test]
    fn missing_keys_and_nulls_where_none_may_be() {
        let fault = decode("a INT, b INT NOT NULL", b"{\"b\":1}\n{\"a\":1}", JsonOptions::default()).unwrap_err();
        assert_eq!((fault.start, fault.column.as_deref()), (8, Some("b")));
        assert_eq!(fault.message, "the key is missing in a NOT NULL column (INT)");
        let fault = decode("b INT NOT NULL", b"{\"b\":null}", JsonOptions::default()).unwrap_err();
        assert_eq!(fault.message, "null in a NOT NULL column (INT)");
        let strict = JsonOptions { fail_on_missing_field: true, ..JsonOptions::default() };
        let fault = decode("a INT", b"{\"b\":1}", strict).unwrap_err();
        assert_eq!((fault.message.as_str(), fault.hint.is_some()), ("the key is missing", true));
        assert!(decode("a INT", b"{\"a\":null}", strict).is_ok());
    }

    #[test]
    fn what_is_no_record_is_said() {
        for (record, message) in [
            (b"[{\"a\":1}]".as_slice(), "an array where an object is expected"),
            (b"\"a\"", "a string where an object is expected"),
            (b"12", "a number where an object is expected"),
            (b"null", "expected an object, found 'n' (byte 0 of the record)"),
            (b"{\"a\":1} {\"a\":2}", "expected the end of the record, found '{' (byte 8 of the record)"),
            (b"{\"a\":1}x", "expected the end of the record, found 'x' (byte 7 of the record)"),
            (b"{\"a\":1", "expected ',' or '}', found the end of the record (byte 6 of the record)"),
            (b"  {\"a\":\"x", "a string is still open at the end of the record (byte 9 of the record)"),
            (b"{\"b\":\"\\ud800\"}", "half of a surrogate pair alone in a string (byte 6 of the record)"),
            (b"{\"b\":[01]}", "a number with a leading zero (byte 7 of the record)"),
            (b"{\"b\":\"\0\"}", "a control character (0x00) in a string (byte 6 of the record)"),
            (b"\xef\xbb\xbf{}", "expected an object, found '\\u{feff}' (byte 0 of the record)"),
            (b"{\"\xff\":1}", "invalid UTF-8: byte 0xff at byte 2 of the record"),
        ] {
            let mut chunk = b"{\"a\":0}\n".to_vec();
            chunk.extend_from_slice(record);
            chunk.extend_from_slice(b"\n{\"a\":3}\n");
            let fault = decode("a INT", &chunk, JsonOptions::default()).unwrap_err();
            assert_eq!((fault.start, fault.message.as_str()), (8, message));
        }
        let fault = decode("a INT", b"x\n\xff", JsonOptions::default()).unwrap_err();
        assert_eq!(fault.start, 0, "the first bad record, whatever is wrong with the second");
    }

    #[test]
    fn depth_is_limited_by_the_option() {
        let record = |levels: usize| format!("{{\"x\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        assert!(decode("a INT", record(64).as_bytes(), JsonOptions::default()).is_ok());
        let fault = decode("a INT", record(65).as_bytes(), JsonOptions::default()).unwrap_err();
        assert!(fault.message.starts_with("nested deeper than 64 levels"), "{}", fault.message);
        assert_eq!(fault.hint.as_deref(), Some("json.max-depth allows more"));
        let deep = JsonOptions { max_depth: 1_000_000, ..JsonOptions::default() };
        assert!(decode("a INT", record(900_000).as_bytes(), deep).is_ok());
    }

    #[test]
    fn a_message_is_one_record() {
        let message = |message: &[u8]| {
            let mut decoder = plan("a INT", JsonOptions::default()).decoder(4).unwrap();
            decoder.decode_message(message)?;
            assert_eq!(decoder.finish().unwrap().num_rows(), 1);
            Ok::<(), RecordFault>(())
        };
        for good in [b"{\"a\":1}".as_slice(), b"{\"a\":1}\r\n", b" {\n\"a\":\n1}\n\n"] {
            message(good).unwrap();
        }
        for empty in [b"".as_slice(), b"\n", b" \n"] {
            assert_eq!(message(empty).unwrap_err().message, "the message is empty");
        }
        let fault = message(b"{\"a\":1}\n{\"a\":2}\n").unwrap_err();
        assert_eq!(fault.message, "expected the end of the record, found '{' (byte 8 of the record)");
        assert_eq!(fault.hint.as_deref(), Some("a line, and a message, holds one object"));
    }

    fn flat_record() -> impl Strategy<Value = String> {
        let value = prop_oneof![
            Just("null".to_owned()),
            any::<i64>().prop_map(|v| v.to_string()),
            any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:e}")),
            any::<bool>().prop_map(|v| v.to_string()),
            "\\PC{0,8}".prop_map(|v| serde_json::to_string(&v).unwrap()),
            "\"[0-9]{1,4}\"",
            "[\\[\\]{}\":,0-9]{0,4}",
        ];
        prop::collection::vec((prop::sample::select(vec!["i", "d", "s", "b", "other"]), value), 0..6).prop_map(
            |members| {
                let members: Vec<_> = members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            },
        )
    }

    const FLAT: &str = "i BIGINT, d DOUBLE, s STRING, b BOOLEAN";

    proptest! {
        #[test]
        fn messages_decode_together_as_one_by_one(
            messages in prop::collection::vec(
                prop_oneof![
                    5 => "[0-9]{1,4}".prop_map(|i| format!("{{\"i\":{i},\"s\":\"x\"}}").into_bytes()),
                    3 => flat_record().prop_map(String::into_bytes),
                    1 => flat_record().prop_map(|record| format!("{record}\r\n").into_bytes()),
                    1 => flat_record().prop_map(|record| format!("{record}\n{record}\n\n").into_bytes()),
                    1 => prop::collection::vec(any::<u8>(), 0..12),
                ],
                0..600,
            ),
            first in any::<prop::sample::Index>(),
            max_faults in prop::sample::select(vec![1, 3, usize::MAX]),
        ) {
            type Decode = fn(&mut JsonDecoder, &[u8], &[usize], usize, &mut OnBadMessage<'_>) -> usize;
            let (values, ends) = join_messages(&messages);
            let first = first.index(messages.len() + 1);
            let decoded = |decode: Decode| {
                let mut decoder = plan(FLAT, JsonOptions::default()).decoder(4).unwrap();
                let mut faults = Vec::new();
                let next = decode(&mut decoder, &values, &ends, first, &mut |index, fault| {
                    faults.push((index, fault));
                    if faults.len() < max_faults { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                (decoder.finish().unwrap(), faults, next)
            };
            prop_assert_eq!(decoded(JsonDecoder::decode_messages), decoded(decode_each_message));
        }

        /// A bad record never changes what its neighbours become (FLINK-31951).
        #[test]
        fn messages_do_not_touch_their_neighbours(good in flat_record(), bad in prop::collection::vec(any::<u8>(), 0..40)) {
            let alone = plan(FLAT, JsonOptions::default());
            let batch = |messages: &[&[u8]]| {
                let mut rows = Vec::new();
                for message in messages {
                    let mut decoder = alone.decoder(4).unwrap();
                    if decoder.decode_message(message).is_ok() {
                        rows.push(decoder.finish().unwrap());
                    }
                }
                rows
            };
            let (only, beside) = (batch(&[good.as_bytes()]), batch(&[&bad, good.as_bytes(), &bad]));
            prop_assert!(only.is_empty() || beside.contains(&only[0]));
            // In a chunk the fault is at the bad record, and what stands before it is whole.
            if !bad.contains(&b'\n') && !only.is_empty() {
                let chunk = [good.as_bytes(), b"\n", &bad, b"\n", good.as_bytes()].concat();
                match decode(FLAT, &chunk, JsonOptions::default()) {
                    Ok((batch, starts)) => prop_assert!(batch.slice(0, 1) == only[0] && batch.slice(starts.len() - 1, 1) == only[0]),
                    Err(fault) => prop_assert_eq!(fault.start, good.len() + 1),
                }
            }
        }

        /// arrow-json takes more (a float for an integer, a string for a number), so what we take it must take alike.
        #[test]
        fn what_is_taken_is_what_arrow_json_takes(records in prop::collection::vec(flat_record(), 1..8)) {
            let records: Vec<_> = records.into_iter().filter(|record| {
                // Of a key that stands twice arrow-json takes the first.
                ["\"i\":", "\"d\":", "\"s\":", "\"b\":"].iter().all(|key| record.matches(key).count() < 2)
            }).collect();
            let chunk = records.join("\n");
            if let Ok((ours, _)) = decode(FLAT, chunk.as_bytes(), JsonOptions::default()) {
                let mut theirs = arrow_json::ReaderBuilder::new(ours.schema()).build_decoder().unwrap();
                prop_assert_eq!(theirs.decode(chunk.as_bytes()).unwrap(), chunk.len());
                match theirs.flush().unwrap() {
                    Some(theirs) => {
                        prop_assert_eq!(theirs.num_rows(), ours.num_rows());
                        for column in [0, 2, 3] {
                            prop_assert_eq!(theirs.column(column), ours.column(column));
                        }
                        let bits = |batch: &RecordBatch| -> Vec<Option<u64>> {
                            let column = batch.column(1).as_primitive::<arrow::datatypes::Float64Type>();
                            column.iter().map(|value| value.map(f64::to_bits)).collect()
                        };
                        prop_assert_eq!(bits(&theirs), bits(&ours));
                    }
                    None => prop_assert_eq!(ours.num_rows(), 0),
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(chunk in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'"'), Just(b'\\'), Just(b'\n'), Just(b'u'), any::<u8>()], 0..60)) {
            let _ = decode("a INT, \"u\" STRING", &chunk, JsonOptions::default());
            let _ = crate::format::json::Inference::default().add(&chunk, 10, 64);
        }
    }
}
