//! How text becomes typed values: one set of rules for CSV fields, JSON scalars, constants and defaults.
//!
//! Strict: what isn't wholly a value of the type is a fault, and never a null.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, LargeBinaryBuilder, LargeStringBuilder, NullBufferBuilder, PrimitiveArray,
    StringBuilder, StringViewBuilder,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{precision, type_name};
use crate::error::{Error, Result, quoted};

/// How BYTES are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BytesFormat {
    /// RFC 4648 base64 with padding.
    #[default]
    Base64,
    /// Two hexadecimal digits a byte.
    Hex,
}

/// What decides how text is read, apart from the type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueOptions {
    /// How BYTES are written.
    pub(crate) bytes_format: BytesFormat,
    /// Whether digits beyond a DECIMAL's scale are rounded (half away from zero) instead of refused.
    pub(crate) decimal_rounding: bool,
}

/// Why a text isn't a value of a column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueFault {
    NotA,
    OutOfRange,
    ExcessDigits,
    NotNull,
}

impl ValueFault {
    /// In words, with the value cut and escaped.
    pub(crate) fn describe(self, value: &[u8], field: &Field) -> String {
        let (value, name) = (quoted(value), type_name(field));
        match self {
            Self::NotA => format!("{value} is not {}", with_article(&name)),
            Self::OutOfRange => format!("{value} is out of range for {name}"),
            Self::ExcessDigits => format!("{value} has more digits than {name} holds"),
            Self::NotNull => format!("null in a NOT NULL column ({name})"),
        }
    }
}

/// `a DOUBLE`, `an INT`.
pub(crate) fn with_article(type_name: &str) -> String {
    let article = if type_name.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {type_name}")
}

type Outcome<T> = Result<T, ValueFault>;

/// Collects the values of one column out of text.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    field: Field,
    options: ValueOptions,
    /// Digits behind the second that are kept.
    precision: u8,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Int8(Numbers<Int8Type>),
    Int16(Numbers<Int16Type>),
    Int32(Numbers<Int32Type>),
    Int64(Numbers<Int64Type>),
    UInt8(Numbers<UInt8Type>),
    UInt16(Numbers<UInt16Type>),
    UInt32(Numbers<UInt32Type>),
    UInt64(Numbers<UInt64Type>),
    Float32(Numbers<Float32Type>),
    Float64(Numbers<Float64Type>),
    Decimal128(Numbers<Decimal128Type>),
    Decimal256(Numbers<Decimal256Type>),
    Date32(Numbers<Date32Type>),
    TimeSecond(Numbers<Time32SecondType>),
    TimeMilli(Numbers<Time32MillisecondType>),
    TimeMicro(Numbers<Time64MicrosecondType>),
    TimeNano(Numbers<Time64NanosecondType>),
    StampSecond(Numbers<TimestampSecondType>),
    StampMilli(Numbers<TimestampMillisecondType>),
    StampMicro(Numbers<TimestampMicrosecondType>),
    StampNano(Numbers<TimestampNanosecondType>),
    Boolean(BooleanBuilder),
    Utf8(StringBuilder),
    LargeUtf8(LargeStringBuilder),
    Utf8View(StringViewBuilder),
    Binary(BinaryBuilder),
    LargeBinary(LargeBinaryBuilder),
}

#[derive(Debug)]
struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    fn with_capacity(rows: usize) -> Self {
        Self { values: Vec::with_capacity(rows), nulls: NullBufferBuilder::new(rows) }
    }

    fn push(&mut self, value: T::Native) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    fn push_null(&mut self) {
        self.values.push(T::Native::default());
        self.nulls.append_null();
    }

    fn finish(&mut self, data_type: &DataType) -> ArrayRef {
        let rows = self.values.len();
        let values = ScalarBuffer::from(std::mem::replace(&mut self.values, Vec::with_capacity(rows)));
        Arc::new(PrimitiveArray::<T>::new(values, self.nulls.finish()).with_data_type(data_type.clone()))
    }
}

macro_rules! for_values {
    ($values:expr, $inner:ident => $numbers:expr, $other:expr) => {
        match $values {
            Values::Int8($inner) => $numbers,
            Values::Int16($inner) => $numbers,
            Values::Int32($inner) => $numbers,
            Values::Int64($inner) => $numbers,
            Values::UInt8($inner) => $numbers,
            Values::UInt16($inner) => $numbers,
            Values::UInt32($inner) => $numbers,
            Values::UInt64($inner) => $numbers,
            Values::Float32($inner) => $numbers,
            Values::Float64($inner) => $numbers,
            Values::Decimal128($inner) => $numbers,
            Values::Decimal256($inner) => $numbers,
            Values::Date32($inner) => $numbers,
            Values::TimeSecond($inner) => $numbers,
            Values::TimeMilli($inner) => $numbers,
            Values::TimeMicro($inner) => $numbers,
            Values::TimeNano($inner) => $numbers,
            Values::StampSecond($inner) => $numbers,
            Values::StampMilli($inner) => $numbers,
            Values::StampMicro($inner) => $numbers,
            Values::StampNano($inner) => $numbers,
            Values::Boolean($inner) => $other,
            Values::Utf8($inner) => $other,
            Values::LargeUtf8($inner) => $other,
            Values::Utf8View($inner) => $other,
            Values::Binary($inner) => $other,
            Values::LargeBinary($inner) => $other,
        }
    };
}

impl ColumnBuilder {
    /// Prepares a column for about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type that text can't become.
    pub(crate) fn try_new(field: &Field, options: ValueOptions, rows: usize) -> Result<Self> {
        use TimeUnit::*;
        let values = match field.data_type() {
            DataType::Int8 => Values::Int8(Numbers::with_capacity(rows)),
            DataType::Int16 => Values::Int16(Numbers::with_capacity(rows)),
            DataType::Int32 => Values::Int32(Numbers::with_capacity(rows)),
            DataType::Int64 => Values::Int64(Numbers::with_capacity(rows)),
            DataType::UInt8 => Values::UInt8(Numbers::with_capacity(rows)),
            DataType::UInt16 => Values::UInt16(Numbers::with_capacity(rows)),
            DataType::UInt32 => Values::UInt32(Numbers::with_capacity(rows)),
            DataType::UInt64 => Values::UInt64(Numbers::with_capacity(rows)),
            DataType::Float32 => Values::Float32(Numbers::with_capacity(rows)),
            DataType::Float64 => Values::Float64(Numbers::with_capacity(rows)),
            DataType::Decimal128(..) => Values::Decimal128(Numbers::with_capacity(rows)),
            DataType::Decimal256(..) => Values::Decimal256(Numbers::with_capacity(rows)),
            DataType::Date32 => Values::Date32(Numbers::with_capacity(rows)),
            DataType::Time32(Second) => Values::TimeSecond(Numbers::with_capacity(rows)),
            DataType::Time32(Millisecond) => Values::TimeMilli(Numbers::with_capacity(rows)),
            DataType::Time64(Microsecond) => Values::TimeMicro(Numbers::with_capacity(rows)),
            DataType::Time64(Nanosecond) => Values::TimeNano(Numbers::with_capacity(rows)),
            DataType::Timestamp(Second, _) => Values::StampSecond(Numbers::with_capacity(rows)),
            DataType::Timestamp(Millisecond, _) => Values::StampMilli(Numbers::with_capacity(rows)),
            DataType::Timestamp(Microsecond, _) => Values::StampMicro(Numbers::with_capacity(rows)),
            DataType::Timestamp(Nanosecond, _) => Values::StampNano(Numbers::with_capacity(rows)),
            DataType::Boolean => Values::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::Utf8 => Values::Utf8(StringBuilder::with_capacity(rows, rows * 8)),
            DataType::LargeUtf8 => Values::LargeUtf8(LargeStringBuilder::with_capacity(rows, rows * 8)),
            DataType::Utf8View => Values::Utf8View(StringViewBuilder::with_capacity(rows)),
            DataType::Binary => Values::Binary(BinaryBuilder::with_capacity(rows, rows * 8)),
            DataType::LargeBinary => Values::LargeBinary(LargeBinaryBuilder::with_capacity(rows, rows * 8)),
            _ => {
                let reason = format!("column {}: {} can't be read from text", field.name(), type_name(field));
                return Err(Error::Schema(reason));
            }
        };
        Ok(Self { precision: precision(field).unwrap_or(9), field: field.clone(), options, values })
    }

    /// The column's name and type.
    pub(crate) fn field(&self) -> &Field {
        &self.field
    }

    /// Says whether an empty text is a value (text) or nothing (everything else).
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.values, Values::Utf8(_) | Values::LargeUtf8(_) | Values::Utf8View(_))
    }

    /// Reads `text` as the next value. After a fault the column is as it was.
    pub(crate) fn push(&mut self, text: &str) -> Outcome<()> {
        let bytes = text.as_bytes();
        match &mut self.values {
            Values::Int8(v) => v.push(int(bytes, i8::try_from)?),
            Values::Int16(v) => v.push(int(bytes, i16::try_from)?),
            Values::Int32(v) => v.push(int(bytes, i32::try_from)?),
            Values::Int64(v) => v.push(int(bytes, i64::try_from)?),
            Values::UInt8(v) => v.push(int(bytes, u8::try_from)?),
            Values::UInt16(v) => v.push(int(bytes, u16::try_from)?),
            Values::UInt32(v) => v.push(int(bytes, u32::try_from)?),
            Values::UInt64(v) => v.push(int(bytes, u64::try_from)?),
            // Correctly rounded; beyond the range infinite, below it 0.
            Values::Float32(v) => v.push(text.parse().map_err(|_| ValueFault::NotA)?),
            Values::Float64(v) => v.push(text.parse().map_err(|_| ValueFault::NotA)?),
            Values::Decimal128(v) => {
                let DataType::Decimal128(precision, scale) = *self.field.data_type() else {
                    return Err(ValueFault::NotA);
                };
                let value = decimal(bytes, precision, scale, self.options.decimal_rounding)?;
                v.push(value.to_i128().ok_or(ValueFault::OutOfRange)?);
            }
            Values::Decimal256(v) => {
                let DataType::Decimal256(precision, scale) = *self.field.data_type() else {
                    return Err(ValueFault::NotA);
                };
                v.push(decimal(bytes, precision, scale, self.options.decimal_rounding)?);
            }
            Values::Date32(v) => {
                let (days, rest) = date(bytes)?;
                if !rest.is_empty() {
                    return Err(ValueFault::NotA);
                }
                v.push(days);
            }
            Values::TimeSecond(v) => v.push(time_of_day(bytes, self.precision)?.0 as i32),
            Values::TimeMilli(v) => {
                let (seconds, nanos) = time_of_day(bytes, self.precision)?;
                v.push((seconds * 1000) as i32 + (nanos / 1_000_000) as i32);
            }
            Values::TimeMicro(v) => {
                let (seconds, nanos) = time_of_day(bytes, self.precision)?;
                v.push(seconds * 1_000_000 + i64::from(nanos / 1000));
            }
            Values::TimeNano(v) => {
                let (seconds, nanos) = time_of_day(bytes, self.precision)?;
                v.push(seconds * 1_000_000_000 + i64::from(nanos));
            }
            Values::StampSecond(v) => v.push(timestamp(bytes, self.precision)?.0),
            Values::StampMilli(v) => v.push(scaled(timestamp(bytes, self.precision)?, 1000)?),
            Values::StampMicro(v) => v.push(scaled(timestamp(bytes, self.precision)?, 1_000_000)?),
            Values::StampNano(v) => v.push(scaled(timestamp(bytes, self.precision)?, 1_000_000_000)?),
            Values::Boolean(v) => v.append_value(boolean(bytes)?),
            Values::Utf8(v) => v.append_value(text),
            Values::LargeUtf8(v) => v.append_value(text),
            Values::Utf8View(v) => v.append_value(text),
            Values::Binary(v) => v.append_value(binary(bytes, self.options.bytes_format)?),
            Values::LargeBinary(v) => v.append_value(binary(bytes, self.options.bytes_format)?),
        }
        Ok(())
    }

    /// Adds a null. In a NOT NULL column that is a fault, and nothing is added.
    pub(crate) fn push_null(&mut self) -> Outcome<()> {
        if !self.field.is_nullable() {
            return Err(ValueFault::NotNull);
        }
        for_values!(&mut self.values, v => v.push_null(), v.append_null());
        Ok(())
    }

    /// Reads `values` as the next ones, `None` as a null. After a fault some of them may have been added.
    pub(crate) fn extend<'a>(&mut self, mut values: impl Iterator<Item = Option<&'a str>>) -> Outcome<()> {
        values.try_for_each(|value| match value {
            Some(text) => self.push(text),
            None => self.push_null(),
        })
    }

    /// Takes the column out, and begins the next one.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        let data_type = self.field.data_type();
        for_values!(&mut self.values, v => v.finish(data_type), Arc::new(v.finish()))
    }
}

/// A whole number with a sign; `convert` says what its type holds.
fn int<T, E>(text: &[u8], convert: impl Fn(i128) -> Result<T, E>) -> Outcome<T> {
    let (negative, digits) = signed(text);
    // 19 digits fit an i64 with no check at each of them.
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ValueFault::NotA);
    }
    let value = if digits.len() <= 18 {
        i128::from(digits.iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0')))
    } else {
        digits
            .iter()
            .try_fold(0i128, |value, digit| value.checked_mul(10)?.checked_add(i128::from(digit - b'0')))
            .ok_or(ValueFault::OutOfRange)?
    };
    convert(if negative { -value } else { value }).map_err(|_| ValueFault::OutOfRange)
}

fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

fn boolean(text: &[u8]) -> Outcome<bool> {
    match text {
        b"1" | b"t" | b"T" => Ok(true),
        b"0" | b"f" | b"F" => Ok(false),
        _ if text.eq_ignore_ascii_case(b"true") => Ok(true),
        _ if text.eq_ignore_ascii_case(b"false") => Ok(false),
        _ => Err(ValueFault::NotA),
    }
}

fn binary(text: &[u8], format: BytesFormat) -> Outcome<Vec<u8>> {
    match format {
        BytesFormat::Base64 => STANDARD.decode(text).map_err(|_| ValueFault::NotA),
        BytesFormat::Hex => {
            let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
            text.chunks(2)
                .map(|pair| match *pair {
                    [high, low] => Some(digit(high)? << 4 | digit(low)?),
                    _ => None,
                })
                .collect::<Option<_>>()
                .ok_or(ValueFault::NotA)
        }
    }
}

/// A decimal number as an integer of `scale` digits behind the point. Exact: what doesn't fit is a fault.
fn decimal(text: &[u8], precision: u8, scale: i8, rounding: bool) -> Outcome<i256> {
    let (negative, unsigned) = signed(text);
    let (mantissa, exponent) = match unsigned.iter().position(|c| matches!(c, b'e' | b'E')) {
        Some(at) => (&unsigned[..at], int(&unsigned[at + 1..], i32::try_from)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|&c| c == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &mantissa[..0]),
    };
    let num_digits = whole.len() + fraction.len();
    let digits = || whole.iter().chain(fraction).copied();
    if num_digits == 0 || !digits().all(|c| c.is_ascii_digit()) {
        return Err(ValueFault::NotA);
    }
    // How many of the digits stand before the end of the scale.
    let kept = whole.len() as i64 + i64::from(exponent) + i64::from(scale);
    let mut value = i256::ZERO;
    let ten = i256::from(10);
    let add = |value: &mut i256, digit: u8| -> Outcome<()> {
        let next = value.checked_mul(ten).and_then(|v| v.checked_add(i256::from(i64::from(digit - b'0'))));
        *value = next.ok_or(ValueFault::OutOfRange)?;
        Ok(())
    };
    for digit in digits().take(kept.clamp(0, num_digits as i64) as usize) {
        add(&mut value, digit)?;
    }
    if value != i256::ZERO {
        for _ in num_digits as i64..kept {
            add(&mut value, b'0')?;
        }
    }
    if kept < num_digits as i64 {
        let mut excess = digits().skip(kept.max(0) as usize);
        if rounding {
            if kept >= 0 && excess.next().is_some_and(|digit| digit >= b'5') {
                value = value.checked_add(i256::ONE).ok_or(ValueFault::OutOfRange)?;
            }
        } else if excess.any(|digit| digit != b'0') {
            return Err(ValueFault::ExcessDigits);
        }
    }
    let limit = i256::from(10).checked_pow(u32::from(precision)).ok_or(ValueFault::OutOfRange)?;
    if value >= limit {
        return Err(ValueFault::OutOfRange);
    }
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// `n` digits as a number, and what follows.
fn digits(text: &[u8], n: usize) -> Outcome<(u32, &[u8])> {
    let (number, rest) = text.split_at_checked(n).ok_or(ValueFault::NotA)?;
    let mut value = 0;
    for c in number {
        if !c.is_ascii_digit() {
            return Err(ValueFault::NotA);
        }
        value = value * 10 + u32::from(c - b'0');
    }
    Ok((value, rest))
}

fn after(text: &[u8], separator: u8) -> Outcome<&[u8]> {
    match text {
        [first, rest @ ..] if *first == separator => Ok(rest),
        _ => Err(ValueFault::NotA),
    }
}

/// `YYYY-MM-DD` as days since the epoch (proleptic Gregorian, years 0001 to 9999), and what follows.
fn date(text: &[u8]) -> Outcome<(i32, &[u8])> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(after(rest, b'-')?, 2)?;
    let (day, rest) = digits(after(rest, b'-')?, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        1..=12 => 31,
        _ => return Err(ValueFault::NotA),
    };
    if year == 0 || day == 0 || day > length {
        return Err(ValueFault::NotA);
    }
    // Days from civil: years that begin in March have their leap day last.
    let shifted_year = year as i32 - i32::from(month <= 2);
    let month_from_march = (month as i32 + 9) % 12;
    let (era, year_of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day as i32 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Ok((era * 146_097 + day_of_era - 719_468, rest))
}

/// `HH:MM[:SS[.fraction]]` as seconds and nanoseconds, digits beyond `precision` cut; and what follows.
fn clock(text: &[u8], precision: u8) -> Outcome<(i64, u32, &[u8])> {
    let (hour, rest) = digits(text, 2)?;
    let (minute, mut rest) = digits(after(rest, b':')?, 2)?;
    let (mut second, mut nanos) = (0, 0);
    if let [b':', tail @ ..] = rest {
        (second, rest) = digits(tail, 2)?;
        if let [b'.' | b',', fraction @ ..] = rest {
            let len = fraction.iter().take_while(|c| c.is_ascii_digit()).count();
            if len == 0 {
                return Err(ValueFault::NotA);
            }
            for place in 0..9 {
                let digit =
                    fraction[..len].get(place).filter(|_| place < usize::from(precision)).map_or(0, |c| c - b'0');
                nanos = nanos * 10 + u32::from(digit);
            }
            rest = &fraction[len..];
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err(ValueFault::NotA);
    }
    Ok((i64::from(hour * 3600 + minute * 60 + second), nanos, rest))
}

fn time_of_day(text: &[u8], precision: u8) -> Outcome<(i64, u32)> {
    match clock(text, precision)? {
        (seconds, nanos, []) => Ok((seconds, nanos)),
        _ => Err(ValueFault::NotA),
    }
}

/// `date`, or `date[T ]clock[ ][Z|±HH[[:]MM]]`, as seconds since the epoch in UTC and nanoseconds.
/// Without a zone it counts as UTC.
fn timestamp(text: &[u8], precision: u8) -> Outcome<(i64, u32)> {
    let (days, rest) = date(text)?;
    let midnight = i64::from(days) * 86_400;
    let (seconds, nanos, zone) = match rest {
        [] => return Ok((midnight, 0)),
        [b'T' | b't' | b' ', time @ ..] => clock(time, precision)?,
        _ => return Err(ValueFault::NotA),
    };
    Ok((midnight + seconds - zone_offset(zone)?, nanos))
}

/// A [`timestamp`] in ms since the epoch, digits beyond them cut.
pub(crate) fn timestamp_millis(text: &str) -> Option<i64> {
    timestamp(text.as_bytes(), 3).and_then(|time| scaled(time, 1_000)).ok()
}

fn zone_offset(text: &[u8]) -> Outcome<i64> {
    let (sign, rest) = match text {
        [] | b"Z" | b"z" | b" UTC" => return Ok(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(ValueFault::NotA),
    };
    let (hours, rest) = digits(rest, 2)?;
    let (minutes, rest) = match rest {
        [] => (0, rest),
        [b':', rest @ ..] => digits(rest, 2)?,
        _ => digits(rest, 2)?,
    };
    if hours > 18 || minutes > 59 || !rest.is_empty() {
        return Err(ValueFault::NotA);
    }
    Ok(sign * i64::from(hours * 3600 + minutes * 60))
}

fn scaled((seconds, nanos): (i64, u32), per_second: i64) -> Outcome<i64> {
    let fraction = i64::from(nanos) / (1_000_000_000 / per_second);
    seconds.checked_mul(per_second).and_then(|value| value.checked_add(fraction)).ok_or(ValueFault::OutOfRange)
}

/// The type that one text suggests: BOOLEAN for `true` and `false` only, BIGINT, DOUBLE, DATE,
/// TIMESTAMP(3|6|9), else STRING. Leading zeros are text: an id, not a number.
pub(crate) fn infer_type(text: &str) -> DataType {
    let bytes = text.as_bytes();
    let (_, unsigned) = signed(bytes);
    if matches!(text, "true" | "false") {
        return DataType::Boolean;
    }
    let leading_zero = matches!(unsigned, [b'0', b'0'..=b'9', ..]);
    let numeric =
        unsigned.first().is_some_and(|c| c.is_ascii_digit() || *c == b'.') && !leading_zero && bytes[0] != b'+';
    if numeric && int(bytes, i64::try_from).is_ok() {
        return DataType::Int64;
    }
    if numeric && unsigned.iter().any(u8::is_ascii_digit) && text.parse::<f64>().is_ok() {
        return DataType::Float64;
    }
    if matches!(date(bytes), Ok((_, []))) {
        return DataType::Date32;
    }
    if timestamp(bytes, 9).is_ok() {
        let fraction = bytes
            .iter()
            .position(|&c| c == b'.' || c == b',')
            .map_or(0, |point| bytes[point + 1..].iter().take_while(|c| c.is_ascii_digit()).count());
        let unit = match fraction {
            0..=3 => TimeUnit::Millisecond,
            4..=6 => TimeUnit::Microsecond,
            _ => TimeUnit::Nanosecond,
        };
        return DataType::Timestamp(unit, None);
    }
    DataType::Utf8
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use arrow::util::display::{ArrayFormatter, FormatOptions};

    use super::super::parse_schema;
    use super::*;

    fn read_with(sql: &str, text: &str, options: ValueOptions) -> Result<String, ValueFault> {
        let field = parse_schema(&format!("c {sql}")).unwrap().field(0).clone();
        let mut column = ColumnBuilder::try_new(&field, options, 1).unwrap();
        column.push(text)?;
        let array = column.finish();
        assert_eq!(array.len(), 1);
        let shown = ArrayFormatter::try_new(&array, &FormatOptions::default()).unwrap().value(0).to_string();
        Ok(shown)
    }

    #[track_caller]
    fn check(sql: &str, rows: &[(&str, Result<&str, ValueFault>)]) {
        for (text, expected) in rows {
            let got = read_with(sql, text, ValueOptions::default());
            assert_eq!(got, expected.map(str::to_owned), "{text:?} as {sql}");
        }
    }

    use ValueFault::*;

    #[test]
    fn integers() {
        check(
            "TINYINT",
            &[
                ("127", Ok("127")),
                ("-128", Ok("-128")),
                ("128", Err(OutOfRange)),
                ("-129", Err(OutOfRange)),
                ("+5", Ok("5")),
                ("007", Ok("7")),
            ],
        );
        check(
            "INT",
            &[
                ("", Err(NotA)),
                ("-", Err(NotA)),
                ("1 ", Err(NotA)),
                ("1.0", Err(NotA)),
                ("x7", Err(NotA)),
                ("2147483648", Err(OutOfRange)),
            ],
        );
        check(
            "BIGINT",
            &[
                ("-9223372036854775808", Ok("-9223372036854775808")),
                ("9223372036854775808", Err(OutOfRange)),
                ("99999999999999999999999999999999999999999", Err(OutOfRange)),
            ],
        );
        check("ARROW('UInt64')", &[("18446744073709551615", Ok("18446744073709551615")), ("-1", Err(OutOfRange))]);
    }

    #[test]
    fn floats_are_correctly_rounded_and_their_range_ends_in_infinity() {
        check(
            "DOUBLE",
            &[
                ("1.7976931348623157E308", Ok("1.7976931348623157e308")),
                ("1e400", Ok("inf")),
                ("-1e400", Ok("-inf")),
                ("1e-400", Ok("0.0")),
                (".5", Ok("0.5")),
                ("5.", Ok("5.0")),
                ("+5", Ok("5.0")),
                ("NaN", Ok("NaN")),
                ("Infinity", Ok("inf")),
                ("5e-324", Ok("5e-324")),
                ("9007199254740993", Ok("9007199254740992.0")),
                ("0x1p3", Err(NotA)),
                ("1,5", Err(NotA)),
                (" 1", Err(NotA)),
                ("", Err(NotA)),
            ],
        );
        check("FLOAT", &[("3.4028235e38", Ok("3.4028235e38")), ("3.5e38", Ok("inf")), ("16777217", Ok("16777216.0"))]);
    }

    #[test]
    fn decimals_are_exact() {
        check(
            "DECIMAL(4,2)",
            &[
                ("12.34", Ok("12.34")),
                ("-.5", Ok("-0.50")),
                ("99.99", Ok("99.99")),
                ("100", Err(OutOfRange)),
                ("1.2e1", Ok("12.00")),
                ("123.45", Err(OutOfRange)),
                ("1.234", Err(ExcessDigits)),
                ("1.230", Ok("1.23")),
                ("12e-2", Ok("0.12")),
                ("1e-3", Err(ExcessDigits)),
                ("", Err(NotA)),
                (".", Err(NotA)),
                ("1.2.3", Err(NotA)),
                ("1e", Err(NotA)),
                ("0e99999", Ok("0.00")),
                ("1e99999", Err(OutOfRange)),
                ("0.00e-9999", Ok("0.00")),
            ],
        );
        check(
            "DECIMAL(40,0)",
            &[("1234567890123456789012345678901234567890", Ok("1234567890123456789012345678901234567890"))],
        );
        let rounding = ValueOptions { decimal_rounding: true, ..ValueOptions::default() };
        assert_eq!(read_with("DECIMAL(4,2)", "1.235", rounding), Ok("1.24".into()));
        assert_eq!(read_with("DECIMAL(4,2)", "-1.235", rounding), Ok("-1.24".into()));
        assert_eq!(read_with("DECIMAL(4,2)", "99.999", rounding), Err(OutOfRange));
        assert_eq!(read_with("DECIMAL(4,2)", "1e-9", rounding), Ok("0.00".into()));
    }

    #[test]
    fn booleans() {
        check(
            "BOOLEAN",
            &[
                ("true", Ok("true")),
                ("FALSE", Ok("false")),
                ("t", Ok("true")),
                ("0", Ok("false")),
                ("yes", Err(NotA)),
                ("", Err(NotA)),
            ],
        );
    }

    #[test]
    fn dates_and_times() {
        check(
            "DATE",
            &[
                ("2024-02-29", Ok("2024-02-29")),
                ("2023-02-29", Err(NotA)),
                ("1900-02-29", Err(NotA)),
                ("2000-02-29", Ok("2000-02-29")),
                ("0001-01-01", Ok("0001-01-01")),
                ("9999-12-31", Ok("9999-12-31")),
                ("0000-01-01", Err(NotA)),
                ("2024-13-01", Err(NotA)),
                ("2024-1-1", Err(NotA)),
                ("2024-01-01 ", Err(NotA)),
            ],
        );
        check(
            "TIME(3)",
            &[
                ("14:37:35.4119", Ok("14:37:35.411")),
                ("24:00:00", Err(NotA)),
                ("23:59:60", Err(NotA)),
                ("23:59", Ok("23:59:00")),
            ],
        );
        check("TIME(9)", &[("14:37:35.123456789", Ok("14:37:35.123456789"))]);
    }

    #[test]
    fn timestamps_cut_digits_beyond_their_precision() {
        check(
            "TIMESTAMP(3)",
            &[
                ("2023-08-15 14:37:35.411", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15T14:37:35.4119Z", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15T14:37:35+02:00", Ok("2023-08-15T12:37:35")),
                ("2023-08-15T00:00:00-0130", Ok("2023-08-15T01:30:00")),
                ("2023-08-15T00:00:00+02", Ok("2023-08-14T22:00:00")),
                ("2023-08-15", Ok("2023-08-15T00:00:00")),
                ("1969-12-31 23:59:59.9999", Ok("1969-12-31T23:59:59.999")),
                ("2023-08-15 24:00:00", Err(NotA)),
                ("2023-08-15 14:37:60", Err(NotA)),
                ("2023-08-15 14:37:35.", Err(NotA)),
                ("2023-08-15x14:37:35", Err(NotA)),
                ("0001-01-01 00:00:00", Ok("0001-01-01T00:00:00")),
                ("9999-12-31 23:59:59.999", Ok("9999-12-31T23:59:59.999")),
            ],
        );
        check("TIMESTAMP(2)", &[("2023-08-15 14:37:35.419", Ok("2023-08-15T14:37:35.410"))]);
        check(
            "TIMESTAMP(9)",
            &[
                ("9999-01-01 00:00:00", Err(OutOfRange)),
                ("2023-08-15 14:37:35.123456789", Ok("2023-08-15T14:37:35.123456789")),
            ],
        );
        check(
            "TIMESTAMP_LTZ(3)",
            &[
                ("2023-08-15 14:37:35.411", Ok("2023-08-15T14:37:35.411Z")),
                ("2023-08-15T14:37:35.411+02:00", Ok("2023-08-15T12:37:35.411Z")),
            ],
        );
    }

    #[test]
    fn bytes_are_base64_or_hex() {
        check("BYTES", &[("AQL/", Ok("0102ff")), ("", Ok("")), ("AQL", Err(NotA)), ("***", Err(NotA))]);
        let hex = ValueOptions { bytes_format: BytesFormat::Hex, ..ValueOptions::default() };
        assert_eq!(read_with("BYTES", "0102fF", hex), Ok("0102ff".into()));
        assert_eq!(read_with("BYTES", "010", hex), Err(NotA));
    }

    #[test]
    fn a_fault_leaves_the_column_as_it_was() {
        let field = Field::new("c", DataType::Int32, false);
        let mut column = ColumnBuilder::try_new(&field, ValueOptions::default(), 4).unwrap();
        column.push("1").unwrap();
        assert_eq!(column.push("x"), Err(NotA));
        assert_eq!(column.push_null(), Err(NotNull));
        column.push("2").unwrap();
        assert_eq!(column.finish().len(), 2);
    }

    #[test]
    fn inference_is_cautious() {
        let of = |text: &str| type_name(&Field::new("c", infer_type(text), true));
        for (text, sql) in [
            ("1", "BIGINT"),
            ("-1", "BIGINT"),
            ("0", "BIGINT"),
            ("007", "STRING"),
            ("1.5", "DOUBLE"),
            ("1e3", "DOUBLE"),
            ("99999999999999999999", "DOUBLE"),
            ("true", "BOOLEAN"),
            ("TRUE", "STRING"),
            ("t", "STRING"),
            ("nan", "STRING"),
            ("inf", "STRING"),
            ("+1", "STRING"),
            (".", "STRING"),
            ("-", "STRING"),
            ("2024-01-01", "DATE"),
            ("2024-01-01 00:00:00", "TIMESTAMP(3)"),
            ("2024-01-01T00:00:00.123456Z", "TIMESTAMP(6)"),
            ("2024-01-01 00:00:00.1234567", "TIMESTAMP(9)"),
            ("0.5", "DOUBLE"),
            ("00.5", "STRING"),
            ("x", "STRING"),
        ] {
            assert_eq!(of(text), sql, "{text}");
        }
    }
}
