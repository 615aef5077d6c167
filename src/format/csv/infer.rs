//! Headers and types of CSV without a schema.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

use super::record::{Dialect, Scan, Span, text_of};
use super::{CsvOptions, OnFieldCount};
use crate::error::{Error, Result};
use crate::schema::{infer_type, unify_types};

/// Decides whether the first record is a header, given the columns that are wanted.
///
/// It is if all of them stand among its fields, and isn't if none does.
///
/// # Errors
/// [`Error::Schema`] if only some do; `place` is the file.
pub(crate) fn has_header(first: &[String], wanted: &[&str], place: &str) -> Result<bool> {
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        wanted.iter().partition(|name| first.iter().any(|field| field == *name));
    let similar = |name: &str| first.iter().find(|field| field.trim().eq_ignore_ascii_case(name));
    match (known.is_empty(), unknown.is_empty()) {
        (_, true) => Ok(!known.is_empty()),
        (true, _) => match wanted.iter().find_map(|name| Some((name, similar(name)?))) {
            None => Ok(false),
            Some((name, field)) => Err(Error::Schema(format!(
                "{place}: the first record has '{field}' where the schema has {name}: names are case-sensitive; \
                 set csv.header to false if it is no header"
            ))),
        },
        _ => Err(Error::Schema(format!(
            "{place}: the first record names some columns of the schema ({}) and not others ({}); it has {}; \
             set csv.header to true or false",
            known.join(", "),
            unknown.join(", "),
            first.join(", "),
        ))),
    }
}

/// What the first records of a source tell of its columns.
///
/// Records that are bad say nothing: broken quotes, bytes that aren't text, another number of fields than the first
/// one's. Reading will tell of them, or skip them.
#[derive(Debug)]
pub(crate) struct Inference {
    header: bool,
    columns: Vec<(String, Suggestions)>,
    num_records: usize,
}

/// The start of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CsvSample<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether it is the whole file.
    pub(crate) at_end: bool,
    /// At most so many records are looked at.
    pub(crate) max_records: usize,
}

impl Inference {
    /// Begins with a source's first file.
    ///
    /// Without a choice, its first record is a header if no field of it is a number, date or boolean while a later record
    /// has one, or no later record is there: a file of one line of words is a header without rows.
    ///
    /// # Errors
    /// [`Error::Schema`] for a header that names a column twice; `place` is the file.
    pub(crate) fn begin(
        options: &CsvOptions,
        sample: CsvSample<'_>,
        header: Option<bool>,
        place: &str,
    ) -> Result<Self> {
        let mut records = Records::new(options, sample);
        let first = records.next().unwrap_or_default();
        let mut columns = vec![Suggestions::default(); first.len()];
        let mut later_is_typed = false;
        while let Some(fields) = records.next() {
            if may_be_row(options, fields.len(), first.len()) {
                for (field, column) in fields.iter().zip(&mut columns) {
                    later_is_typed |= column.take(options, field);
                }
            }
        }
        let num_records = records.num_records;
        let header = header.unwrap_or_else(|| {
            (later_is_typed || (num_records == 1 && sample.at_end))
                && !first.iter().any(|field| is_typed(options, field))
        });
        if !header {
            for (field, column) in first.iter().zip(&mut columns) {
                column.take(options, field);
            }
        }
        let mut names = BTreeSet::new();
        for name in first.iter().filter(|_| header) {
            if !names.insert(name) {
                return Err(Error::Schema(format!(
                    "{place}: the header names column {name} twice; give a schema and csv.header=false"
                )));
            }
        }
        let name = |(index, name): (usize, String)| if header { name } else { format!("f{index}") };
        let columns = first.into_iter().enumerate().map(name).zip(columns).collect();
        Ok(Self { header, columns, num_records })
    }

    /// Goes on with another file of the source. Columns that only this one has aren't read.
    pub(crate) fn add(&mut self, options: &CsvOptions, sample: CsvSample<'_>) {
        let mut records = Records::new(options, sample);
        let columns: Vec<Option<usize>> = if self.header {
            let names = records.next().unwrap_or_default();
            names.iter().map(|name| self.columns.iter().position(|(known, _)| known == name)).collect()
        } else {
            (0..self.columns.len()).map(Some).collect()
        };
        while let Some(fields) = records.next() {
            if may_be_row(options, fields.len(), columns.len()) {
                for (field, column) in fields.iter().zip(&columns) {
                    if let Some((_, column)) = column.and_then(|column| self.columns.get_mut(column)) {
                        column.take(options, field);
                    }
                }
            }
        }
        self.num_records += records.num_records;
    }

    /// Records that were looked at.
    pub(crate) fn num_records(&self) -> usize {
        self.num_records
    }

    /// Whether the first record of each file names its columns.
    pub(crate) fn header(&self) -> bool {
        self.header
    }

    /// The columns.
    pub(crate) fn schema(self, options: &CsvOptions) -> Schema {
        let field = |(name, column): (String, Suggestions)| Field::new(name, column.data_type(options), true);
        Schema::new(self.columns.into_iter().map(field).collect::<Vec<_>>())
    }
}

fn may_be_row(options: &CsvOptions, num_fields: usize, expected: usize) -> bool {
    match num_fields.cmp(&expected) {
        Ordering::Equal => true,
        Ordering::Less => options.missing_fields == OnFieldCount::Lenient,
        Ordering::Greater => options.extra_fields == OnFieldCount::Lenient,
    }
}

/// The fields of each record of a sample, as far as they are text.
struct Records<'a> {
    dialect: Dialect,
    sample: CsvSample<'a>,
    at: usize,
    num_records: usize,
    spans: Vec<Span>,
}

impl<'a> Records<'a> {
    fn new(options: &CsvOptions, sample: CsvSample<'a>) -> Self {
        Self { dialect: options.dialect(), sample, at: 0, num_records: 0, spans: Vec::new() }
    }

    fn next(&mut self) -> Option<Vec<String>> {
        let CsvSample { bytes, at_end, max_records } = self.sample;
        while self.at < bytes.len() && self.num_records <= max_records {
            self.spans.clear();
            let start = self.at;
            match self.dialect.scan(bytes, start, at_end, &mut self.spans) {
                Scan::Incomplete => return None,
                Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => self.at = next,
                Scan::Record { next } => {
                    self.at = next;
                    self.num_records += 1;
                    if let Ok(text) = std::str::from_utf8(&bytes[start..next]) {
                        let field = |span: &Span| text_of(&self.dialect, text, &span.moved_down(start)).into_owned();
                        return Some(self.spans.iter().map(field).collect());
                    }
                }
            }
        }
        None
    }
}

/// Says whether a text is more than that.
fn is_typed(options: &CsvOptions, field: &str) -> bool {
    infer_type(field) != DataType::Utf8
        || options.timestamp_format.as_ref().is_some_and(|format| format.fraction_digits(field).is_some())
}

/// What the values of a column suggest.
#[derive(Clone, Debug, Default)]
struct Suggestions {
    /// The narrowest type that holds all.
    data_type: Option<DataType>,
    /// Digits behind the second that timestamps need, if all values are written as the option has it.
    fraction_digits: u8,
    has_other: bool,
}

impl Suggestions {
    /// Adds a value. Says whether it is more than text.
    fn take(&mut self, options: &CsvOptions, field: &str) -> bool {
        if field.is_empty() || options.null_literal.as_deref() == Some(field) {
            return false;
        }
        let data_type = infer_type(field);
        let digits = options.timestamp_format.as_ref().and_then(|format| format.fraction_digits(field));
        self.fraction_digits = self.fraction_digits.max(digits.unwrap_or(0));
        self.has_other |= digits.is_none();
        let is_typed = digits.is_some() || data_type != DataType::Utf8;
        self.data_type = Some(joined(self.data_type.take(), data_type));
        is_typed
    }

    fn data_type(self, options: &CsvOptions) -> DataType {
        match self.data_type {
            Some(_) if !self.has_other => {
                let unit = match self.fraction_digits {
                    0..=3 => TimeUnit::Millisecond,
                    4..=6 => TimeUnit::Microsecond,
                    _ => TimeUnit::Nanosecond,
                };
                DataType::Timestamp(unit, None)
            }
            // The option says that timestamps look otherwise.
            Some(DataType::Timestamp(..)) if options.timestamp_format.is_some() => DataType::Utf8,
            Some(data_type) => data_type,
            None => DataType::Utf8,
        }
    }
}

/// The type of a column that has values of both.
fn joined(known: Option<DataType>, other: DataType) -> DataType {
    match known {
        None => other,
        Some(known) => unify_types(&known, &other).unwrap_or(DataType::Utf8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::format_schema;

    #[track_caller]
    fn check(sample: &str, schema: &str, header: bool) {
        check_with(&CsvOptions::default(), sample, schema, header);
    }

    #[track_caller]
    fn check_with(options: &CsvOptions, sample: &str, schema: &str, header: bool) {
        let inference = Inference::begin(options, whole(sample), None, "f.csv").unwrap();
        let is_header = inference.header();
        assert_eq!((format_schema(&inference.schema(options)).as_str(), is_header), (schema, header), "{sample:?}");
    }

    fn whole(sample: &str) -> CsvSample<'_> {
        CsvSample { bytes: sample.as_bytes(), at_end: true, max_records: 20_480 }
    }

    #[test]
    fn records_that_are_bad_say_nothing() {
        check("id,t\n1,2024-01-01\n2,x,y\nz\n3,\"4\"5\n", "id BIGINT, t DATE", true);
        let lenient = CsvOptions { missing_fields: OnFieldCount::Lenient, ..CsvOptions::default() };
        check_with(&lenient, "id,t\n1,2024-01-01\nz\n", "id STRING, t DATE", true);
        let bytes = b"id,t\n1,2\n\xff,x\n".as_slice();
        let options = CsvOptions::default();
        let sample = CsvSample { bytes, at_end: true, max_records: 20_480 };
        let inference = Inference::begin(&options, sample, None, "f.csv").unwrap();
        assert_eq!(format_schema(&inference.schema(&options)), "id BIGINT, t BIGINT");
    }

    #[test]
    fn files_behind_the_first_widen_its_columns() {
        let options = CsvOptions::default();
        let mut inference = Inference::begin(&options, whole("a,b,c\n1,,x\n"), None, "f.csv").unwrap();
        inference.add(&options, whole("b,d,a\n2024-01-01,1,2.5\n"));
        inference.add(&options, whole("c\n"));
        assert_eq!(inference.num_records(), 5);
        assert_eq!(format_schema(&inference.schema(&options)), "a DOUBLE, b DATE, c STRING");
        let mut inference = Inference::begin(&options, whole("1,2\n"), None, "f.csv").unwrap();
        inference.add(&options, whole("1.5,x\n"));
        assert_eq!(format_schema(&inference.schema(&options)), "f0 DOUBLE, f1 STRING");
    }

    #[test]
    fn a_header_has_no_values_where_a_later_record_has_some() {
        check("id,v\n1,2.5\n", "id BIGINT, v DOUBLE", true);
        check("id,v\na,b\n", "f0 STRING, f1 STRING", false);
        check("id,2024\n1,2\n", "f0 STRING, f1 BIGINT", false);
        check("1,2\n3,4.5\n", "f0 BIGINT, f1 DOUBLE", false);
        check("id,v\n", "id STRING, v STRING", true);
        check("id,2\n", "f0 STRING, f1 BIGINT", false);
        check("", "", false);
    }

    #[test]
    fn types_are_the_narrowest_that_hold_all_values() {
        check(
            "a,b,c,d,e\n1,2024-01-01,true,007,\n2.5,2024-01-01 10:00:00.123456,false,8,\n",
            "a DOUBLE, b TIMESTAMP(6), c BOOLEAN, d STRING, e STRING",
            true,
        );
        check("a\n1\nx\n", "a STRING", true);
    }

    #[test]
    fn columns_all_written_as_the_option_has_it_are_timestamps() {
        let by = |format: &str| CsvOptions { timestamp_format: Some(format.parse().unwrap()), ..CsvOptions::default() };
        let german = by("%d.%m.%Y %H:%M:%S%.f");
        check_with(&german, "t,u\n15.08.2023 14:37:35,1\n,2\n", "t TIMESTAMP(3), u BIGINT", true);
        check_with(&german, "t\n15.08.2023 14:37:35.1234\n", "t TIMESTAMP(6)", true);
        check_with(&german, "15.08.2023 14:37:35.1234567\n", "f0 TIMESTAMP(9)", false);
        // ISO 8601 isn't read with the option, so it is text; days still are days.
        check_with(&german, "t,d\n2023-08-15 14:37:35,2023-08-15\n", "t STRING, d DATE", true);
        check_with(&german, "t\n15.08.2023 14:37:35\n2023-08-15 14:37:35\n", "t STRING", true);
        // Numbers that may be days are days only if all of them are.
        check_with(&by("%Y%m%d"), "t,n\n20230815,20230815\n20230816,99999999\n", "t TIMESTAMP(3), n BIGINT", true);
    }

    #[test]
    fn with_a_schema_all_or_none_of_its_columns_decide() {
        let first = ["id".to_owned(), "x".to_owned()];
        assert!(has_header(&first, &["id"], "f").unwrap());
        assert!(!has_header(&first, &["v"], "f").unwrap());
        assert!(has_header(&first, &["ID"], "f").unwrap_err().to_string().contains("has 'id' where the schema has ID"));
        let error = has_header(&first, &["id", "v"], "f.csv").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("names some columns of the schema (id) and not others (v); it has id, x; set csv.header"),
            "{error}"
        );
    }
}
