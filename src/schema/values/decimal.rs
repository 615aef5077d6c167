//! Decimal numbers, exact: what doesn't fit is a fault.

use arrow::datatypes::i256;

use super::int::{general_int, signed};
use super::word::{POWERS, Plain, long_plain, plain};
use super::{Outcome, ValueFault};

/// What a DECIMAL column holds, and how it takes what it doesn't.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecimalShape {
    pub(super) precision: u8,
    pub(super) scale: i8,
    /// Whether digits beyond the scale are rounded (half away from zero) instead of refused.
    pub(super) rounding: bool,
}

/// 10 to the power of the index: the first number that has more digits.
const LIMITS: [i128; 39] = {
    let mut limits = [1; 39];
    let mut precision = 1;
    while precision < limits.len() {
        limits[precision] = limits[precision - 1] * 10;
        precision += 1;
    }
    limits
};

/// A decimal number as an integer of `scale` digits behind the point.
#[inline(always)]
pub(super) fn decimal128(text: &str, shape: DecimalShape) -> Outcome<i128> {
    match fast_decimal(text.as_bytes(), shape) {
        Some(value) => Ok(value),
        None => general_decimal(text.as_bytes(), shape)?.to_i128().ok_or(ValueFault::OutOfRange),
    }
}

#[inline(always)]
pub(super) fn decimal256(text: &str, shape: DecimalShape) -> Outcome<i256> {
    match fast_decimal(text.as_bytes(), shape) {
        Some(value) => Ok(i256::from_i128(value)),
        None => general_decimal(text.as_bytes(), shape),
    }
}

/// A number without exponent and with no more digits behind the point than the column has.
#[inline(always)]
fn fast_decimal(text: &[u8], shape: DecimalShape) -> Option<i128> {
    let (negative, unsigned) = signed(text);
    let magnitude = match plain(unsigned) {
        // 64 bits times 64 bits always fit.
        Some(Plain { digits, scale }) => u128::from(digits) * u128::from(*POWERS.get(missing(scale, shape)?)?),
        None => long_decimal(unsigned, shape)?,
    };
    let magnitude = i128::try_from(magnitude).ok()?;
    // Every i128 has fewer than 40 digits.
    let limit = LIMITS.get(usize::from(shape.precision)).copied().unwrap_or(i128::MAX);
    (magnitude < limit).then_some(if negative { -magnitude } else { magnitude })
}

/// How many zeros the digits lack.
#[inline(always)]
fn missing(scale: u32, shape: DecimalShape) -> Option<usize> {
    usize::try_from(i32::from(shape.scale) - scale as i32).ok()
}

#[cold]
fn long_decimal(unsigned: &[u8], shape: DecimalShape) -> Option<u128> {
    let Plain { digits, scale } = long_plain(unsigned)?;
    digits.checked_mul(LIMITS.get(missing(scale, shape)?)?.unsigned_abs())
}

/// Any number of digits, with an exponent or without.
#[cold]
pub(super) fn general_decimal(text: &[u8], DecimalShape { precision, scale, rounding }: DecimalShape) -> Outcome<i256> {
    let (negative, unsigned) = signed(text);
    let (mantissa, exponent) = match unsigned.iter().position(|c| matches!(c, b'e' | b'E')) {
        Some(at) => (&unsigned[..at], general_int::<i32>(&unsigned[at + 1..])?),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ValueOptions;
    use super::super::oracle::{
        check, check_against_arrow, check_beside_arrow, nearly, read, read_by_arrow, read_with,
    };
    use super::ValueFault::*;
    use super::*;

    const ROUNDING: ValueOptions<'static> = ValueOptions {
        decimal_rounding: true,
        bytes_format: super::super::BytesFormat::Base64,
        timestamp_format: None,
    };

    #[test]
    fn decimals_are_exact() {
        check(
            "DECIMAL(4,2)",
            &[
                ("12.34", Ok("12.34")),
                ("-.5", Ok("-0.50")),
                ("+5.", Ok("5.00")),
                ("0012.30", Ok("12.30")),
                ("99.99", Ok("99.99")),
                ("-99.99", Ok("-99.99")),
                ("100", Err(OutOfRange)),
                ("-100", Err(OutOfRange)),
                ("1.2e1", Ok("12.00")),
                ("123.45", Err(OutOfRange)),
                ("12e-2", Ok("0.12")),
                ("0e99999", Ok("0.00")),
                ("1e99999", Err(OutOfRange)),
                ("0.00e-9999", Ok("0.00")),
            ],
        );
        for text in ["", ".", "-", "-.", "1.2.3", "1e", "1e1.5", "e5", "1 ", " 1", "1,5", "NaN", "inf", "0x1", "٣"] {
            check("DECIMAL(4,2)", &[(text, Err(NotA))]);
            check("DECIMAL(40,2)", &[(text, Err(NotA))]);
        }
    }

    #[test]
    fn digits_beyond_the_scale_are_refused_unless_they_are_zeros() {
        check(
            "DECIMAL(4,2)",
            &[
                ("1.234", Err(ExcessDigits)),
                ("1.230", Ok("1.23")),
                ("1.2300000000000000000000000000000000000000000000", Ok("1.23")),
                ("1.2300000000000000000000000000000000000000000001", Err(ExcessDigits)),
                ("1e-3", Err(ExcessDigits)),
                ("10e-3", Ok("0.01")),
            ],
        );
        check("DECIMAL(4,0)", &[("1.5", Err(ExcessDigits)), ("1.0", Ok("1"))]);
    }

    #[test]
    fn digits_beyond_the_scale_are_rounded_half_away_from_zero_where_that_is_wished() {
        for (text, expected) in [
            ("1.235", Ok("1.24")),
            ("-1.235", Ok("-1.24")),
            ("1.2349999999999999999999999", Ok("1.23")),
            ("99.994", Ok("99.99")),
            ("99.999", Err(OutOfRange)),
            ("0.005", Ok("0.01")),
            ("0.0049", Ok("0.00")),
            ("1e-9", Ok("0.00")),
            ("1.230", Ok("1.23")),
        ] {
            assert_eq!(read_with("DECIMAL(4,2)", text, ROUNDING), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn wide_decimals_hold_all_their_digits() {
        let nines = "9".repeat(38);
        check(
            "DECIMAL(38,0)",
            &[
                (&nines, Ok(&nines)),
                (&format!("-{nines}"), Ok(&format!("-{nines}"))),
                (&format!("{nines}9"), Err(OutOfRange)),
                ("100000000000000000000000000000000000000", Err(OutOfRange)),
                (&format!("0{nines}"), Ok(&nines)),
            ],
        );
        check(
            "DECIMAL(38,18)",
            &[
                ("12345678901234567890.123456789012345678", Ok("12345678901234567890.123456789012345678")),
                ("1.000000000000000001", Ok("1.000000000000000001")),
                ("100000000000000000000", Err(OutOfRange)),
            ],
        );
        check(
            "DECIMAL(40,0)",
            &[
                ("1234567890123456789012345678901234567890", Ok("1234567890123456789012345678901234567890")),
                ("170141183460469231731687303715884105727", Ok("170141183460469231731687303715884105727")),
                ("170141183460469231731687303715884105728", Ok("170141183460469231731687303715884105728")),
            ],
        );
        check("DECIMAL(76,0)", &[(&"9".repeat(76), Ok(&"9".repeat(76))), (&"9".repeat(77), Err(OutOfRange))]);
    }

    #[test]
    fn arrow_csv_reads_the_same_numbers_but_drops_digits() {
        let same =
            ["12.34", "-12.3", "0", "+1", ".5", "5.", "-.5", "1.230", "1.2e1", "1e2", "123456789", "1.2.3", ".", "1 "];
        check_beside_arrow("DECIMAL(10,2)", &same);
        check_against_arrow(
            "DECIMAL(10,2)",
            &[
                // It cuts what the column can't hold. We never do; where that is wished, we round.
                ("1.239", Err(ExcessDigits), Some("1.23")),
                ("1e-3", Err(ExcessDigits), Some("0.00")),
            ],
        );
    }

    #[test]
    fn usual_numbers_need_no_general_path() {
        let shape = DecimalShape { precision: 15, scale: 2, rounding: false };
        for (text, expected) in [
            ("0.04", 4),
            ("21168.23", 2_116_823),
            ("-999999999.5", -99_999_999_950),
            ("17", 1_700),
            ("1234567890123.45", 123_456_789_012_345),
        ] {
            assert_eq!(fast_decimal(text.as_bytes(), shape), Some(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arrow_csv_agrees_where_no_digit_is_beyond_the_scale(text in "[+-]?[0-9]{1,16}(\\.[0-9]{0,4})?") {
            prop_assert_eq!(read("DECIMAL(18,4)", &text).ok(), read_by_arrow("DECIMAL(18,4)", &text));
            prop_assert_eq!(read("DECIMAL(50,4)", &text).ok(), read_by_arrow("DECIMAL(50,4)", &text));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn the_fast_path_agrees_with_the_general_one(
            text in nearly("[+-]?[0-9]{0,22}\\.?[0-9]{0,22}"),
            precision in 1u8..=76,
            scale in -2i8..=40,
            rounding: bool,
        ) {
            let shape = DecimalShape { precision, scale: scale.min(precision as i8), rounding };
            prop_assert_eq!(decimal256(&text, shape), general_decimal(text.as_bytes(), shape), "{} {:?}", text, shape);
            let shape = DecimalShape { precision: precision.min(38), scale: shape.scale.min(38), rounding };
            let narrowed = general_decimal(text.as_bytes(), shape).map(|value| value.to_i128().unwrap());
            prop_assert_eq!(decimal128(&text, shape), narrowed, "{} {:?}", text, shape);
        }

        #[test]
        fn small_numbers_agree_in_small_columns(
            text in nearly("[+-]?[0-9]{0,4}\\.?[0-9]{0,4}"),
            precision in 1u8..=6,
            scale in 0i8..=6,
            rounding: bool,
        ) {
            let shape = DecimalShape { precision, scale: scale.min(precision as i8), rounding };
            let narrowed = general_decimal(text.as_bytes(), shape).map(|value| value.to_i128().unwrap());
            prop_assert_eq!(decimal128(&text, shape), narrowed, "{} {:?}", text, shape);
        }
    }
}
