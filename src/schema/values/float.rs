//! Floating-point numbers, correctly rounded: what is beyond the range is infinite, what is below it 0.
//!
//! The standard library reads all of the language, and always right. In front of it stand the two shapes
//! of nearly all numbers in files, where less is needed:
//!
//! - Up to 2^53 whole numbers are exact in a double, and so are powers of ten up to 10^22: one division, which the
//!   processor rounds correctly, is all (Clinger, "How to read floating point numbers accurately", 1990).
//! - More digits, and digits with an exponent, are multiplied by the power of ten in 64 bits. The product is too small by less than two
//!   units of its upper half, so the rounding is known unless the bits that are cut off come that close to the
//!   middle: once or twice in a thousand numbers, and then the standard library is asked.

use std::str::FromStr;

use super::int::signed;
use super::word::{Plain, plain};
use super::{Outcome, ValueFault};

/// Up to here every whole number is a double.
const EXACT: u64 = 1 << 53;

/// 10 to the power of the index, as far as they are exact.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The smallest power of ten whose reciprocal can be told with 128 bits at compile time.
const LEAST_POWER: i32 = -27;

/// `10^(LEAST_POWER + index)` as `bits * 2^exponent` with the highest of 64 bits set, cut off.
const SCALED_POWERS: [(u64, i32); 83] = {
    let mut scaled = [(0, 0); 83];
    let mut power_of_five = 1u128;
    let mut power = 0;
    while power as usize + 27 < scaled.len() {
        let num_bits = 128 - power_of_five.leading_zeros();
        let bits = if num_bits > 64 { power_of_five >> (num_bits - 64) } else { power_of_five << (64 - num_bits) };
        scaled[(power - LEAST_POWER) as usize] = (bits as u64, num_bits as i32 - 64 + power);
        // 2^(num_bits - 1) < power of five < 2^num_bits, so the quotient is below 2^64 and not below 2^63.
        if 0 < power && power <= -LEAST_POWER {
            let reciprocal = ((1 << (63 + num_bits)) / power_of_five) as u64;
            scaled[(-power - LEAST_POWER) as usize] = (reciprocal, -(63 + num_bits as i32 + power));
        }
        power_of_five = power_of_five.wrapping_mul(5);
        power += 1;
    }
    scaled
};

#[inline(always)]
pub(super) fn float64(text: &str) -> Outcome<f64> {
    match fast_float(text.as_bytes()) {
        Some(value) => Ok(value),
        None => general_float(text),
    }
}

#[inline(always)]
pub(super) fn float32(text: &str) -> Outcome<f32> {
    match fast_float(text.as_bytes()).and_then(narrowed) {
        Some(value) => Ok(value),
        None => general_float(text),
    }
}

pub(super) fn general_float<T: FromStr>(text: &str) -> Outcome<T> {
    text.parse().map_err(|_| ValueFault::NotA)
}

/// A number of up to 19 digits, perhaps with an exponent.
#[inline(always)]
fn fast_float(text: &[u8]) -> Option<f64> {
    let (negative, unsigned) = signed(text);
    let value = match plain(unsigned) {
        // Of so few characters the digits are mostly exact; asking for the length first spares a guess at their size.
        Some(Plain { digits, scale }) if unsigned.len() <= 16 && digits <= EXACT => exact(digits, scale)?,
        Some(Plain { digits, scale }) => rounded(digits, -(scale as i32))?,
        None => with_exponent(unsigned)?,
    };
    Some(if negative { -value } else { value })
}

/// `digits`, `e` or `E`, and a power of ten of up to three digits.
#[inline(always)]
fn with_exponent(text: &[u8]) -> Option<f64> {
    let tail = text.len().saturating_sub(5);
    let place = tail + text[tail..].iter().position(|byte| byte | 0x20 == b'e')?;
    let Plain { digits, scale } = plain(&text[..place])?;
    let (negative, power) = signed(&text[place + 1..]);
    if power.is_empty() {
        return None;
    }
    let power =
        power.iter().try_fold(0, |power, byte| byte.is_ascii_digit().then(|| 10 * power + i32::from(byte - b'0')))?;
    rounded(digits, if negative { -power } else { power } - scale as i32)
}

/// `digits / 10^scale`, both exact.
#[inline(always)]
fn exact(digits: u64, scale: u32) -> Option<f64> {
    // As a signed number it takes one instruction.
    Some(digits as i64 as f64 / POWERS.get(scale as usize)?)
}

/// `digits * 10^power`, unless the rounding needs a closer look.
#[inline(always)]
fn rounded(digits: u64, power: i32) -> Option<f64> {
    if digits == 0 || power == 0 {
        // Rounded by the conversion.
        return Some(digits as f64);
    }
    let (factor, exponent) = *SCALED_POWERS.get(usize::try_from(power - LEAST_POWER).ok()?)?;
    let shift_up = digits.leading_zeros();
    // The true product p lies in `product <= p < product + 2^64`, since less than one unit of the factor
    // is cut off: in units of `upper`, in `upper <= p < upper + 2`.
    let product = u128::from(digits << shift_up) * u128::from(factor);
    let upper = (product >> 64) as u64;
    // Both factors have their highest bit set, so one of the product's two highest is. 53 bits are kept.
    let cut_bits = 10 + (upper >> 63) as u32;
    let middle = 1 << (cut_bits - 1);
    let cut_off = upper & (2 * middle - 1);
    if cut_off == middle || cut_off == middle - 1 {
        return None;
    }
    let mantissa = (upper >> cut_bits) + u64::from(cut_off > middle);
    // All numbers of so few digits and such powers are normal, so the scaling is exact, also of a mantissa that became 2^53.
    let power_of_two = 64 + cut_bits as i32 + exponent - shift_up as i32;
    Some(mantissa as i64 as f64 * f64::from_bits(((1023 + power_of_two) as u64) << 52))
}

/// A correctly rounded double as a correctly rounded float, where that is sure. Rounding twice goes wrong only where
/// the first rounding ends in the middle of two floats: then on which side of it the number lay is lost.
///
/// # Contract
/// The double is 0 or of a size from 10^-27 to 10^75, as [`fast_float`] gives it. (Subnormal floats have their middles
/// elsewhere.)
#[inline(always)]
fn narrowed(value: f64) -> Option<f32> {
    // A double has 29 bits more.
    let cut_off = value.to_bits() & ((1 << 29) - 1);
    (cut_off != 1 << 28).then_some(value as f32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::oracle::{check, check_against_arrow, check_beside_arrow, nearly, read, read_by_arrow};
    use super::ValueFault::*;
    use super::*;

    const HARD: &str = include_str!("../../../data/hard-floats.txt");

    /// Bits, so that -0.0 differs from 0.0 and NaN is itself.
    #[track_caller]
    fn same_as_the_general_path(text: &str) {
        let bits = |value: Outcome<f64>| value.map(f64::to_bits);
        assert_eq!(bits(float64(text)), bits(general_float(text)), "{text:?}");
        let bits = |value: Outcome<f32>| value.map(f32::to_bits);
        assert_eq!(bits(float32(text)), bits(general_float(text)), "{text:?}");
    }

    #[test]
    fn hard_numbers_are_rounded_as_exact_arithmetic_rounds_them() {
        for line in HARD.lines() {
            let [double, float, text] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let double = u64::from_str_radix(double, 16).unwrap();
            let float = u32::from_str_radix(float, 16).unwrap();
            assert_eq!(float64(text).map(f64::to_bits), Ok(double), "{text}");
            assert_eq!(float32(text).map(f32::to_bits), Ok(float), "{text} as FLOAT");
            // Two judges are better than one.
            assert_eq!(text.parse().map(f64::to_bits), Ok(double), "{text} by std");
            assert_eq!(text.parse().map(f32::to_bits), Ok(float), "{text} as FLOAT by std");
            // What follows zeros, and what is followed by them, is still the same number.
            if !text.contains(['e', 'E', '-', '+']) {
                let longer = format!("0000{text}{}0000", if text.contains('.') { "" } else { "." });
                assert_eq!(float64(&longer).map(f64::to_bits), Ok(double), "{longer}");
                assert_eq!(float64(&format!("-{text}")).map(f64::to_bits), Ok(double | 1 << 63), "-{text}");
            }
        }
    }

    #[test]
    fn the_range_ends_in_infinity_and_in_zero() {
        check(
            "DOUBLE",
            &[
                ("1.7976931348623157E308", Ok("1.7976931348623157e308")),
                ("1.7976931348623159E308", Ok("inf")),
                ("1e400", Ok("inf")),
                ("-1e400", Ok("-inf")),
                ("1e-400", Ok("0.0")),
                ("-1e-400", Ok("-0.0")),
                ("5e-324", Ok("5e-324")),
                ("2e-324", Ok("0.0")),
                ("9007199254740993", Ok("9007199254740992.0")),
            ],
        );
        check(
            "FLOAT",
            &[
                ("3.4028235e38", Ok("3.4028235e38")),
                ("3.5e38", Ok("inf")),
                ("1e-46", Ok("0.0")),
                ("16777217", Ok("16777216.0")),
            ],
        );
    }

    #[test]
    fn spellings() {
        for sql in ["DOUBLE", "FLOAT"] {
            check(
                sql,
                &[
                    (".5", Ok("0.5")),
                    ("5.", Ok("5.0")),
                    ("+5", Ok("5.0")),
                    ("-.5", Ok("-0.5")),
                    ("1e3", Ok("1000.0")),
                    ("1E3", Ok("1000.0")),
                    ("1e+3", Ok("1000.0")),
                    ("25.e-1", Ok("2.5")),
                    ("007", Ok("7.0")),
                    ("-0", Ok("-0.0")),
                    ("NaN", Ok("NaN")),
                    ("nan", Ok("NaN")),
                    ("inf", Ok("inf")),
                    ("-Infinity", Ok("-inf")),
                    ("+INFINITY", Ok("inf")),
                ],
            );
            for text in [
                "", ".", "-", "+", "+.", "e5", ".e5", "1e", "1e+", "1e1.5", "--1", "1.2.3", "1,5", " 1", "1 ", "1_0",
                "0x1p3", "infinit", "nano", "1f", "٣",
            ] {
                check(sql, &[(text, Err(NotA))]);
            }
        }
    }

    #[test]
    fn arrow_csv_reads_the_same_numbers_but_also_with_blanks_around() {
        let plain = ["0.1", "-0.0", ".5", "5.", "+5", "123456789.123456789", "9007199254740993", "x", "1,5", "0x1p3"];
        let others = ["1e3", "1E-3", "1e400", "1e-400", "1e", "NaN", "nan", "inf", "-Infinity", "1d", "1_0"];
        for sql in ["DOUBLE", "FLOAT"] {
            check_beside_arrow(sql, &plain);
            check_beside_arrow(sql, &others);
            // It takes blanks off. Fields aren't trimmed: a blank is a character like others.
            check_against_arrow(sql, &[(" 1", Err(NotA), Some("1.0")), ("1 ", Err(NotA), Some("1.0"))]);
        }
    }

    #[test]
    fn usual_numbers_need_no_general_path() {
        let exact = ["0", "7", "0.25", "123.45", "-99999.99", "12345678.90", "123456789012345", "0.00000001"];
        let rounded = ["0.5488135039273248", "715.1893663724195", "12345.678901234567", "0.12345678901234567"];
        let scaled = ["8.950357097745265E14", "-1.5e-7", "6.02214076e+23", "1e0", "17E-27", "1234567.890123456789e40"];
        for text in exact.into_iter().chain(rounded).chain(scaled) {
            assert_eq!(fast_float(text.as_bytes()), text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn few_numbers_are_left_to_the_general_path_for_their_rounding() {
        let num_left = (1..100_000u64).filter(|seed| {
            let digits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 60;
            rounded(digits, -17).is_none()
        });
        // Once or twice in a thousand, as ten or eleven bits are cut off.
        assert!((50..300).contains(&num_left.count()));
    }

    proptest! {
        #[test]
        fn arrow_csv_agrees_on_numbers(text in "[+-]?[0-9]{1,12}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?") {
            prop_assert_eq!(read("DOUBLE", &text).ok(), read_by_arrow("DOUBLE", &text));
            prop_assert_eq!(read("FLOAT", &text).ok(), read_by_arrow("FLOAT", &text));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn the_fast_path_agrees_with_the_general_one(text in nearly("[+-]?[0-9]{0,12}\\.?[0-9]{0,20}")) {
            same_as_the_general_path(&text);
        }

        #[test]
        fn exponents_agree_too(text in nearly("[+-]?[0-9]{1,6}\\.?[0-9]{0,6}[eE][+-]?[0-9]{1,3}")) {
            same_as_the_general_path(&text);
        }

        #[test]
        fn digits_with_any_power_agree(digits: u64, point in 0usize..20, power in -60i32..70, sign in "[+-]?") {
            let digits = digits.to_string();
            let (whole, fraction) = digits.split_at(point.min(digits.len()));
            same_as_the_general_path(&format!("{sign}{whole}.{fraction}e{power}"));
            same_as_the_general_path(&format!("{sign}{whole}{fraction}E{power:+03}"));
        }

        #[test]
        fn every_length_and_place_of_the_point_agrees(digits: u64, zeros in 0usize..8, scale in 0usize..24) {
            let digits = format!("{}{digits:0>24}", "0".repeat(zeros));
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            let whole = whole.trim_start_matches('0');
            same_as_the_general_path(&format!("{whole}.{fraction}"));
            same_as_the_general_path(&format!("0{whole}.{fraction}"));
        }

        #[test]
        fn what_is_written_is_read_back(bits: u64, narrow_bits: u32) {
            let (double, float) = (f64::from_bits(bits), f32::from_bits(narrow_bits));
            for text in [format!("{double}"), format!("{double:?}"), format!("{double:e}")] {
                let back = float64(&text).unwrap();
                prop_assert!(back.to_bits() == bits || double.is_nan(), "{}", text);
            }
            for text in [format!("{float}"), format!("{float:?}"), format!("{float:e}")] {
                let back = float32(&text).unwrap();
                prop_assert!(back.to_bits() == narrow_bits || float.is_nan(), "{}", text);
            }
        }

        /// Of doubles between 0.001 and 2^53, whose middles have few enough digits for the fast path.
        #[test]
        fn middles_of_two_doubles_go_to_the_even_one(mantissa in 1u64 << 52..1 << 53, halvings in 0u32..10, off in -1i64..=1) {
            // (mantissa + 1/2) / 2^halvings, with its digits counted in units of 10^-(halvings + 1).
            let units = u128::from(2 * mantissa + 1) * 5u128.pow(halvings + 1);
            let units = units.checked_add_signed(off.into()).unwrap().to_string();
            let (whole, fraction) = units.split_at(units.len() - halvings as usize - 1);
            let up = match off {
                0 => mantissa % 2,
                _ => u64::from(off > 0),
            };
            let expected = (mantissa + up) as f64 / f64::from(1 << halvings);
            let text = format!("{whole}.{fraction}");
            prop_assert_eq!(float64(&text).map(f64::to_bits), Ok(expected.to_bits()), "{}", text);
        }
    }
}
