//! How typed values become text: the other direction of [`crate::schema`]'s rules, which read it back.
//!
//! The hot paths append to the buffer by hand. A column is unpacked once per batch ([`TextColumn`]); its
//! values are then written one by one, in any row order.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, LargeBinaryArray, LargeStringArray, StringArray,
    StringViewArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, Result};
use crate::schema::{precision, ticks_per_second, type_name, unit_digits};

const SECONDS_PER_DAY: i64 = 86_400;

/// One column of a batch, ready to be written value by value.
#[derive(Debug)]
pub(in crate::sink) struct TextColumn {
    nulls: Option<NullBuffer>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Boolean(BooleanBuffer),
    Int8(ScalarBuffer<i8>),
    Int16(ScalarBuffer<i16>),
    Int32(ScalarBuffer<i32>),
    Int64(ScalarBuffer<i64>),
    UInt8(ScalarBuffer<u8>),
    UInt16(ScalarBuffer<u16>),
    UInt32(ScalarBuffer<u32>),
    UInt64(ScalarBuffer<u64>),
    Float32(ScalarBuffer<f32>),
    Float64(ScalarBuffer<f64>),
    Decimal128(ScalarBuffer<i128>, i8),
    Decimal256(ScalarBuffer<i256>, i8),
    Date(ScalarBuffer<i32>),
    Time(ScalarBuffer<i64>, Ticks),
    Stamp(ScalarBuffer<i64>, Ticks, Zone),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    BytesView(BinaryViewArray),
    List(OffsetBuffer<i32>, Box<TextColumn>),
    LargeList(OffsetBuffer<i64>, Box<TextColumn>),
    Map(OffsetBuffer<i32>, Box<TextColumn>, Box<TextColumn>),
    Row(Vec<(String, TextColumn)>),
}

/// What one tick of a time is, and how many digits behind the second are written.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    per_second: i64,
    digits: u8,
}

impl Ticks {
    fn new(unit: TimeUnit, field: &Field) -> Self {
        let digits = unit_digits(unit);
        Self { per_second: ticks_per_second(unit), digits: precision(field).unwrap_or(digits).min(digits) }
    }
}

/// Whether a timestamp is an instant, written in UTC with a `Z` behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Local,
    Utc,
}

/// The type a column is converted to before it is written, if its own isn't written as it is.
fn written_as(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(TimeUnit::Microsecond) => DataType::Time64(TimeUnit::Nanosecond),
        DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::FixedSizeList(element, _) | DataType::ListView(element) => DataType::List(Arc::clone(element)),
        DataType::LargeListView(element) => DataType::LargeList(Arc::clone(element)),
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::Duration(_) | DataType::Interval(_) => DataType::Utf8,
        _ => return None,
    })
}

/// Says whether a column can be written as text.
///
/// # Errors
/// [`Error::Schema`] that names the column.
pub(super) fn check_type(field: &Field) -> Result<()> {
    match field.data_type() {
        DataType::Union(..) => Err(unwritable(field)),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::Map(element, _) => check_type(element),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| check_type(field)),
        other => match written_as(other) {
            Some(written) if !can_cast_types(other, &written) => Err(unwritable(field)),
            Some(written) => check_type(&field.clone().with_data_type(written)),
            None => Ok(()),
        },
    }
}

fn unwritable(field: &Field) -> Error {
    Error::Schema(format!("column {}: {} can't be written as text", field.name(), type_name(field)))
}

impl TextColumn {
    /// Unpacks a column of the type of `field`.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type, or a value, that can't be written.
    pub(super) fn try_new(array: &ArrayRef, field: &Field) -> Result<Self> {
        use TimeUnit::*;
        let data_type = array.data_type();
        if let Some(written) = written_as(data_type) {
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            let cast = cast_with_options(array, &written, &strict)
                .map_err(|e| Error::Schema(format!("column {}: {e}", field.name())))?;
            // The field keeps what it says of digits.
            return Self::try_new(&cast, field);
        }
        let values = match data_type {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(array.as_boolean().values().clone()),
            DataType::Int8 => Values::Int8(array.as_primitive::<Int8Type>().values().clone()),
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().values().clone()),
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().values().clone()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values().clone()),
            DataType::UInt8 => Values::UInt8(array.as_primitive::<UInt8Type>().values().clone()),
            DataType::UInt16 => Values::UInt16(array.as_primitive::<UInt16Type>().values().clone()),
            DataType::UInt32 => Values::UInt32(array.as_primitive::<UInt32Type>().values().clone()),
            DataType::UInt64 => Values::UInt64(array.as_primitive::<UInt64Type>().values().clone()),
            DataType::Float32 => Values::Float32(array.as_primitive::<Float32Type>().values().clone()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>().values().clone()),
            DataType::Decimal128(_, scale) => {
                Values::Decimal128(array.as_primitive::<Decimal128Type>().values().clone(), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Values::Decimal256(array.as_primitive::<Decimal256Type>().values().clone(), *scale)
            }
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().values().clone()),
            DataType::Time64(Nanosecond) => {
                let ticks = Ticks::new(Nanosecond, field);
                Values::Time(array.as_primitive::<Time64NanosecondType>().values().clone(), ticks)
            }
            DataType::Timestamp(unit, zone) => {
                let values = match unit {
                    Second => array.as_primitive::<TimestampSecondType>().values().clone(),
                    Millisecond => array.as_primitive::<TimestampMillisecondType>().values().clone(),
                    Microsecond => array.as_primitive::<TimestampMicrosecondType>().values().clone(),
                    Nanosecond => array.as_primitive::<TimestampNanosecondType>().values().clone(),
                };
                let zone = if zone.is_some() { Zone::Utc } else { Zone::Local };
                Values::Stamp(values, Ticks::new(*unit, field), zone)
            }
            DataType::Utf8 => Values::Text(array.as_string::<i32>().clone()),
            DataType::LargeUtf8 => Values::LargeText(array.as_string::<i64>().clone()),
            DataType::Utf8View => Values::TextView(array.as_string_view().clone()),
            DataType::Binary => Values::Bytes(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Values::LargeBytes(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Values::BytesView(array.as_binary_view().clone()),
            DataType::List(element) => {
                let list = array.as_list::<i32>();
                Values::List(list.offsets().clone(), Box::new(Self::try_new(list.values(), element)?))
            }
            DataType::LargeList(element) => {
                let list = array.as_list::<i64>();
                Values::LargeList(list.offsets().clone(), Box::new(Self::try_new(list.values(), element)?))
            }
            DataType::Map(entries, _) => {
                let map = array.as_map();
                let DataType::Struct(pair) = entries.data_type() else { return Err(unwritable(field)) };
                let (key, value) = match pair.as_ref() {
                    [key, value] => (key, value),
                    _ => return Err(unwritable(field)),
                };
                let keys = Box::new(Self::try_new(map.keys(), key)?);
                let values = Box::new(Self::try_new(map.values(), value)?);
                Values::Map(map.offsets().clone(), keys, values)
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let column = |(field, column): (&Arc<Field>, &ArrayRef)| {
                    Ok((field.name().clone(), Self::try_new(column, field)?))
                };
                Values::Row(fields.iter().zip(columns).map(column).collect::<Result<_>>()?)
            }
            _ => return Err(unwritable(field)),
        };
        Ok(Self { nulls: array.nulls().cloned(), values })
    }

    /// Says whether row `row` holds no value.
    pub(super) fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Says whether the column is a number, which people like to see flush right.
    pub(super) fn is_number(&self) -> bool {
        use Values::*;
        matches!(self.values, Int8(_) | Int16(_) | Int32(_) | Int64(_) | UInt8(_) | UInt16(_) | UInt32(_) | UInt64(_))
            || matches!(self.values, Float32(_) | Float64(_) | Decimal128(..) | Decimal256(..))
    }

    /// Says whether its text may hold any character: STRING, and nested values, which are JSON.
    pub(super) fn is_free_text(&self) -> bool {
        use Values::*;
        matches!(self.values, Text(_) | LargeText(_) | TextView(_) | List(..) | LargeList(..) | Map(..) | Row(_))
    }

    /// Appends the value of row `row`, which isn't null, as text; a nested one as JSON.
    pub(super) fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Null => {}
            Values::Boolean(v) => out.extend_from_slice(if v.value(row) { b"true" } else { b"false" }),
            Values::Int8(v) => push_i64(i64::from(v[row]), out),
            Values::Int16(v) => push_i64(i64::from(v[row]), out),
            Values::Int32(v) => push_i64(i64::from(v[row]), out),
            Values::Int64(v) => push_i64(v[row], out),
            Values::UInt8(v) => push_u64(u64::from(v[row]), out),
            Values::UInt16(v) => push_u64(u64::from(v[row]), out),
            Values::UInt32(v) => push_u64(u64::from(v[row]), out),
            Values::UInt64(v) => push_u64(v[row], out),
            Values::Float32(v) => push_f32(v[row], out),
            Values::Float64(v) => push_f64(v[row], out),
            Values::Decimal128(v, scale) => push_decimal(v[row], *scale, out),
            Values::Decimal256(v, scale) => push_scaled(&v[row].to_string(), *scale, out),
            Values::Date(v) => push_date(i64::from(v[row]), out),
            Values::Time(v, ticks) => push_time(v[row], *ticks, out),
            Values::Stamp(v, ticks, zone) => push_stamp(v[row], *ticks, *zone, out),
            Values::Text(v) => out.extend_from_slice(v.value(row).as_bytes()),
            Values::LargeText(v) => out.extend_from_slice(v.value(row).as_bytes()),
            Values::TextView(v) => out.extend_from_slice(v.value(row).as_bytes()),
            Values::Bytes(v) => push_base64(v.value(row), out),
            Values::LargeBytes(v) => push_base64(v.value(row), out),
            Values::BytesView(v) => push_base64(v.value(row), out),
            Values::List(..) | Values::LargeList(..) | Values::Map(..) | Values::Row(_) => self.write_json(row, out),
        }
    }

    /// Appends the value of row `row` as JSON, `null` included.
    pub(super) fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            return out.extend_from_slice(b"null");
        }
        match &self.values {
            Values::Text(v) => push_json_string(v.value(row), out),
            Values::LargeText(v) => push_json_string(v.value(row), out),
            Values::TextView(v) => push_json_string(v.value(row), out),
            Values::Float32(v) if !v[row].is_finite() => self.write_quoted(row, out),
            Values::Float64(v) if !v[row].is_finite() => self.write_quoted(row, out),
            Values::Date(_) | Values::Time(..) | Values::Stamp(..) => self.write_quoted(row, out),
            Values::Bytes(_) | Values::LargeBytes(_) | Values::BytesView(_) => self.write_quoted(row, out),
            Values::List(offsets, element) => {
                push_json_array(offsets[row] as usize..offsets[row + 1] as usize, element, out);
            }
            Values::LargeList(offsets, element) => {
                push_json_array(offsets[row] as usize..offsets[row + 1] as usize, element, out);
            }
            Values::Map(offsets, keys, values) => {
                out.push(b'{');
                for entry in offsets[row] as usize..offsets[row + 1] as usize {
                    if entry > offsets[row] as usize {
                        out.push(b',');
                    }
                    keys.write_key(entry, out);
                    out.push(b':');
                    values.write_json(entry, out);
                }
                out.push(b'}');
            }
            Values::Row(fields) => {
                out.push(b'{');
                for (index, (name, column)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    push_json_string(name, out);
                    out.push(b':');
                    column.write_json(row, out);
                }
                out.push(b'}');
            }
            _ => self.write_text(row, out),
        }
    }

    /// Appends a text that needs no escapes, in quotes.
    fn write_quoted(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        self.write_text(row, out);
        out.push(b'"');
    }

    /// Appends a key of a map: JSON has only text there.
    fn write_key(&self, row: usize, out: &mut Vec<u8>) {
        if matches!(self.values, Values::Text(_) | Values::LargeText(_) | Values::TextView(_)) {
            return self.write_json(row, out);
        }
        let mut key = Vec::new();
        self.write_text(row, &mut key);
        push_json_string(&String::from_utf8_lossy(&key), out);
    }
}

fn push_json_array(rows: std::ops::Range<usize>, element: &TextColumn, out: &mut Vec<u8>) {
    out.push(b'[');
    for row in rows.clone() {
        if row > rows.start {
            out.push(b',');
        }
        element.write_json(row, out);
    }
    out.push(b']');
}

/// Appends a JSON string (RFC 8259 section 7) with its quotes; only what must be escaped is.
pub(super) fn push_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..at]);
        copied = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => push_display(format_args!("\\u{byte:04x}"), out),
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

/// Appends what `format!` would make, without the text in between.
fn push_display(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    // Writing into a Vec has no way to fail.
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok());
}

/// `00` to `99`: two digits at once.
static TWO_DIGITS: [[u8; 2]; 100] = {
    let mut table = [[b'0'; 2]; 100];
    let mut value = 0;
    while value < 100 {
        table[value] = [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8];
        value += 1;
    }
    table
};

fn push_two(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&TWO_DIGITS[(value % 100) as usize]);
}

fn push_i64(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    push_u64(value.unsigned_abs(), out);
}

fn push_u64(mut value: u64, out: &mut Vec<u8>) {
    // u64::MAX has 20 digits; they are filled in from the right.
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    while value >= 100 {
        start -= 2;
        digits[start..start + 2].copy_from_slice(&TWO_DIGITS[(value % 100) as usize]);
        value /= 100;
    }
    if value >= 10 {
        start -= 2;
        digits[start..start + 2].copy_from_slice(&TWO_DIGITS[value as usize]);
    } else {
        start -= 1;
        digits[start] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends `value` with leading zeros to `width` digits, at most 19.
fn push_padded(value: u64, width: usize, out: &mut Vec<u8>) {
    let mut num_digits = 1;
    let mut power = 10;
    while num_digits < width && value >= power {
        num_digits += 1;
        power *= 10;
    }
    out.extend(std::iter::repeat_n(b'0', width - num_digits));
    push_u64(value, out);
}

fn push_f32(value: f32, out: &mut Vec<u8>) {
    if (1e-3..1e7).contains(&value.abs()) || value == 0.0 {
        push_display(format_args!("{value:?}"), out);
    } else if value.is_finite() {
        push_scientific(format_args!("{value:e}"), out);
    } else {
        push_f64(f64::from(value), out);
    }
}

/// Appends the shortest text that reads back: plain from 0.001 to below 10 million, else `1.25E300`.
fn push_f64(value: f64, out: &mut Vec<u8>) {
    let magnitude = value.abs();
    if (1e-3..1e7).contains(&magnitude) {
        // Most numbers that people store have few digits behind the point. At most 13 digits in all name
        // a double of their own, so if these read back there is no shorter text.
        let millionths = (magnitude * 1e6).round();
        if millionths / 1e6 != magnitude {
            return push_display(format_args!("{value:?}"), out);
        }
        if value < 0.0 {
            out.push(b'-');
        }
        let millionths = millionths as u64;
        push_u64(millionths / 1_000_000, out);
        out.push(b'.');
        let mut fraction = millionths % 1_000_000;
        let mut place = 100_000;
        loop {
            out.push(b'0' + (fraction / place) as u8);
            fraction %= place;
            place /= 10;
            if fraction == 0 {
                return;
            }
        }
    }
    match value {
        _ if value.is_nan() => out.extend_from_slice(b"NaN"),
        f64::INFINITY => out.extend_from_slice(b"Infinity"),
        f64::NEG_INFINITY => out.extend_from_slice(b"-Infinity"),
        0.0 => push_display(format_args!("{value:?}"), out),
        _ => push_scientific(format_args!("{value:e}"), out),
    }
}

/// Makes `1E7` of Rust's `1e7` to `1.0E7`.
fn push_scientific(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    push_display(text, out);
    let Some(exponent) = out[start..].iter().position(|&byte| byte == b'e').map(|at| start + at) else { return };
    out[exponent] = b'E';
    if !out[start..exponent].contains(&b'.') {
        out.splice(exponent..exponent, *b".0");
    }
}

fn push_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    match u64::try_from(value.unsigned_abs()) {
        // Digits that fit a u64, with a point inside them: the usual case.
        Ok(magnitude) if (0..=18).contains(&scale) => {
            if value < 0 {
                out.push(b'-');
            }
            let power = 10u64.pow(scale as u32);
            push_u64(magnitude / power, out);
            if scale > 0 {
                out.push(b'.');
                push_padded(magnitude % power, scale as usize, out);
            }
        }
        _ => push_scaled(&value.to_string(), scale, out),
    }
}

/// Appends a whole number's digits with the point `scale` places from the right.
fn push_scaled(digits: &str, scale: i8, out: &mut Vec<u8>) {
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    if unsigned.len() < digits.len() {
        out.push(b'-');
    }
    let places = usize::from(scale.unsigned_abs());
    if scale <= 0 {
        out.extend_from_slice(unsigned.as_bytes());
        if unsigned != "0" {
            out.extend(std::iter::repeat_n(b'0', places));
        }
        return;
    }
    match unsigned.len().checked_sub(places) {
        None | Some(0) => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', places - unsigned.len()));
            out.extend_from_slice(unsigned.as_bytes());
        }
        Some(whole) => {
            out.extend_from_slice(&unsigned.as_bytes()[..whole]);
            out.push(b'.');
            out.extend_from_slice(&unsigned.as_bytes()[whole..]);
        }
    }
}

/// `YYYY-MM-DD` in the proleptic Gregorian calendar; years outside 0 to 9999 with their sign and all digits.
fn push_date(days: i64, out: &mut Vec<u8>) {
    // Civil from days: years that begin in March have their leap day last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    if (0..=9999).contains(&year) {
        push_two(year as u64 / 100, out);
        push_two(year as u64, out);
    } else {
        out.push(if year < 0 { b'-' } else { b'+' });
        push_padded(year.unsigned_abs(), 4, out);
    }
    out.push(b'-');
    push_two(month as u64, out);
    out.push(b'-');
    push_two(day as u64, out);
}

/// `HH:MM:SS` and the digits behind it. A time that isn't within a day keeps its hours.
fn push_time(value: i64, ticks: Ticks, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    push_clock(
        value.unsigned_abs() / ticks.per_second as u64,
        value.unsigned_abs() % ticks.per_second as u64,
        ticks,
        out,
    );
}

fn push_clock(seconds: u64, fraction: u64, ticks: Ticks, out: &mut Vec<u8>) {
    match seconds / 3600 {
        hours @ 0..100 => push_two(hours, out),
        hours => push_u64(hours, out),
    }
    out.push(b':');
    push_two(seconds / 60 % 60, out);
    out.push(b':');
    push_two(seconds % 60, out);
    if ticks.digits > 0 {
        out.push(b'.');
        let mut place = ticks.per_second as u64;
        for _ in 0..ticks.digits {
            place /= 10;
            out.push(b'0' + (fraction / place % 10) as u8);
        }
    }
}

fn push_stamp(value: i64, ticks: Ticks, zone: Zone, out: &mut Vec<u8>) {
    let (seconds, fraction) = (value.div_euclid(ticks.per_second), value.rem_euclid(ticks.per_second));
    push_date(seconds.div_euclid(SECONDS_PER_DAY), out);
    out.push(b' ');
    push_clock(seconds.rem_euclid(SECONDS_PER_DAY) as u64, fraction as u64, ticks, out);
    if zone == Zone::Utc {
        out.push(b'Z');
    }
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 4 * bytes.len().div_ceil(3), 0);
    // The room is exactly what the encoding with padding takes.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written.ok(), Some(out.len() - start));
}

#[cfg(test)]
pub(super) mod tests {
    use arrow::array::builder::{Int32Builder, MapBuilder, StringBuilder};
    use arrow::array::{
        BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, DurationSecondArray, Float32Array,
        Float64Array, Int8Array, Int32Array, Int64Array, ListArray, RecordBatch, StructArray, Time32SecondArray,
        Time64MicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::Schema;
    use proptest::prelude::*;

    use super::*;
    use crate::schema::parse_schema;

    /// Two rows and a row of nulls, with a column of every type that text can be made of.
    pub(in crate::sink::text) fn every_type() -> RecordBatch {
        let sql = "flag BOOLEAN, tiny TINYINT, i INT, big BIGINT, f FLOAT, d DOUBLE, price DECIMAL(10,2), \
            wide DECIMAL(50,3), s STRING, b BYTES, day DATE, t TIME(0), t2 TIME(2), ms TIMESTAMP(3), p1 TIMESTAMP(1), \
            ns TIMESTAMP(9), ltz TIMESTAMP_LTZ(3), list ARRAY<INT>, map MAP<STRING, INT>, \
            nested ROW<a INT, at TIMESTAMP_LTZ(3), xs ARRAY<DOUBLE>>";
        let mut fields: Vec<Field> =
            parse_schema(sql).unwrap().fields().iter().map(|field| field.as_ref().clone()).collect();
        let dictionary: DictionaryArray<Int32Type> = [Some("red"), Some("a,b"), None].into_iter().collect();
        fields.push(Field::new("u", DataType::UInt64, true));
        fields.push(Field::new("dict", dictionary.data_type().clone(), true));
        fields.push(Field::new("took", DataType::Duration(TimeUnit::Second), true));
        fields.push(Field::new("nothing", DataType::Null, true));

        let stamps = [Some(1_692_110_255_411), Some(-1), None];
        let typed = |array: ArrayRef, name: &str| {
            let field = fields.iter().find(|field| field.name() == name).unwrap();
            arrow::compute::cast(&array, field.data_type()).unwrap()
        };
        let DataType::Struct(parts) = fields[19].data_type().clone() else { panic!("a ROW") };
        let DataType::List(element) = parts[2].data_type().clone() else { panic!("a ROW") };
        let xs = ListArray::new(
            element,
            OffsetBuffer::from_lengths([2, 0, 0]),
            Arc::new(Float64Array::from(vec![Some(1.5), None])),
            None,
        );
        let nested = StructArray::new(
            parts,
            vec![
                Arc::new(Int32Array::from(vec![Some(1), None, None])),
                typed(Arc::new(TimestampMillisecondArray::from(stamps.to_vec())), "ltz"),
                Arc::new(xs),
            ],
            Some(vec![true, true, false].into()),
        );
        let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        map.keys().append_value("k \"1\"");
        map.values().append_value(1);
        map.keys().append_value("k2");
        map.values().append_null();
        map.append(true).unwrap();
        map.append(true).unwrap();
        map.append(false).unwrap();
        let DataType::Map(entries, _) = fields[18].data_type().clone() else { panic!("a ROW") };
        let DataType::Struct(pair) = entries.data_type().clone() else { panic!("a ROW") };
        let (_, offsets, pairs, nulls, ordered) = map.finish().into_parts();
        let (_, columns, _) = pairs.into_parts();
        let map = arrow::array::MapArray::new(entries, offsets, StructArray::new(pair, columns, None), nulls, ordered);

        let columns: Vec<ArrayRef> = vec![
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
            Arc::new(Int8Array::from(vec![Some(i8::MIN), Some(0), None])),
            Arc::new(Int32Array::from(vec![Some(i32::MIN), Some(100), None])),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None])),
            Arc::new(Float32Array::from(vec![Some(0.1), Some(f32::NAN), None])),
            Arc::new(Float64Array::from(vec![Some(1.0), Some(f64::NEG_INFINITY), None])),
            typed(
                Arc::new(
                    Decimal128Array::from(vec![Some(12_345), Some(-5), None]).with_precision_and_scale(10, 2).unwrap(),
                ),
                "price",
            ),
            typed(
                Arc::new(
                    Decimal128Array::from(vec![Some(1), Some(-12_345), None]).with_precision_and_scale(38, 3).unwrap(),
                ),
                "wide",
            ),
            Arc::new(StringArray::from(vec![Some("say \"hi\",\n\u{1}ü"), Some(""), None])),
            Arc::new(BinaryArray::from(vec![Some(&b"\xff\x00"[..]), Some(&b""[..]), None])),
            Arc::new(Date32Array::from(vec![Some(19_584), Some(-1), None])),
            typed(Arc::new(Time32SecondArray::from(vec![Some(86_399), Some(0), None])), "t"),
            typed(Arc::new(Time64MicrosecondArray::from(vec![Some(3_661_250_000), Some(0), None])), "t2"),
            Arc::new(TimestampMillisecondArray::from(stamps.to_vec())),
            Arc::new(TimestampMillisecondArray::from(stamps.to_vec())),
            Arc::new(TimestampNanosecondArray::from(vec![Some(1_692_110_255_411_000_001), Some(-1), None])),
            typed(Arc::new(TimestampMillisecondArray::from(stamps.to_vec())), "ltz"),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
                Some(vec![Some(1), None, Some(3)]),
                Some(vec![]),
                None,
            ])),
            Arc::new(map),
            Arc::new(nested),
            Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None])),
            Arc::new(dictionary),
            Arc::new(DurationSecondArray::from(vec![Some(90), Some(0), None])),
            arrow::array::new_null_array(&DataType::Null, 3),
        ];
        let columns = columns
            .into_iter()
            .zip(&fields)
            .map(|(column, field)| arrow::compute::cast(&column, field.data_type()).unwrap())
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[test]
    fn a_union_is_refused_with_its_column() {
        let union = DataType::Union(
            [(0, Arc::new(Field::new("a", DataType::Int32, true)))].into_iter().collect(),
            arrow::datatypes::UnionMode::Dense,
        );
        let error = check_type(&Field::new_list("l", Field::new("u", union, true), true)).unwrap_err();
        assert!(error.to_string().starts_with("column u: "), "{error}");
    }

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_are_the_shortest_that_read_back() {
        for (value, expected) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (-12.5, "-12.5"),
            (123_456.789, "123456.789"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.999999, "9999999.999999"),
            (1e7, "1.0E7"),
            (-1.25e300, "-1.25E300"),
            (5e-324, "5.0E-324"),
            (f64::MAX, "1.7976931348623157E308"),
            (1.0 / 3.0, "0.3333333333333333"),
            (2.0 / 3.0 * 1e6, "666666.6666666666"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| push_f64(value, out)), expected);
        }
        for (value, expected) in [(0.1f32, "0.1"), (1e10, "1.0E10"), (16_777_216.0, "1.6777216E7"), (0.0, "0.0")] {
            assert_eq!(text(|out| push_f32(value, out)), expected);
        }
        assert_eq!(text(|out| push_f32(f32::INFINITY, out)), "Infinity");
    }

    #[test]
    fn dates_and_times_at_the_edges() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (-719_162, "0001-01-01"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (-719_529, "-0001-12-31"),
        ] {
            assert_eq!(text(|out| push_date(days, out)), expected);
        }
        let nanos = Ticks { per_second: 1_000_000_000, digits: 9 };
        assert_eq!(text(|out| push_stamp(-1, nanos, Zone::Utc, out)), "1969-12-31 23:59:59.999999999Z");
        assert_eq!(text(|out| push_stamp(i64::MIN, nanos, Zone::Local, out)), "1677-09-21 00:12:43.145224192");
        let seconds = Ticks { per_second: 1, digits: 0 };
        assert_eq!(
            text(|out| push_stamp(i64::MAX, seconds, Zone::Local, out)).len(),
            "+292277026596-12-04 15:30:07".len()
        );
        assert_eq!(text(|out| push_time(90_000, seconds, out)), "25:00:00");
    }

    #[test]
    fn decimals_keep_their_scale() {
        for (value, scale, expected) in [
            (0, 0, "0"),
            (0, 2, "0.00"),
            (-5, 2, "-0.05"),
            (12_345, 2, "123.45"),
            (12, -3, "12000"),
            (0, -3, "0"),
            (i128::MIN + 1, 20, "-1701411834604692317.31687303715884105727"),
            (7, 38, "0.00000000000000000000000000000000000007"),
        ] {
            assert_eq!(text(|out| push_decimal(value, scale, out)), expected);
        }
    }

    proptest! {
        #[test]
        fn every_double_reads_back_and_nothing_shorter_would(bits in any::<u64>(), cents in -100_000_000i64..100_000_000) {
            for value in [f64::from_bits(bits), cents as f64 / 100.0, cents as f64 / 1e7] {
                let written = text(|out| push_f64(value, out));
                let back: f64 = written.parse().unwrap();
                prop_assert!(back == value || (back.is_nan() && value.is_nan()), "{written} for {value}");
                if value.is_finite() {
                    let num_digits = |text: &str| {
                        let mantissa = text.split(['e', 'E']).next().unwrap_or("");
                        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
                        digits.trim_matches('0').len()
                    };
                    prop_assert_eq!(num_digits(&written), num_digits(&format!("{value:e}")), "{} for {}", written, value);
                }
            }
        }

        #[test]
        fn whole_numbers_and_dates_agree_with_the_library(value in any::<i64>(), days in -700_000i64..2_900_000) {
            prop_assert_eq!(text(|out| push_i64(value, out)), value.to_string());
            prop_assert_eq!(text(|out| push_u64(value as u64, out)), (value as u64).to_string());
            let date = chrono::DateTime::from_timestamp(days * SECONDS_PER_DAY, 0).unwrap().date_naive();
            prop_assert_eq!(text(|out| push_date(days, out)), date.to_string());
        }

        #[test]
        fn json_strings_read_back(value in any::<String>()) {
            let written = text(|out| push_json_string(&value, out));
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), value);
        }
    }
}
