//! The schema of JSON, told from its first records.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema};

use super::decoder::valid_records;
use super::scan::{Kind, Scanner, Slot, Syntax, unescape};
use super::strict::{broken, check_object};
use crate::error::{Reason, Result};
use crate::format::RecordFault;
use crate::schema::{infer_type, type_name, unify_types};

/// Objects with more keys than this aren't rows.
const MAX_KEYS: usize = 10_000;

/// What the first records of a source tell of its columns.
///
/// Keys become columns in the order of their first appearance. Strings are DATE or TIMESTAMP if all are,
/// else STRING, also if they hold digits; objects are ROW, arrays ARRAY of the type that holds all their
/// elements; what is always null, or has no elements, is STRING. An object that never has a member says
/// nothing about its type and becomes no column.
///
/// Records that are bad say nothing: reading will tell of them, or skip them.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    row: Row,
    num_records: usize,
}

impl Inference {
    /// Looks at whole lines of a file, until `max_records` records were looked at in all.
    ///
    /// # Errors
    /// The first record that holds a value that goes with no type so far; the first bad one if no record so far is good.
    pub(crate) fn add(&mut self, records: &[u8], max_records: usize, max_depth: usize) -> Result<(), RecordFault> {
        let (mut base, mut first_fault) = (0, None);
        while base < records.len() && self.num_records < max_records {
            let (text, fault) = valid_records(&records[base..]);
            let mut at = 0;
            while at < text.len() && self.num_records < max_records {
                let end = memchr::memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |len| at + len);
                match check_record(text, at..end, max_depth) {
                    Ok(false) => {}
                    Ok(true) => {
                        let mut scanner = Scanner::new(text, at, end, max_depth);
                        scanner.skip_whitespace();
                        let at_fault = |fault: Conflict| fault.into_record_fault(base + at..base + end);
                        members(&mut scanner, text, 0, &mut self.row).map_err(at_fault)?;
                        self.num_records += 1;
                    }
                    Err(fault) => {
                        first_fault.get_or_insert(RecordFault { start: base + at, end: base + end, ..fault });
                    }
                }
                at = end + 1;
            }
            let Some(fault) = fault else { break };
            let (start, end) = (base + fault.start, base + fault.end);
            base = end;
            first_fault.get_or_insert(RecordFault { start, end, ..fault });
        }
        match first_fault {
            Some(fault) if self.num_records == 0 => Err(fault),
            _ => Ok(()),
        }
    }

    /// Good records that were looked at.
    pub(crate) fn num_records(&self) -> usize {
        self.num_records
    }

    /// The columns.
    pub(crate) fn schema(self) -> Schema {
        Schema::new(fields(self.row))
    }
}

/// Holds a line against the grammar; `false` if there are only blanks.
fn check_record(text: &str, record: Range<usize>, max_depth: usize) -> Result<bool, RecordFault> {
    let mut scanner = Scanner::new(text, record.start, record.end, max_depth);
    scanner.skip_whitespace();
    if scanner.at() == record.end {
        return Ok(false);
    }
    check_object(&scanner, record.clone())?;
    let at_fault = |syntax: Syntax| broken(&syntax, record.clone());
    scanner.object(|scanner, _| scanner.value(1).map(drop)).map_err(at_fault)?;
    scanner.skip_whitespace();
    if scanner.at() != record.end {
        return Err(at_fault(scanner.expected("the end of the record")));
    }
    Ok(true)
}

/// What is known of a type.
#[derive(Debug, Clone)]
enum Guess {
    /// Only nulls so far.
    Nothing,
    Scalar(DataType),
    List(Box<Guess>),
    Row(Row),
}

/// The members that objects had so far, in the order of their first appearance.
#[derive(Debug, Clone, Default)]
struct Row {
    members: Vec<(String, Guess)>,
    index: HashMap<String, usize>,
}

impl Row {
    /// The index of a member, which is mostly the one that is expected.
    fn index_of(&mut self, name: String, expected: usize) -> usize {
        if self.members.get(expected).is_some_and(|(known, _)| *known == name) {
            return expected;
        }
        let members = &mut self.members;
        *self.index.entry(name).or_insert_with_key(|name| {
            members.push((name.clone(), Guess::Nothing));
            members.len() - 1
        })
    }
}

/// A value that goes with no type so far, or text that is no JSON.
#[derive(Debug)]
enum Conflict {
    Types {
        path: String,
        before: String,
        now: String,
    },
    Syntax(Syntax),
    /// More keys than make columns.
    Keys,
}

impl From<Syntax> for Conflict {
    fn from(syntax: Syntax) -> Self {
        Self::Syntax(syntax)
    }
}

impl Conflict {
    fn below(mut self, step: &str) -> Self {
        if let Self::Types { path, .. } = &mut self {
            path.insert_str(0, step);
        }
        self
    }

    fn into_record_fault(self, record: Range<usize>) -> RecordFault {
        match self {
            Self::Syntax(syntax) => broken(&syntax, record),
            Self::Keys => {
                RecordFault::new(record, Reason::Type, format!("more than {MAX_KEYS} keys: they are no columns"))
                    .with_hint("give the columns and types that are wanted with --schema; keys that are data are a MAP")
            }
            Self::Types { path, before, now } => {
                let message = format!("{now} here and {before} in records before can't be one type");
                RecordFault::new(record, Reason::Type, message)
                    .in_column(path.trim_start_matches('.'))
                    .with_hint("give the columns and types that are wanted with --schema")
            }
        }
    }
}

/// Adds the members of the object before the scanner to a row.
fn members(scanner: &mut Scanner<'_>, text: &str, depth: usize, row: &mut Row) -> Result<(), Conflict> {
    let mut place = 0;
    scanner.object(|scanner, key| {
        let value = scanner.value(depth + 1)?;
        let mut name = String::new();
        unescape(key.text(text), &mut name);
        let index = row.index_of(name, place);
        if row.members.len() > MAX_KEYS {
            return Err(Conflict::Keys);
        }
        place = index + 1;
        let Some((name, guess)) = row.members.get_mut(index) else { return Ok(()) };
        add(text, value, guess).map_err(|conflict| conflict.below(&format!(".{name}")))
    })
}

/// Adds a value, which was passed before, to what is known.
fn add(text: &str, slot: Slot, guess: &mut Guess) -> Result<(), Conflict> {
    let mut inside = Scanner::new(text, slot.start, slot.end, usize::MAX);
    match (slot.kind, &mut *guess) {
        (Kind::Null | Kind::Missing, _) => Ok(()),
        (Kind::Array, Guess::List(item)) => inside.array(|scanner| {
            let element = scanner.value(0)?;
            add(text, element, item).map_err(|conflict| conflict.below("[]"))
        }),
        (Kind::Array, Guess::Nothing) => {
            *guess = Guess::List(Box::new(Guess::Nothing));
            add(text, slot, guess)
        }
        (Kind::Object, Guess::Row(row)) => members(&mut inside, text, 0, row),
        (Kind::Object, Guess::Nothing) => {
            *guess = Guess::Row(Row::default());
            add(text, slot, guess)
        }
        (Kind::Array | Kind::Object, known) => Err(conflict(known, slot.kind.describe().to_owned())),
        (_, Guess::Nothing) => {
            *guess = Guess::Scalar(scalar(text, slot));
            Ok(())
        }
        (_, Guess::Scalar(known)) => {
            let now = scalar(text, slot);
            match unify(known, &now) {
                Some(both) => {
                    *known = both;
                    Ok(())
                }
                None => Err(conflict(guess, sql(&now))),
            }
        }
        (_, known) => Err(conflict(known, sql(&scalar(text, slot)))),
    }
}

fn conflict(known: &Guess, now: String) -> Conflict {
    let before = match known {
        Guess::Nothing => "null".to_owned(),
        Guess::Scalar(data_type) => sql(data_type),
        Guess::List(_) => "an array".to_owned(),
        Guess::Row(_) => "an object".to_owned(),
    };
    Conflict::Types { path: String::new(), before, now }
}

fn sql(data_type: &DataType) -> String {
    type_name(&Field::new("", data_type.clone(), true))
}

fn scalar(text: &str, slot: Slot) -> DataType {
    let value = slot.text(text);
    match slot.kind {
        Kind::Bool => DataType::Boolean,
        Kind::Number if value.parse::<i64>().is_ok() => DataType::Int64,
        Kind::Number => DataType::Float64,
        _ => match infer_type(value) {
            written @ (DataType::Date32 | DataType::Timestamp(..)) => written,
            // Digits in quotes were meant as text.
            _ => DataType::Utf8,
        },
    }
}

fn unify(known: &DataType, now: &DataType) -> Option<DataType> {
    let is_written =
        |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::Date32 | DataType::Timestamp(..));
    let both = unify_types(known, now);
    both.or_else(|| (is_written(known) && is_written(now)).then_some(DataType::Utf8))
}

/// The fields of a row; what says nothing about its type is left out.
fn fields(row: Row) -> Vec<Field> {
    let field = |(name, guess): (String, Guess)| data_type(guess).map(|data_type| Field::new(name, data_type, true));
    row.members.into_iter().filter_map(field).collect()
}

fn data_type(guess: Guess) -> Option<DataType> {
    Some(match guess {
        Guess::Nothing => DataType::Utf8,
        Guess::Scalar(data_type) => data_type,
        Guess::List(item) => DataType::List(Arc::new(Field::new_list_field(data_type(*item)?, true))),
        Guess::Row(row) => {
            let fields = Fields::from(fields(row));
            if fields.is_empty() {
                return None;
            }
            DataType::Struct(fields)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::format_schema;

    fn inferred(records: &str) -> Result<String, RecordFault> {
        infer(records.as_bytes(), 20_480).map(|schema| format_schema(&schema))
    }

    fn infer(records: &[u8], max_records: usize) -> Result<Schema, RecordFault> {
        let mut inference = Inference::default();
        inference.add(records, max_records, 64)?;
        Ok(inference.schema())
    }

    #[track_caller]
    fn check(records: &str, expected: &str) {
        assert_eq!(inferred(records).unwrap(), expected);
    }

    #[test]
    fn types_of_values() {
        check(
            r#"{"b":true,"i":-1,"d":1.5,"e":1e3,"big":99999999999999999999,"s":"x","n":null,"digits":"12"}"#,
            "b BOOLEAN, i BIGINT, d DOUBLE, e DOUBLE, big DOUBLE, s STRING, n STRING, digits STRING",
        );
        check(
            r#"{"d":"2024-01-01","t3":"2024-01-01 00:00:00","t6":"2024-01-01T00:00:00.123456Z","t9":"2024-01-01 00:00:00.1234567"}"#,
            "d DATE, t3 TIMESTAMP(3), t6 TIMESTAMP(6), t9 TIMESTAMP(9)",
        );
    }

    #[test]
    fn keys_in_the_order_of_their_first_appearance() {
        check("{\"b\":1}\n\n{\"a\":2,\"b\":3}\r\n{\"c\":4,\"a\":5}", "b BIGINT, a BIGINT, c BIGINT");
    }

    #[test]
    fn types_that_mix() {
        check("{\"a\":1}\n{\"a\":null}\n{\"a\":1.5}", "a DOUBLE");
        check("{\"a\":\"2024-01-01\"}\n{\"a\":\"2024-01-01 00:00:00.1234\"}", "a TIMESTAMP(6)");
        check("{\"a\":\"2024-01-01\"}\n{\"a\":\"x\"}", "a STRING");
        let fault = inferred("{\"a\":1}\n{\"a\":\"x\"}").unwrap_err();
        assert_eq!((fault.start, fault.column.as_deref()), (8, Some("a")));
        assert_eq!(fault.message, "STRING here and BIGINT in records before can't be one type");
        let fault = inferred(r#"{"a":{"b":[1,{}]}}"#).unwrap_err();
        assert_eq!(fault.column.as_deref(), Some("a.b[]"));
        assert_eq!(fault.message, "an object here and BIGINT in records before can't be one type");
    }

    #[test]
    fn files_behind_the_first_add_what_they_have() {
        let mut inference = Inference::default();
        for records in ["{\"a\":1}\n", "", "{\"a\":1.5,\"b\":\"x\"}\n", "{\"c\":1}\n"] {
            inference.add(records.as_bytes(), 2, 64).unwrap();
        }
        assert_eq!(inference.num_records(), 2);
        assert_eq!(format_schema(&inference.schema()), "a DOUBLE, b STRING");
    }

    #[test]
    fn nested_values() {
        check(
            "{\"r\":{\"x\":1,\"y\":[\"a\"]},\"l\":[1,null,2.5],\"e\":[],\"o\":{},\"p\":{\"q\":{}}}\n{\"r\":{\"z\":true}}",
            "r ROW<x BIGINT, y ARRAY<STRING>, z BOOLEAN>, l ARRAY<DOUBLE>, e ARRAY<STRING>",
        );
    }

    #[test]
    fn bad_records_say_nothing_unless_there_is_no_good_one() {
        check("{\"a\":1}\n{\"b\":}\n[2]\n{\"c\":2}", "a BIGINT, c BIGINT");
        assert_eq!(inferred("{\"a\":}\n[2]").unwrap_err().start, 0);
        assert!(inferred("[1]").unwrap_err().message.contains("an array where an object is expected"));
        assert!(infer(b"{\"a\":1}\nx\xff", 1).is_ok());
        let fault = infer(b"\n{\"\xff\":1}\n", 2).unwrap_err();
        assert_eq!((fault.start, fault.message.contains("invalid UTF-8")), (1, true));
        assert!(infer(b"\"\xff\"\n{\"a\":1}\n", 2).is_ok());
        assert_eq!(inferred("").unwrap(), "");
    }
}
