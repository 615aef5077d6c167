//! What the tests of values have in common: tables, texts that are nearly values, and a reader to stand beside.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::string::string_regex;

use super::{ColumnBuilder, ValueFault, ValueOptions};
use crate::schema::parse_schema;

/// A column of an SQL type.
pub(super) fn field(sql: &str) -> Field {
    parse_schema(&format!("c {sql}")).unwrap().field(0).clone()
}

/// The one value of an array in words.
fn shown(array: &dyn Array) -> String {
    assert_eq!(array.len(), 1);
    ArrayFormatter::try_new(array, &FormatOptions::default()).unwrap().value(0).to_string()
}

pub(super) fn read_with(sql: &str, text: &str, options: ValueOptions<'_>) -> Result<String, ValueFault> {
    let mut column = ColumnBuilder::try_new(&field(sql), options, 1).unwrap();
    column.push(text)?;
    Ok(shown(&column.finish()))
}

pub(super) fn read(sql: &str, text: &str) -> Result<String, ValueFault> {
    read_with(sql, text, ValueOptions::default())
}

/// Checks a table of texts and what becomes of them.
#[track_caller]
pub(super) fn check(sql: &str, rows: &[(&str, Result<&str, ValueFault>)]) {
    for (text, expected) in rows {
        assert_eq!(read(sql, text), expected.map(str::to_owned), "{text:?} as {sql}");
    }
}

/// What arrow-csv makes of a text that isn't empty.
pub(super) fn read_by_arrow(sql: &str, text: &str) -> Option<String> {
    let schema = Arc::new(Schema::new(vec![field(sql)]));
    let mut decoder = arrow_csv::ReaderBuilder::new(schema).build_decoder();
    let record = format!("\"{}\"\n", text.replace('"', "\"\""));
    decoder.decode(record.as_bytes()).ok()?;
    let batch = decoder.flush().ok()??;
    Some(shown(batch.column(0)))
}

/// Checks texts of which arrow-csv and we make the same.
#[track_caller]
pub(super) fn check_beside_arrow(sql: &str, texts: &[&str]) {
    for text in texts {
        assert_eq!(read(sql, text).ok(), read_by_arrow(sql, text), "{text:?} as {sql}");
    }
}

/// Checks texts of which arrow-csv makes something else (`None`: a fault). The reason stands beside the table.
#[track_caller]
pub(super) fn check_against_arrow(sql: &str, rows: &[(&str, Result<&str, ValueFault>, Option<&str>)]) {
    for (text, ours, theirs) in rows {
        assert_eq!(read(sql, text), ours.map(str::to_owned), "{text:?} as {sql}");
        assert_eq!(read_by_arrow(sql, text).as_deref(), *theirs, "{text:?} as {sql} by arrow-csv");
        assert_ne!(ours.ok(), *theirs, "{text:?} as {sql}: no difference any more");
    }
}

/// Texts that a pattern describes, with up to two characters replaced, put in or taken out.
pub(super) fn nearly(pattern: &str) -> impl Strategy<Value = String> {
    let characters = prop_oneof![
        4 => proptest::char::ranges(vec!['0'..='9', '+'..='/'].into()),
        2 => proptest::sample::select(vec!['e', 'E', ':', ';', ' ', 'T', 'Z', '_', '\0', '/', '\u{7F}']),
        1 => any::<char>(),
    ];
    let edit = (any::<Index>(), prop_oneof![Just(false), Just(true)], prop::option::of(characters));
    (string_regex(pattern).unwrap(), prop::collection::vec(edit, 0..=2)).prop_map(|(text, edits)| {
        let mut characters: Vec<char> = text.chars().collect();
        for (place, replaces, character) in edits {
            let at = place.index(characters.len() + 1);
            if replaces && at < characters.len() {
                characters.remove(at);
            }
            if let Some(character) = character {
                characters.insert(at, character);
            }
        }
        characters.into_iter().collect()
    })
}
