//! Whole numbers.

use super::word::magnitude;
use super::{Outcome, ValueFault};

/// A whole number with a sign, of a type that an `i64` can become.
#[inline(always)]
pub(super) fn int<T: TryFrom<i64> + TryFrom<i128>>(text: &str) -> Outcome<T> {
    match fast_int(text.as_bytes()) {
        Some(value) => Ok(value),
        None => general_int(text.as_bytes()),
    }
}

/// A whole number of no sign or `+`, with 20 digits at most.
#[inline(always)]
pub(super) fn uint64(text: &str) -> Outcome<u64> {
    match magnitude(text.as_bytes()) {
        Some(value) => Ok(value),
        None => general_int(text.as_bytes()),
    }
}

#[inline(always)]
fn fast_int<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
    let (negative, digits) = signed(text);
    let magnitude = i64::try_from(magnitude(digits)?).ok()?;
    T::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Any number of digits.
#[cold]
pub(super) fn general_int<T: TryFrom<i128>>(text: &[u8]) -> Outcome<T> {
    let (negative, digits) = signed(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ValueFault::NotA);
    }
    let magnitude = digits
        .iter()
        .try_fold(0i128, |value, digit| value.checked_mul(10)?.checked_add(i128::from(digit - b'0')))
        .ok_or(ValueFault::OutOfRange)?;
    T::try_from(if negative { -magnitude } else { magnitude }).map_err(|_| ValueFault::OutOfRange)
}

/// Whether a minus stands in front, and what stands behind the sign.
#[inline(always)]
pub(super) fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::oracle::{check, check_against_arrow, check_beside_arrow, nearly, read, read_by_arrow};
    use super::ValueFault::*;
    use super::*;

    #[test]
    fn each_width_ends_where_it_should() {
        check(
            "TINYINT",
            &[
                ("127", Ok("127")),
                ("-128", Ok("-128")),
                ("128", Err(OutOfRange)),
                ("-129", Err(OutOfRange)),
                ("+5", Ok("5")),
                ("007", Ok("7")),
                ("-0", Ok("0")),
            ],
        );
        check(
            "SMALLINT",
            &[
                ("32767", Ok("32767")),
                ("-32768", Ok("-32768")),
                ("32768", Err(OutOfRange)),
                ("-32769", Err(OutOfRange)),
            ],
        );
        check(
            "INT",
            &[
                ("2147483647", Ok("2147483647")),
                ("-2147483648", Ok("-2147483648")),
                ("2147483648", Err(OutOfRange)),
                ("-2147483649", Err(OutOfRange)),
                ("4294967296", Err(OutOfRange)),
            ],
        );
        check(
            "BIGINT",
            &[
                ("9223372036854775807", Ok("9223372036854775807")),
                ("-9223372036854775808", Ok("-9223372036854775808")),
                ("9223372036854775808", Err(OutOfRange)),
                ("-9223372036854775809", Err(OutOfRange)),
                ("18446744073709551617", Err(OutOfRange)),
                ("000000000000000000000000000000000000000042", Ok("42")),
                ("99999999999999999999999999999999999999999", Err(OutOfRange)),
            ],
        );
    }

    #[test]
    fn each_width_without_sign_ends_where_it_should() {
        for (bits, most, beyond) in [
            (8, "255", "256"),
            (16, "65535", "65536"),
            (32, "4294967295", "4294967296"),
            (64, "18446744073709551615", "18446744073709551616"),
        ] {
            let rows = [
                (most, Ok(most)),
                (beyond, Err(OutOfRange)),
                ("0", Ok("0")),
                ("-0", Ok("0")),
                ("+7", Ok("7")),
                ("-1", Err(OutOfRange)),
                ("-", Err(NotA)),
            ];
            check(&format!("ARROW('UInt{bits}')"), &rows);
        }
    }

    #[test]
    fn what_is_not_wholly_a_number_is_refused() {
        for text in
            ["", "-", "+", "1 ", " 1", "1.0", "1.", "x7", "7x", "--1", "+-1", "1e3", "1_000", "1,000", "٣", "0x10"]
        {
            check("INT", &[(text, Err(NotA))]);
            check("BIGINT", &[(text, Err(NotA))]);
            check("ARROW('UInt64')", &[(text, Err(NotA))]);
        }
    }

    #[test]
    fn arrow_csv_reads_the_same_numbers_but_also_with_blanks_around() {
        check_beside_arrow(
            "INT",
            &["0", "-1", "+1", "007", "2147483647", "-2147483648", "2147483648", "1.0", "-", "x"],
        );
        check_beside_arrow("BIGINT", &["9223372036854775807", "-9223372036854775808", "9223372036854775808"]);
        check_against_arrow(
            "INT",
            &[
                // It takes blanks off. Fields aren't trimmed: a blank is a character like others.
                ("1 ", Err(NotA), Some("1")),
                (" 1", Err(NotA), Some("1")),
            ],
        );
        check_beside_arrow("ARROW('UInt64')", &["0", "-0", "-1", "18446744073709551615", "18446744073709551616"]);
    }

    fn same<T: TryFrom<i64> + TryFrom<i128> + PartialEq + std::fmt::Debug>(text: &str) {
        assert_eq!(int::<T>(text), general_int(text.as_bytes()), "{text:?}");
    }

    proptest! {
        #[test]
        fn arrow_csv_agrees_on_whole_numbers(text in "[+-]?[0-9]{1,20}") {
            prop_assert_eq!(read("INT", &text).ok(), read_by_arrow("INT", &text));
            prop_assert_eq!(read("BIGINT", &text).ok(), read_by_arrow("BIGINT", &text));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn the_fast_path_agrees_with_the_general_one(text in nearly("[+-]?0{0,3}[0-9]{1,21}")) {
            same::<i8>(&text);
            same::<i16>(&text);
            same::<i32>(&text);
            same::<i64>(&text);
            same::<u8>(&text);
            same::<u16>(&text);
            same::<u32>(&text);
            prop_assert_eq!(uint64(&text), general_int(text.as_bytes()));
        }

        #[test]
        fn numbers_near_the_limits_are_told_apart(distance in -3i128..=3, bits in 0u32..=65, negative: bool) {
            let text = (((1i128 << bits) + distance) * if negative { -1 } else { 1 }).to_string();
            same::<i8>(&text);
            same::<i16>(&text);
            same::<i32>(&text);
            same::<i64>(&text);
            same::<u8>(&text);
            same::<u16>(&text);
            same::<u32>(&text);
            prop_assert_eq!(uint64(&text), general_int(text.as_bytes()));
        }
    }
}
