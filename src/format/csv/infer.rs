//! Headers and types of CSV without a schema.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

use super::CsvOptions;
use super::record::{Scan, text_of};
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

/// Makes a schema of the first records, and says whether the first one is a header.
///
/// Without a choice, it is one if no field of it is a number, date or boolean while a later record has one, or
/// no later record is there: a file of one line of words is a header without rows.
///
/// # Errors
/// [`Error::Schema`] for a header that names a column twice; `place` is the file.
pub(crate) fn infer_schema(
    options: &CsvOptions,
    sample: &[u8],
    at_end: bool,
    max_records: usize,
    header: Option<bool>,
    place: &str,
) -> Result<(Schema, bool)> {
    let dialect = &options.dialect();
    let text = String::from_utf8_lossy(sample);
    let sample = text.as_bytes();
    let mut spans = Vec::new();
    let (mut first, mut columns): (Option<Vec<String>>, Vec<Suggestions>) = (None, Vec::new());
    let (mut at, mut num_records, mut later_is_typed) = (0, 0, false);
    while at < sample.len() && num_records <= max_records {
        spans.clear();
        match dialect.scan(sample, at, at_end, &mut spans) {
            Scan::Incomplete => break,
            Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => at = next,
            Scan::Record { next } => {
                let fields = spans.iter().map(|span| text_of(dialect, &text, span));
                if first.is_none() {
                    let fields: Vec<String> = fields.map(Into::into).collect();
                    columns = vec![Suggestions::default(); fields.len()];
                    first = Some(fields);
                } else {
                    for (field, column) in fields.zip(&mut columns) {
                        later_is_typed |= column.take(options, &field);
                    }
                }
                num_records += 1;
                at = next;
            }
        }
    }
    let first = first.unwrap_or_default();
    let header = header.unwrap_or_else(|| {
        (later_is_typed || (num_records == 1 && at_end)) && !first.iter().any(|field| is_typed(options, field))
    });
    if !header {
        for (field, column) in first.iter().zip(&mut columns) {
            column.take(options, field);
        }
    }
    let mut names = BTreeSet::new();
    let mut fields = Vec::with_capacity(first.len());
    for (index, (name, column)) in first.iter().zip(columns).enumerate() {
        let name = if header { name.clone() } else { format!("f{index}") };
        if !names.insert(name.clone()) {
            return Err(Error::Schema(format!(
                "{place}: the header names column {name} twice; give a schema and csv.header=false"
            )));
        }
        fields.push(Field::new(name, column.data_type(options), true));
    }
    Ok((Schema::new(fields), header))
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
        let (got, is_header) = infer_schema(options, sample.as_bytes(), true, 20_480, None, "f.csv").unwrap();
        assert_eq!((format_schema(&got).as_str(), is_header), (schema, header), "{sample:?}");
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
