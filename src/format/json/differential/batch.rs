//! Batches of generated records: what they look like, and what is known of them.

use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::format::differential::Noise;
use crate::format::differential::values::{Kind, Spelling, TYPES};
use crate::format::json::JsonOptions;
use crate::format::json::decoder::JsonPlan;
use crate::schema::{BytesFormat, parse_schema};

const NESTED: [&str; 5] = [
    "ARRAY<INT>",
    "ROW<a INT, b STRING, t TIMESTAMP(3)>",
    "MAP<STRING, DECIMAL(18,6)>",
    "ARRAY<ROW<x ARRAY<STRING>, m MAP<STRING, BOOLEAN>>>",
    "ROW<r ROW<d DATE, f DOUBLE>>",
];

/// A type, and what its values are made of.
pub(super) enum Shape {
    Scalar(Kind),
    List(Box<Shape>),
    Row(Vec<(String, Shape)>),
    Map(Box<Shape>),
}

pub(super) struct Column {
    pub(super) sql: &'static str,
    pub(super) field: Field,
    pub(super) shape: Shape,
}

/// What a batch's records look like.
pub(super) struct Batch {
    pub(super) options: JsonOptions,
    pub(super) columns: Vec<Column>,
    /// Whether arrow-json reads the same bytes alike.
    pub(super) is_plain: bool,
    has_bad_records: bool,
    /// Most records have their keys in this order, with these blanks.
    order: Vec<usize>,
    blanks: [&'static str; 4],
}

/// Generated records, and what is known of them.
#[derive(Default)]
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    /// Where the good ones start, and the bad ones.
    pub(super) starts: Vec<u64>,
    pub(super) bad_starts: Vec<usize>,
    /// The good ones for arrow-json.
    pub(super) canonical: String,
}

fn shape_of(sql: &'static str, field: &Field) -> Shape {
    let below = |field: &Field| -> Shape {
        // How many digits a time has stands beside its type.
        let is_same = |sql: &&str| {
            let known = parse_schema(&format!("c {sql}")).unwrap();
            known.field(0).data_type() == field.data_type() && known.field(0).metadata() == field.metadata()
        };
        let known = TYPES.into_iter().find(is_same);
        shape_of(known.unwrap_or_default(), field)
    };
    match field.data_type() {
        DataType::List(item) => Shape::List(Box::new(below(item))),
        DataType::Struct(fields) => {
            Shape::Row(fields.iter().map(|field| (field.name().clone(), below(field))).collect())
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => Shape::Map(Box::new(below(&pair[1]))),
            other => panic!("a map of {other}"),
        },
        _ => Shape::Scalar(Kind::new(sql, "c")),
    }
}

impl Batch {
    pub(super) fn new(noise: &mut Noise) -> Self {
        let is_plain = noise.once_in(3);
        let mut columns = Vec::new();
        for index in 0..1 + noise.below(10) {
            let sql = if noise.once_in(6) { noise.pick(&NESTED) } else { noise.pick(&TYPES) };
            let field = parse_schema(&format!("c{index} {sql}")).unwrap().field(0).clone();
            let shape = shape_of(sql, &field);
            columns.push(Column { sql, field: field.with_nullable(!noise.once_in(4)), shape });
        }
        let mut order: Vec<usize> = (0..columns.len()).collect();
        if noise.once_in(2) {
            shuffle(noise, &mut order);
        }
        let options = JsonOptions {
            ignore_parse_errors: false,
            fail_on_missing_field: noise.once_in(4),
            case_insensitive_names: !is_plain && noise.once_in(3),
            coerce: !is_plain && noise.once_in(3),
            max_depth: noise.pick(&[64, 64, 8]),
        };
        let blanks = match noise.below(3) {
            0 => ["", "", "", ""],
            1 => ["", " ", " ", ""],
            _ => std::array::from_fn(|_| noise.pick(&["", " ", "\t", " \r "])),
        };
        let has_bad_records = !is_plain && noise.once_in(2);
        Self { options, columns, is_plain, has_bad_records, order, blanks }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(|column| column.field.clone()).collect::<Vec<_>>()))
    }

    pub(super) fn plan(&self) -> JsonPlan {
        let columns = self.schema().fields().iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
        JsonPlan::try_new(columns, &self.options).unwrap()
    }

    pub(super) fn write(&self, noise: &mut Noise, num_records: usize) -> Written {
        let mut written = Written::default();
        let (mut record, mut canonical) = (String::new(), String::new());
        let line_end = noise.below(3);
        for index in 0..num_records {
            if noise.once_in(50) {
                written.bytes.extend(noise.pick(&[b"\n".as_slice(), b" \t\r\n", b"\n\n"]));
            }
            if self.has_bad_records && noise.once_in(100) {
                written.bad_starts.push(written.bytes.len());
                written.bytes.extend(self.bad(noise));
            } else {
                written.starts.push(written.bytes.len() as u64);
                record.clear();
                canonical.clear();
                self.write_record(noise, &mut record, &mut canonical);
                written.bytes.extend(record.as_bytes());
                written.canonical.push_str(&canonical);
                written.canonical.push('\n');
            }
            match line_end {
                _ if index + 1 == num_records && noise.once_in(2) => {}
                0 => written.bytes.push(b'\n'),
                1 => written.bytes.extend(b"\r\n"),
                _ => written.bytes.extend(noise.pick(&[b"\n".as_slice(), b"\r\n"])),
            }
        }
        written
    }

    fn write_record(&self, noise: &mut Noise, ours: &mut String, theirs: &mut String) {
        let is_usual = !noise.once_in(10);
        let mut order = self.order.clone();
        if !is_usual && noise.once_in(2) {
            shuffle(noise, &mut order);
        }
        let [open, colon, comma, close] = self.blanks;
        let mut values: Vec<Option<String>> = self.columns.iter().map(|_| None).collect();
        let mut is_first = true;
        let mut separate = |ours: &mut String| {
            if !std::mem::take(&mut is_first) {
                let _ = write!(ours, "{close},{comma}");
            }
        };
        ours.push_str(open);
        ours.push('{');
        for index in order {
            let column = &self.columns[index];
            if !is_usual && noise.once_in(4) {
                // Keys that nobody wants.
                separate(ours);
                let _ = write!(ours, "\"{}\":{colon}", noise.pick(&["other", "", "c", "c00", "\\u0063\\\"", "é"]));
                any_value(noise, 4, ours);
            }
            if !is_usual && !self.is_plain && noise.once_in(6) {
                // Of a key that stands twice the last value counts, whatever the first one is.
                separate(ours);
                let _ = write!(ours, "\"{}\":", column.field.name());
                any_value(noise, 3, ours);
            } else if !is_usual && !self.options.fail_on_missing_field && column.field.is_nullable() && noise.once_in(4)
            {
                continue;
            }
            separate(ours);
            self.write_key(noise, column.field.name(), is_usual, ours);
            let _ = write!(ours, "{}:{colon}", if colon == " " { "" } else { colon });
            let mut value = String::new();
            if column.field.is_nullable() && noise.once_in(8) {
                ours.push_str("null");
                value.push_str("null");
            } else {
                self.write_value(noise, &column.shape, ours, &mut value);
            }
            values[index] = Some(value);
        }
        ours.push_str(close);
        ours.push('}');
        ours.push_str(open);
        let separators = std::iter::once('{').chain(std::iter::repeat(','));
        for ((column, value), separator) in self.columns.iter().zip(&values).zip(separators) {
            let _ = write!(theirs, "{separator}\"{}\":{}", column.field.name(), value.as_deref().unwrap_or("null"));
        }
        theirs.push('}');
    }

    fn write_key(&self, noise: &mut Noise, name: &str, is_usual: bool, ours: &mut String) {
        let spelled = match name.strip_prefix('c') {
            Some(rest) if !is_usual && noise.once_in(4) => format!("\\u0063{rest}"),
            Some(rest) if self.options.case_insensitive_names && noise.once_in(3) => format!("C{rest}"),
            _ => name.to_owned(),
        };
        let _ = write!(ours, "\"{spelled}\"");
    }

    fn write_value(&self, noise: &mut Noise, shape: &Shape, ours: &mut String, theirs: &mut String) {
        let both = |text: &str, ours: &mut String, theirs: &mut String| {
            ours.push_str(text);
            theirs.push_str(text);
        };
        let blank = |noise: &mut Noise, ours: &mut String| ours.push_str(noise.pick(&["", "", "", " ", "\t "]));
        let nullable = |noise: &mut Noise, shape: &Shape, ours: &mut String, theirs: &mut String| {
            if noise.once_in(6) {
                both("null", ours, theirs);
            } else {
                self.write_value(noise, shape, ours, theirs);
            }
        };
        match shape {
            Shape::Scalar(kind) => self.write_scalar(noise, kind, ours, theirs),
            Shape::List(item) => {
                both("[", ours, theirs);
                for index in 0..noise.below(4) {
                    if index > 0 {
                        both(",", ours, theirs);
                    }
                    blank(noise, ours);
                    nullable(noise, item, ours, theirs);
                    blank(noise, ours);
                }
                both("]", ours, theirs);
            }
            Shape::Row(fields) => {
                both("{", ours, theirs);
                let mut is_first = true;
                for (name, shape) in fields {
                    if !self.options.fail_on_missing_field && noise.once_in(8) {
                        continue;
                    }
                    if !std::mem::take(&mut is_first) {
                        both(",", ours, theirs);
                    }
                    blank(noise, ours);
                    both(&format!("\"{name}\":"), ours, theirs);
                    blank(noise, ours);
                    nullable(noise, shape, ours, theirs);
                }
                both("}", ours, theirs);
            }
            Shape::Map(value) => {
                both("{", ours, theirs);
                for index in 0..noise.below(4) {
                    if index > 0 {
                        both(",", ours, theirs);
                    }
                    both(&format!("\"k{index}\":"), ours, theirs);
                    nullable(noise, value, ours, theirs);
                }
                both("}", ours, theirs);
            }
        }
    }

    fn write_scalar(&self, noise: &mut Noise, kind: &Kind, ours: &mut String, theirs: &mut String) {
        let spelling = Spelling {
            is_plain: self.is_plain,
            is_json: true,
            bytes_format: BytesFormat::Base64,
            rounding: false,
            timestamp_format: None,
        };
        let (mut our_value, mut their_value) = (String::new(), String::new());
        let is_free = !self.is_plain;
        if kind.is_text() {
            if self.options.coerce && noise.once_in(6) {
                // What is no text is read as it is written.
                let value = noise.pick(&["1.50", "true", "-0", "1e3", "false", "123456789012345678901234567890"]);
                ours.push_str(value);
                let _ = write!(theirs, "\"{value}\"");
                return;
            }
            text(noise, &mut their_value);
            write_string(noise, &their_value, ours);
            theirs.push_str(&serde_json::to_string(&their_value).unwrap());
            return;
        }
        if is_free && kind.is_float() && noise.once_in(20) {
            let (value, their_value) = noise.pick(&[("NaN", "NaN"), ("Infinity", "inf"), ("-Infinity", "-inf")]);
            let _ = write!(ours, "\"{value}\"");
            let _ = write!(theirs, "\"{their_value}\"");
            return;
        }
        kind.write(noise, spelling, &mut our_value, &mut their_value);
        if !kind.is_bare_in_json() {
            // Now and then with escapes that change nothing.
            match noise.once_in(10) {
                true => write_string(noise, &our_value, ours),
                false => ours.extend(["\"", &our_value, "\""]),
            }
            theirs.extend(["\"", &their_value, "\""]);
            return;
        }
        theirs.push_str(&their_value);
        let may_quote = is_free && (self.options.coerce || kind.is_decimal());
        match may_quote && noise.once_in(4) {
            true => ours.extend(["\"", &our_value, "\""]),
            false => ours.push_str(&our_value),
        }
    }

    /// A record with something wrong, without its line end.
    fn bad(&self, noise: &mut Noise) -> Vec<u8> {
        let name = self.columns[0].field.name();
        match noise.below(8) {
            0 => b"[{\"c0\":1}]".to_vec(),
            1 => b"{\"c0\":null} {}".to_vec(),
            2 => format!("{{\"{name}\":}}").into_bytes(),
            3 => b"{\"other\":\"\xff\"}".to_vec(),
            4 => b"{\"other\":\"\\ud800\"}".to_vec(),
            5 => format!("{{\"other\":{}1{}}}", "[".repeat(70), "]".repeat(70)).into_bytes(),
            6 => b"{\"other\":01}".to_vec(),
            _ => b"{\"other\":1".to_vec(),
        }
    }
}

fn shuffle(noise: &mut Noise, order: &mut [usize]) {
    for place in (1..order.len()).rev() {
        order.swap(place, noise.below(place + 1));
    }
}

fn text(noise: &mut Noise, text: &mut String) {
    for _ in 0..noise.below(8) {
        match noise.below(16) {
            0 => text.push('"'),
            1 => text.push('\\'),
            2 => text.push_str("\n\r\t"),
            3 => text.push('é'),
            4 => text.push('😀'),
            5 => text.push_str("{}[]:,"),
            6 => text.push(char::from(noise.below(32) as u8)),
            7 => text.push_str(&"x".repeat(noise.below(80))),
            8 => text.push('/'),
            _ => text.extend((0..noise.below(9)).map(|_| char::from(b'a' + noise.below(26) as u8))),
        }
    }
}

/// A string whose characters stand there as they are, or as one of their escapes.
fn write_string(noise: &mut Noise, text: &str, ours: &mut String) {
    ours.push('"');
    let rarely = 2 + noise.below(30);
    for c in text.chars() {
        let short = match c {
            '"' => Some('"'),
            '\\' => Some('\\'),
            '/' => Some('/'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            _ => None,
        };
        let has_to = matches!(c, '"' | '\\' | '\0'..='\x1f');
        if !has_to && !noise.once_in(rarely) {
            ours.push(c);
            continue;
        }
        match short {
            Some(short) if noise.once_in(2) => ours.extend(['\\', short]),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = match noise.once_in(2) {
                        true => write!(ours, "\\u{unit:04x}"),
                        false => write!(ours, "\\u{unit:04X}"),
                    };
                }
            }
        }
    }
    ours.push('"');
}

/// A value of any kind, nested no deeper than `depth`.
fn any_value(noise: &mut Noise, depth: usize, ours: &mut String) {
    match noise.below(if depth == 0 { 4 } else { 6 }) {
        0 => ours.push_str(noise.pick(&["null", "true", "false"])),
        1 => ours.push_str(noise.pick(&["0", "-1.5e+3", "123456789012345678901234567890", "0.0"])),
        2 => ours.push_str(noise.pick(&["\"\"", "\"\\\"\\\\\"", "\"{\\\"c0\\\":1}\"", "\"é\""])),
        3 => {
            let mut value = String::new();
            text(noise, &mut value);
            write_string(noise, &value, ours);
        }
        4 => {
            ours.push('[');
            for index in 0..noise.below(3) {
                ours.push_str(if index > 0 { " ," } else { "" });
                any_value(noise, depth - 1, ours);
            }
            ours.push(']');
        }
        _ => {
            ours.push('{');
            for index in 0..noise.below(3) {
                let _ = write!(ours, "{}\"c{index}\" : ", if index > 0 { "," } else { "" });
                any_value(noise, depth - 1, ours);
            }
            ours.push('}');
        }
    }
}
