//! Values of every type as text, in every spelling, and in the one that others read too.

use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, Days, NaiveDate};

use super::Noise;
use crate::schema::{BytesFormat, parse_schema};

/// Types, as the language of schemas has them.
pub(in super::super) const TYPES: [&str; 37] = [
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "ARROW('UInt8')",
    "ARROW('UInt16')",
    "ARROW('UInt32')",
    "ARROW('UInt64')",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(4,2)",
    "DECIMAL(9,0)",
    "DECIMAL(18,6)",
    "DECIMAL(38,10)",
    "DECIMAL(60,20)",
    "BOOLEAN",
    "STRING",
    "STRING",
    "ARROW('LargeUtf8')",
    "ARROW('Utf8View')",
    "BYTES",
    "ARROW('LargeBinary')",
    "DATE",
    "TIME(0)",
    "TIME(2)",
    "TIME(3)",
    "TIME(6)",
    "TIME(9)",
    "TIMESTAMP(0)",
    "TIMESTAMP(1)",
    "TIMESTAMP(3)",
    "TIMESTAMP(5)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(3)",
    "TIMESTAMP_LTZ(6)",
    "TIMESTAMP_LTZ(9)",
];

/// With a fraction of the second, and without.
pub(in super::super) const TIMESTAMP_FORMATS: [&str; 2] = ["%d.%m.%Y %H:%M:%S%.f", "%m/%d/%Y %I:%M:%S %p"];

/// One type, and what decides how its values are written.
#[derive(Clone, Debug)]
pub(in super::super) struct Kind {
    pub(in super::super) sql: &'static str,
    pub(in super::super) field: Field,
    class: Class,
}

#[derive(Clone, Copy, Debug)]
enum Class {
    Int { bits: usize, signed: bool },
    Float,
    Decimal { precision: usize, scale: usize },
    Boolean,
    Text,
    Bytes,
    Date,
    Time { digits: usize },
    Timestamp { digits: usize, is_nano: bool, zoned: bool },
}

/// What values may look like.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Spelling {
    /// Only as other readers take them, who then get the same bytes.
    pub(in super::super) is_plain: bool,
    /// Only as JSON has numbers and booleans.
    pub(in super::super) is_json: bool,
    pub(in super::super) bytes_format: BytesFormat,
    /// Digits beyond a DECIMAL's scale are rounded.
    pub(in super::super) rounding: bool,
    /// One of [`TIMESTAMP_FORMATS`], if not ISO 8601.
    pub(in super::super) timestamp_format: Option<&'static str>,
}

impl Kind {
    pub(in super::super) fn new(sql: &'static str, name: &str) -> Self {
        let field = parse_schema(&format!("{name} {sql}")).unwrap().field(0).clone();
        // The digits in brackets, where there are some.
        let digits = |at: usize| -> usize {
            let inner = sql.split(['(', ')']).nth(1).unwrap();
            inner.split(',').nth(at).unwrap().trim().parse().unwrap()
        };
        let int = |bits, signed| Class::Int { bits, signed };
        let class = match field.data_type() {
            DataType::Int8 => int(8, true),
            DataType::Int16 => int(16, true),
            DataType::Int32 => int(32, true),
            DataType::Int64 => int(64, true),
            DataType::UInt8 => int(8, false),
            DataType::UInt16 => int(16, false),
            DataType::UInt32 => int(32, false),
            DataType::UInt64 => int(64, false),
            DataType::Float32 | DataType::Float64 => Class::Float,
            DataType::Decimal128(..) | DataType::Decimal256(..) => {
                Class::Decimal { precision: digits(0), scale: digits(1) }
            }
            DataType::Boolean => Class::Boolean,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Class::Text,
            DataType::Binary | DataType::LargeBinary => Class::Bytes,
            DataType::Date32 => Class::Date,
            DataType::Time32(_) | DataType::Time64(_) => Class::Time { digits: digits(0) },
            DataType::Timestamp(_, zone) => {
                Class::Timestamp { digits: digits(0), is_nano: digits(0) > 6, zoned: zone.is_some() }
            }
            other => panic!("no values of {other}"),
        };
        Self { sql, field, class }
    }

    pub(in super::super) fn with_nullable(mut self, nullable: bool) -> Self {
        self.field = self.field.with_nullable(nullable);
        self
    }

    pub(in super::super) fn is_text(&self) -> bool {
        matches!(self.class, Class::Text)
    }

    /// Says whether JSON writes such values without quotes.
    pub(in super::super) fn is_bare_in_json(&self) -> bool {
        matches!(self.class, Class::Int { .. } | Class::Float | Class::Decimal { .. } | Class::Boolean)
    }

    pub(in super::super) fn is_float(&self) -> bool {
        matches!(self.class, Class::Float)
    }

    pub(in super::super) fn is_decimal(&self) -> bool {
        matches!(self.class, Class::Decimal { .. })
    }

    /// The field for a reader that knows no bytes and no long text, and takes empty text for null.
    pub(in super::super) fn field_for_others(&self) -> Arc<Field> {
        let field = self.field.clone().with_nullable(true);
        Arc::new(match field.data_type() {
            DataType::Binary | DataType::LargeBinary | DataType::LargeUtf8 => field.with_data_type(DataType::Utf8),
            _ => field,
        })
    }

    /// Writes a value that isn't null and no text: into `ours` in some spelling, into `theirs` as others read it.
    pub(in super::super) fn write(
        &self,
        noise: &mut Noise,
        spelling: Spelling,
        ours: &mut String,
        theirs: &mut String,
    ) {
        ours.clear();
        theirs.clear();
        match self.class {
            Class::Int { bits, signed } => int(noise, bits, signed, theirs),
            Class::Float => {
                if float(noise, spelling, ours, theirs) {
                    return;
                }
            }
            Class::Decimal { precision, scale } => {
                decimal(noise, precision, scale, spelling, ours, theirs);
                return;
            }
            Class::Boolean => {
                let value = noise.once_in(2);
                theirs.push_str(if value { "true" } else { "false" });
                if !spelling.is_json {
                    let spelled: &[&str] = match (value, spelling.is_plain) {
                        (true, true) => &["true", "TRUE", "True"],
                        (false, true) => &["false", "FALSE", "fAlse"],
                        (true, false) => &["true", "TRUE", "tRue", "t", "T", "1"],
                        (false, false) => &["false", "FALSE", "falsE", "f", "F", "0"],
                    };
                    ours.push_str(noise.pick(spelled));
                    return;
                }
            }
            Class::Text => theirs.push_str("text is made elsewhere"),
            Class::Bytes => {
                // No bytes at all are null in CSV.
                let len = noise.below(20) + usize::from(!spelling.is_json);
                let bytes: Vec<u8> = (0..len).map(|_| noise.next() as u8).collect();
                theirs.push_str(&text_of_bytes(&bytes, spelling.bytes_format));
                if !spelling.is_plain && matches!(spelling.bytes_format, BytesFormat::Hex) && noise.once_in(3) {
                    ours.push_str(&theirs.to_uppercase());
                    return;
                }
            }
            Class::Date => date(noise, theirs),
            Class::Time { digits } => {
                time(noise, theirs);
                fraction(noise, digits, spelling, ours, theirs);
                return;
            }
            Class::Timestamp { digits, is_nano, zoned } => {
                timestamp(noise, digits, is_nano, zoned, spelling, ours, theirs);
                return;
            }
        }
        let is_signed_text = matches!(self.class, Class::Int { .. } | Class::Float);
        if is_signed_text && !spelling.is_plain && !spelling.is_json && noise.once_in(8) {
            // Zeros and signs that change nothing.
            let (sign, digits) = match theirs.strip_prefix('-') {
                Some(digits) => ("-", digits),
                None => (noise.pick(&["", "+"]), theirs.as_str()),
            };
            let _ = write!(ours, "{sign}{}{digits}", noise.pick(&["", "0", "000", "00000000000000000000"]));
        } else {
            ours.push_str(theirs);
        }
    }
}

pub(in super::super) fn text_of_bytes(bytes: &[u8], format: BytesFormat) -> String {
    match format {
        BytesFormat::Base64 => BASE64_STANDARD.encode(bytes),
        BytesFormat::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn int(noise: &mut Noise, bits: usize, signed: bool, text: &mut String) {
    let number = noise.next() >> (64 - bits);
    // Of every length, and often enough the first and the last of all.
    let number = match noise.below(16) {
        0 => 0,
        1 => u64::MAX >> (64 - bits),
        2 => 1 << (bits - 1),
        _ => number >> noise.below(bits),
    };
    let _ = match (signed, bits) {
        (false, _) => write!(text, "{number}"),
        (true, 8) => write!(text, "{}", number as i8),
        (true, 16) => write!(text, "{}", number as i16),
        (true, 32) => write!(text, "{}", number as i32),
        (true, _) => write!(text, "{}", number as i64),
    };
}

fn digits(noise: &mut Noise, len: usize, text: &mut String) {
    for _ in 0..len {
        text.push((b'0' + noise.below(10) as u8) as char);
    }
}

/// Digits that don't begin with a 0, unless it is the only one.
fn whole_digits(noise: &mut Noise, len: usize, text: &mut String) {
    if len <= 1 {
        return digits(noise, 1, text);
    }
    text.push((b'1' + noise.below(9) as u8) as char);
    digits(noise, len - 1, text);
}

/// Says whether `ours` is written too.
fn float(noise: &mut Noise, spelling: Spelling, ours: &mut String, theirs: &mut String) -> bool {
    let sign = noise.pick(&["", "", "-"]);
    match noise.below(12) {
        0 | 1 => {
            // The shortest text of any double.
            let value = f64::from_bits(noise.next());
            let value = if value.is_finite() { value } else { 0.5 };
            let _ = write!(theirs, "{value:e}");
        }
        2 => {
            let value = f32::from_bits(noise.next() as u32);
            let value = if value.is_finite() { value } else { -0.0 };
            let _ = write!(theirs, "{value}");
        }
        3..=5 => {
            theirs.push_str(sign);
            let len = 1 + noise.below(22);
            whole_digits(noise, len, theirs);
        }
        6 => {
            theirs.push_str(sign);
            let len = 1 + noise.below(5);
            whole_digits(noise, len, theirs);
            let _ =
                write!(theirs, ".{}{}", noise.below(1000), noise.pick(&["e5", "E-7", "e+20", "e-320", "E308", "e0"]));
        }
        7 if !spelling.is_plain && !spelling.is_json => {
            let (text, canonical) = noise.pick(&[
                (".5", "0.5"),
                ("5.", "5.0"),
                ("-.25", "-0.25"),
                ("+1.5", "1.5"),
                ("NaN", "NaN"),
                ("Infinity", "inf"),
                ("-Infinity", "-inf"),
                ("1e400", "inf"),
                ("1e-400", "0.0"),
            ]);
            ours.push_str(text);
            theirs.push_str(canonical);
            return true;
        }
        _ => {
            theirs.push_str(sign);
            let len = 1 + noise.below(9);
            whole_digits(noise, len, theirs);
            theirs.push('.');
            let len = 1 + noise.below(18);
            digits(noise, len, theirs);
        }
    }
    false
}

fn decimal(
    noise: &mut Noise,
    precision: usize,
    scale: usize,
    spelling: Spelling,
    ours: &mut String,
    theirs: &mut String,
) {
    // One digit fewer, so that rounding up leads into no overflow.
    let whole_len = (precision - scale).saturating_sub(usize::from(spelling.rounding));
    let len = noise.below(whole_len + 1).max(1);
    let mut number = String::new();
    if whole_len == 0 {
        number.push('0');
    } else {
        whole_digits(noise, len, &mut number);
    }
    let fraction_len = noise.below(scale + 1);
    let mut fraction = String::new();
    digits(noise, fraction_len, &mut fraction);
    let sign = noise.pick(&["", "", "-"]);
    let point = if fraction.is_empty() { "" } else { "." };
    if !spelling.rounding || spelling.is_plain || fraction_len < scale || noise.once_in(2) {
        let _ = write!(theirs, "{sign}{number}{point}{fraction}");
        let is_free = !spelling.is_plain && !spelling.is_json;
        match noise.below(8) {
            0 if is_free && number == "0" && !fraction.is_empty() => {
                let _ = write!(ours, "{sign}.{fraction}");
            }
            1 if is_free && sign.is_empty() => {
                let _ = write!(ours, "+{theirs}");
            }
            2 if is_free => {
                let _ = write!(ours, "{sign}000{number}{point}{fraction}");
            }
            _ => ours.push_str(theirs),
        }
        return;
    }
    // Half away from zero: what follows a digit of 5 or more makes the number one greater.
    let mut more = String::new();
    let more_len = 1 + noise.below(4);
    digits(noise, more_len, &mut more);
    let _ = write!(ours, "{sign}{number}.{fraction}{more}");
    let mut all = format!("{number}{fraction}").into_bytes();
    if more.as_bytes()[0] >= b'5' {
        for digit in all.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
        if all.iter().all(|digit| *digit == b'0') {
            all.insert(0, b'1');
        }
    }
    let (whole, fraction) = all.split_at(all.len() - scale);
    let text = |digits: &[u8]| String::from_utf8_lossy(digits).into_owned();
    let point = if scale == 0 { "" } else { "." };
    let _ = write!(theirs, "{sign}{}{point}{}", text(whole), text(fraction));
}

fn date(noise: &mut Noise, text: &mut String) {
    let first = NaiveDate::from_ymd_opt(1, 1, 1).unwrap();
    // To the last day of year 9999.
    let _ = write!(text, "{}", (first + Days::new(noise.below(3_652_059) as u64)).format("%Y-%m-%d"));
}

fn time(noise: &mut Noise, text: &mut String) {
    let _ = write!(text, "{:02}:{:02}:{:02}", noise.below(24), noise.below(60), noise.below(60));
}

/// Adds digits behind the second to what stands in `theirs`; into `ours` perhaps more of them than are kept.
fn fraction(noise: &mut Noise, kept: usize, spelling: Spelling, ours: &mut String, theirs: &mut String) {
    let len = noise.below(kept + 1);
    if len > 0 {
        theirs.push('.');
        digits(noise, len, theirs);
    }
    ours.push_str(theirs);
    if len == kept && !spelling.is_plain && noise.once_in(3) {
        if len == 0 {
            ours.push('.');
        }
        let more = 1 + noise.below(11 - kept);
        digits(noise, more, ours);
    }
}

fn timestamp(
    noise: &mut Noise,
    kept: usize,
    is_nano: bool,
    zoned: bool,
    spelling: Spelling,
    ours: &mut String,
    theirs: &mut String,
) {
    // Nanoseconds end in 1677 and 2262.
    let seconds = match is_nano {
        true => noise.below(18_000_000_000) as i64 - 9_000_000_000,
        false => noise.below(315_537_000_000) as i64 - 62_135_500_000,
    };
    let time = DateTime::from_timestamp(seconds, 0).unwrap();
    if let Some(format) = spelling.timestamp_format {
        let has_fraction = format.ends_with("%.f");
        let _ = write!(ours, "{}", time.format(format));
        let _ = write!(theirs, "{}", time.format("%Y-%m-%d %H:%M:%S"));
        if has_fraction {
            let len = noise.below(10);
            let mut fraction = String::new();
            digits(noise, len, &mut fraction);
            let point = |fraction: &str| if fraction.is_empty() { "" } else { "." };
            let cut = &fraction[..len.min(kept)];
            let _ = write!(ours, "{}{fraction}", point(&fraction));
            let _ = write!(theirs, "{}{cut}", point(cut));
        }
        return;
    }
    let separator = if noise.once_in(3) { 'T' } else { ' ' };
    let _ = write!(theirs, "{}{separator}{}", time.format("%Y-%m-%d"), time.format("%H:%M:%S"));
    fraction(noise, kept, spelling, ours, theirs);
    let zone = match noise.below(if zoned { 4 } else { 12 }) {
        0 => "Z",
        1 => noise.pick(&["+02:00", "-11:30", "+00:00", "+14:00"]),
        _ => "",
    };
    theirs.push_str(zone);
    ours.push_str(zone);
}
