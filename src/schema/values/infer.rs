//! What type a text suggests.

use arrow::datatypes::{DataType, TimeUnit};

use super::float::general_float;
use super::int::{general_int, signed};
use super::time::{general_date, general_timestamp};

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
    if numeric && general_int::<i64>(bytes).is_ok() {
        return DataType::Int64;
    }
    if numeric && unsigned.iter().any(u8::is_ascii_digit) && general_float::<f64>(text).is_ok() {
        return DataType::Float64;
    }
    if general_date(bytes).is_ok() {
        return DataType::Date32;
    }
    if general_timestamp::<0>(bytes, 9).is_ok() {
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
    use arrow::datatypes::Field;

    use super::*;
    use crate::schema::type_name;

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
