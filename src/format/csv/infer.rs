//! Headers and types of CSV without a schema.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Field, Schema};

use super::record::{Dialect, Scan, text_of};
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
    dialect: &Dialect,
    null_literal: Option<&str>,
    sample: &[u8],
    at_end: bool,
    max_records: usize,
    header: Option<bool>,
    place: &str,
) -> Result<(Schema, bool)> {
    let text = String::from_utf8_lossy(sample);
    let sample = text.as_bytes();
    let mut spans = Vec::new();
    let (mut first, mut types): (Option<Vec<String>>, Vec<Option<DataType>>) = (None, Vec::new());
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
                    types = vec![None; fields.len()];
                    first = Some(fields);
                } else {
                    for (field, known) in fields.zip(&mut types) {
                        if !field.is_empty() && null_literal != Some(&*field) {
                            let data_type = infer_type(&field);
                            later_is_typed |= data_type != DataType::Utf8;
                            *known = Some(joined(known.take(), data_type));
                        }
                    }
                }
                num_records += 1;
                at = next;
            }
        }
    }
    let first = first.unwrap_or_default();
    let header = header.unwrap_or_else(|| {
        (later_is_typed || (num_records == 1 && at_end))
            && first.iter().all(|field| infer_type(field) == DataType::Utf8)
    });
    if !header {
        for (field, known) in first.iter().zip(&mut types) {
            if !field.is_empty() && null_literal != Some(field.as_str()) {
                *known = Some(joined(known.take(), infer_type(field)));
            }
        }
    }
    let mut names = BTreeSet::new();
    let mut fields = Vec::with_capacity(first.len());
    for (index, (name, data_type)) in first.iter().zip(types).enumerate() {
        let name = if header { name.clone() } else { format!("f{index}") };
        if !names.insert(name.clone()) {
            return Err(Error::Schema(format!(
                "{place}: the header names column {name} twice; give a schema and csv.header=false"
            )));
        }
        fields.push(Field::new(name, data_type.unwrap_or(DataType::Utf8), true));
    }
    Ok((Schema::new(fields), header))
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
    use super::super::CsvOptions;
    use super::*;
    use crate::schema::format_schema;

    #[track_caller]
    fn check(sample: &str, schema: &str, header: bool) {
        let dialect = CsvOptions::default().dialect();
        let (got, is_header) = infer_schema(&dialect, None, sample.as_bytes(), true, 20_480, None, "f.csv").unwrap();
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
