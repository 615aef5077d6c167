//! Nested values beside another reader: what we make of ARRAY, MAP and ROW is what arrow-json makes of them.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields};
use proptest::prelude::*;
use proptest::sample::select;

use super::JsonOptions;
use super::decoder::JsonPlan;
use crate::format::{DecodeStrictly, RecordDecoder};
use crate::schema::parse_schema;

const SCHEMAS: [&str; 7] = [
    "a ARRAY<INT>, b ARRAY<STRING NOT NULL>, c ARRAY<ARRAY<DOUBLE>>",
    "m MAP<STRING, BIGINT>, n MAP<STRING, ARRAY<BOOLEAN>>, o MAP<INT, STRING>",
    "r ROW<i INT, s STRING, d DOUBLE>, t ROW<u ROW<v ROW<w BIGINT>>>",
    "r ROW<i INT NOT NULL, l ARRAY<INT NOT NULL> NOT NULL>",
    "l ARRAY<ROW<k STRING, v MAP<STRING, ROW<x INT, y ARRAY<DATE>>>>>",
    "m MAP<STRING, MAP<STRING, ROW<n DECIMAL(9,2), t TIMESTAMP(3)>>>, i INT",
    "h ARRAY<ROW<key STRING, value STRING>>, id BIGINT NOT NULL, b BOOLEAN",
];

/// Writes a value of a type, as numbers choose it.
struct Writer<'a> {
    text: String,
    choices: std::iter::Cycle<std::slice::Iter<'a, u32>>,
}

impl Writer<'_> {
    fn choice(&mut self, of: u32) -> u32 {
        // No number chooses twice alike, however few there are.
        let drawn = self.choices.next().copied().unwrap_or(0);
        drawn.wrapping_add(self.text.len() as u32) % of
    }

    fn between(&mut self, parts: usize) {
        if parts > 0 {
            let comma = if self.choice(4) == 0 { " , " } else { "," };
            self.text.push_str(comma);
        }
    }

    fn row(&mut self, fields: &Fields) {
        self.text.push('{');
        let mut num_members = 0;
        // In the order of the schema, or the other way round.
        let backwards = self.choice(3) == 0;
        for index in 0..fields.len() {
            let field = &fields[if backwards { fields.len() - 1 - index } else { index }];
            if self.choice(8) == 0 {
                self.between(num_members);
                self.text.push_str("\"other\":{\"a\":[1,{}]}");
                num_members += 1;
            }
            if field.is_nullable() && self.choice(6) == 0 {
                continue;
            }
            self.between(num_members);
            write!(self.text, "\"{}\":", field.name()).unwrap();
            self.value(field);
            num_members += 1;
        }
        self.text.push('}');
    }

    fn value(&mut self, field: &Field) {
        if field.is_nullable() && self.choice(6) == 0 {
            self.text.push_str("null");
            return;
        }
        let number = i64::from(self.choice(1 << 30)) - (1 << 29);
        match field.data_type() {
            DataType::Int32 => write!(self.text, "{number}").unwrap(),
            DataType::Int64 => write!(self.text, "{}", number * 12_345_678).unwrap(),
            DataType::Float64 => write!(self.text, "{}", number as f64 / 1024.0).unwrap(),
            DataType::Boolean => write!(self.text, "{}", number % 2 == 0).unwrap(),
            DataType::Decimal128(..) => {
                write!(self.text, "{}.{:02}", number / 1000, number.unsigned_abs() % 100).unwrap()
            }
            DataType::Date32 => write!(
                self.text,
                "\"20{:02}-0{}-1{}\"",
                number.rem_euclid(100),
                1 + number.rem_euclid(9),
                number.rem_euclid(10)
            )
            .unwrap(),
            DataType::Timestamp(..) => {
                write!(self.text, "\"2024-02-29T12:{:02}:59.{:03}Z\"", number.rem_euclid(60), number.rem_euclid(1000))
                    .unwrap()
            }
            DataType::Utf8 => {
                let texts = [
                    "",
                    "a",
                    "é\\u00e9\\ud83d\\ude00",
                    "\\\"q\\\" \\\\ \\n\\t",
                    "a longer text than the others are",
                    "null",
                    "1",
                ];
                write!(self.text, "\"{}\"", texts[number.rem_euclid(7) as usize]).unwrap();
            }
            DataType::List(item) => {
                self.text.push('[');
                for index in 0..self.choice(4) as usize {
                    self.between(index);
                    self.value(item);
                }
                self.text.push(']');
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(pair) = entries.data_type() else { panic!("a map of {entries}") };
                self.text.push('{');
                for index in 0..self.choice(4) as usize {
                    self.between(index);
                    let prefix = if *pair[0].data_type() == DataType::Utf8 { "k\\u00e9 " } else { "" };
                    write!(self.text, "\"{prefix}{index}\": ").unwrap();
                    self.value(&pair[1]);
                }
                self.text.push('}');
            }
            DataType::Struct(fields) => self.row(fields),
            other => panic!("no values of {other}"),
        }
    }
}

fn ours(schema: &Arc<arrow::datatypes::Schema>, records: &str) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
    let mut decoder = JsonPlan::try_new(columns, &JsonOptions::default()).unwrap().decoder(4).unwrap();
    decoder.decode_all(records.as_bytes(), &mut Vec::new()).unwrap_or_else(|fault| panic!("{fault:?} in {records}"));
    decoder.finish().unwrap()
}

fn theirs(schema: &Arc<arrow::datatypes::Schema>, records: &str) -> RecordBatch {
    let mut decoder = arrow_json::ReaderBuilder::new(Arc::clone(schema)).build_decoder().unwrap();
    assert_eq!(decoder.decode(records.as_bytes()).unwrap(), records.len());
    decoder.flush().unwrap().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn nested_values_are_what_arrow_json_makes_of_them(
        schema in select(SCHEMAS.to_vec()),
        num_records in 1usize..12,
        choices in prop::collection::vec(any::<u32>(), 1..200),
    ) {
        let schema = Arc::new(parse_schema(schema).unwrap());
        let mut writer = Writer { text: String::new(), choices: choices.iter().cycle() };
        for _ in 0..num_records {
            writer.row(schema.fields());
            writer.text.push('\n');
        }
        let (ours, theirs) = (ours(&schema, &writer.text), theirs(&schema, &writer.text));
        prop_assert_eq!(ours.num_rows(), num_records);
        prop_assert_eq!(ours, theirs, "{}", writer.text);
    }
}

/// Where we differ, and why.
#[test]
fn arrow_json_takes_more_and_keeps_keys_of_maps_that_stand_twice() {
    let schema = Arc::new(parse_schema("m MAP<STRING, INT>").unwrap());
    let value = |batch: RecordBatch| {
        let options = arrow::util::display::FormatOptions::default();
        arrow::util::display::ArrayFormatter::try_new(batch.column(0), &options).unwrap().value(0).to_string()
    };
    // A map has a key once: of one that stands twice the last value counts, as everywhere in JSON.
    let twice = "{\"m\":{\"a\":1,\"b\":3,\"a\":2}}\n";
    assert_eq!(value(ours(&schema, twice)), "{a: 2, b: 3}");
    assert_eq!(value(theirs(&schema, twice)), "{a: 1, b: 3, a: 2}");
    // A string isn't a number, nor is a number with a point whole, unless that is asked for.
    for record in ["{\"m\":{\"a\":\"1\"}}\n", "{\"m\":{\"a\":1.0}}\n"] {
        assert_eq!(value(theirs(&schema, record)), "{a: 1}");
        let columns = schema.fields().iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
        let mut decoder = JsonPlan::try_new(columns, &JsonOptions::default()).unwrap().decoder(4).unwrap();
        assert!(decoder.decode_all(record.as_bytes(), &mut Vec::new()).is_err());
    }
}
