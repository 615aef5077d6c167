//! Dates, times of day and timestamps, in the proleptic Gregorian calendar from year 1 to 9999.
//!
//! Nearly all of them stand in fixed places, which are read eight characters at once: `YYYY-MM-DD` and `HH:MM:SS` are
//! the same shape, two digits three times. Everything else that is allowed is read piece by piece.

use std::ops::RangeInclusive;

use super::word::{POWERS, Word, all_digits, magnitude};
use super::{Outcome, ValueFault};

/// The day that was read last. Neighbours in a file mostly share it, and comparing is cheaper than reading it anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastDay {
    text: [u8; 10],
    days: i32,
}

impl Default for LastDay {
    fn default() -> Self {
        Self { text: *b"1970-01-01", days: 0 }
    }
}

/// `YYYY-MM-DD` as days since the epoch.
#[inline(always)]
pub(super) fn date(text: &str) -> Outcome<i32> {
    match <&[u8; 10]>::try_from(text.as_bytes()).ok().and_then(fast_date) {
        Some(days) => Ok(days),
        None => general_date(text.as_bytes()),
    }
}

/// The time of day in units of `10^-UNIT` seconds, digits beyond `precision` cut.
#[inline(always)]
pub(super) fn time_of_day<const UNIT: usize>(text: &str, precision: u8) -> Outcome<i64> {
    match fast_time::<UNIT>(text.as_bytes(), precision) {
        Some(time) => Ok(time),
        None => general_time::<UNIT>(text.as_bytes(), precision),
    }
}

/// Units of `10^-UNIT` seconds since the epoch in UTC, digits beyond `precision` cut. Without a zone it counts as UTC.
#[inline(always)]
pub(super) fn timestamp<const UNIT: usize>(text: &str, precision: u8, last_day: &mut LastDay) -> Outcome<i64> {
    match fast_timestamp::<UNIT>(text.as_bytes(), precision, last_day) {
        Some(time) => Ok(time),
        None => general_timestamp::<UNIT>(text.as_bytes(), precision),
    }
}

/// A timestamp in ms since the epoch, digits beyond them cut.
pub(crate) fn timestamp_millis(text: &str) -> Option<i64> {
    timestamp::<3>(text, 3, &mut LastDay::default()).ok()
}

#[inline(always)]
fn fast_date(text: &[u8; 10]) -> Option<i32> {
    let [thousands, hundreds, rest @ ..] = text;
    let (thousands, hundreds) = (thousands.wrapping_sub(b'0'), hundreds.wrapping_sub(b'0'));
    if thousands > 9 || hundreds > 9 {
        return None;
    }
    let [year, month, day] = pairs(rest, b'-')?;
    days_since_epoch(u32::from(thousands) * 1000 + u32::from(hundreds) * 100 + year, month, day)
}

#[inline(always)]
fn fast_time<const UNIT: usize>(text: &[u8], precision: u8) -> Option<i64> {
    let (clock, fraction) = text.split_first_chunk()?;
    let seconds = seconds_of_day(pairs(clock, b':')?)?;
    Some(i64::from(seconds) * units_per_second::<UNIT>() + fast_fraction::<UNIT>(text, fraction.len(), precision)?)
}

/// `YYYY-MM-DD HH:MM:SS[.fraction][zone]`, with a blank or `T`.
#[inline(always)]
fn fast_timestamp<const UNIT: usize>(text: &[u8], precision: u8, last_day: &mut LastDay) -> Option<i64> {
    let (day_and_clock, rest) = text.split_first_chunk::<19>()?;
    let (day, clock) = (day_and_clock.first_chunk()?, day_and_clock.last_chunk()?);
    if last_day.text != *day {
        *last_day = LastDay { text: *day, days: fast_date(day)? };
    }
    if !matches!(day_and_clock[10], b' ' | b'T' | b't') {
        return None;
    }
    let seconds = i64::from(seconds_of_day(pairs(clock, b':')?)?) + i64::from(last_day.days) * 86_400;
    let (fraction_len, offset) = match rest {
        [fraction @ .., b'Z'] => (fraction.len(), 0),
        [fraction @ .., b'+' | b'-', _, _, b':', _, _] => (fraction.len(), zone_offset(&rest[fraction.len()..]).ok()?),
        fraction => (fraction.len(), 0),
    };
    let fraction = fast_fraction::<UNIT>(&text[..19 + fraction_len], fraction_len, precision)?;
    // An offset can lead out of the years that there are; what is wrong then is told by the general path.
    if offset != 0 && !SECONDS_OF_YEARS.contains(&(seconds - offset)) {
        return None;
    }
    // Only nanoseconds can leave an i64.
    (seconds - offset).checked_mul(units_per_second::<UNIT>())?.checked_add(fraction)
}

const fn units_per_second<const UNIT: usize>() -> i64 {
    POWERS[UNIT] as i64
}

/// `NN?NN?NN` as three numbers; `?` is the separator.
#[inline(always)]
fn pairs(text: &[u8; 8], separator: u8) -> Option<[u32; 3]> {
    let pattern = u64::from_le_bytes([b'0', b'0', separator, b'0', b'0', separator, b'0', b'0']);
    // What makes a digit above 9, or a separator above 0, reach the high bit.
    let above = u64::from_le_bytes([0x76, 0x76, 0x7F, 0x76, 0x76, 0x7F, 0x76, 0x76]);
    let differences = u64::from_le_bytes(*text) ^ pattern;
    if (differences | differences.wrapping_add(above)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    // Each byte becomes ten times itself and the next one; three of them mean something.
    let [first, _, _, second, _, _, third, _] = (differences * 10 + (differences >> 8)).to_le_bytes();
    Some([first.into(), second.into(), third.into()])
}

/// A point and one to nine digits, the last `len` characters of `text`, or nothing. Before them stand eight more at least.
#[inline(always)]
fn fast_fraction<const UNIT: usize>(text: &[u8], len: usize, precision: u8) -> Option<i64> {
    if len == 0 {
        return Some(0);
    }
    let num_digits = len - 1;
    let value = match num_digits {
        1..=8 => {
            let digits = Word::new(text.last_chunk()?).last(num_digits);
            all_digits([digits]).then(|| digits.value())?
        }
        9 => magnitude(&text[text.len() - 9..])?,
        _ => return None,
    };
    if text[text.len() - len] != b'.' {
        return None;
    }
    let precision = usize::from(precision).min(UNIT);
    let kept = if num_digits <= precision {
        value * POWERS[UNIT - num_digits]
    } else {
        value / POWERS[num_digits - precision] * POWERS[UNIT - precision]
    };
    Some(kept as i64)
}

#[inline(always)]
fn seconds_of_day([hour, minute, second]: [u32; 3]) -> Option<u32> {
    (hour <= 23 && minute <= 59 && second <= 59).then_some(hour * 3600 + minute * 60 + second)
}

/// Days since 1970-01-01 of a day that is in the calendar, of a year before 10000.
#[inline(always)]
fn days_since_epoch(year: u32, month: u32, day: u32) -> Option<i32> {
    if year == 0 || !(1..=12).contains(&month) || day == 0 || (day > 28 && day > days_in_month(year, month)) {
        return None;
    }
    // Years that begin in March have their leap day last, and months of 31 and 30 days alternate so regularly that
    // a line finds their starts.
    let (year, month) = if month <= 2 { (year - 1, month + 12) } else { (year, month) };
    let century = year / 100;
    let since_march_of_year_0 = 365 * year + year / 4 + century / 4 - century + (979 * month - 2919) / 32 + day;
    Some(since_march_of_year_0 as i32 - 719_469)
}

fn days_in_month(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cold]
pub(super) fn general_date(text: &[u8]) -> Outcome<i32> {
    match day(text)? {
        (days, []) => Ok(days),
        _ => Err(ValueFault::NotA),
    }
}

#[cold]
fn general_time<const UNIT: usize>(text: &[u8], precision: u8) -> Outcome<i64> {
    match clock(text, precision)? {
        (seconds, nanos, []) => in_units::<UNIT>(seconds, nanos),
        _ => Err(ValueFault::NotA),
    }
}

/// A day, or `day[T ]clock[ ][Z|±HH[[:]MM]]`.
#[cold]
pub(super) fn general_timestamp<const UNIT: usize>(text: &[u8], precision: u8) -> Outcome<i64> {
    let (days, rest) = day(text)?;
    let midnight = i64::from(days) * 86_400;
    let (seconds, nanos, zone) = match rest {
        [] => (0, 0, rest),
        [b'T' | b't' | b' ', time @ ..] => clock(time, precision)?,
        _ => return Err(ValueFault::NotA),
    };
    in_units::<UNIT>(midnight + seconds - zone_offset(zone)?, nanos)
}

/// From the beginning of the year 1 to the end of 9999, in seconds since the epoch.
const SECONDS_OF_YEARS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

pub(super) fn in_units<const UNIT: usize>(seconds: i64, nanos: u32) -> Outcome<i64> {
    if !SECONDS_OF_YEARS.contains(&seconds) {
        return Err(ValueFault::OutOfRange);
    }
    let per_second = units_per_second::<UNIT>();
    let units =
        i128::from(seconds) * i128::from(per_second) + i128::from(nanos) * i128::from(per_second) / 1_000_000_000;
    i64::try_from(units).map_err(|_| ValueFault::OutOfRange)
}

/// `YYYY-MM-DD` as days since the epoch, and what follows.
fn day(text: &[u8]) -> Outcome<(i32, &[u8])> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(after(rest, b'-')?, 2)?;
    let (day, rest) = digits(after(rest, b'-')?, 2)?;
    Ok((days_since_epoch(year, month, day).ok_or(ValueFault::NotA)?, rest))
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

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};
    use proptest::prelude::*;

    use super::super::oracle::{check, check_against_arrow, check_beside_arrow, nearly, read, read_by_arrow};
    use super::ValueFault::*;
    use super::*;

    #[test]
    fn every_day_of_the_calendar_is_the_day_that_chrono_counts() {
        let (first, last) = (NaiveDate::from_ymd_opt(1, 1, 1).unwrap(), NaiveDate::from_ymd_opt(9999, 12, 31).unwrap());
        let mut num_days = 0;
        for (days, day) in (-719_162..).zip(first.iter_days().take_while(|day| *day <= last)) {
            assert_eq!(days_since_epoch(day.year() as u32, day.month(), day.day()), Some(days), "{day}");
            num_days += 1;
        }
        assert_eq!(num_days, 3_652_059);
    }

    #[test]
    fn no_other_day_is_in_the_calendar() {
        // One cycle of the calendar, and its ends.
        for year in (0..=404).chain(9_990..=9_999) {
            for month in 0..=99 {
                // Of a month that isn't there one day stands for all.
                let days = if (1..=12).contains(&month) { 0..=99 } else { 1..=1 };
                for day in days {
                    let known = year > 0 && NaiveDate::from_ymd_opt(year as i32, month, day).is_some();
                    assert_eq!(days_since_epoch(year, month, day).is_some(), known, "{year}-{month}-{day}");
                }
            }
        }
    }

    #[test]
    fn an_offset_leads_out_of_no_year() {
        for sql in ["TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"] {
            check(
                sql,
                &[
                    ("9999-12-31T23:59:59-14:00", Err(OutOfRange)),
                    ("9999-12-31T23:59:59-00:01", Err(OutOfRange)),
                    ("0001-01-01T00:00:00+14:00", Err(OutOfRange)),
                    ("0001-01-01 00:00+00:01", Err(OutOfRange)),
                ],
            );
            assert!(read(sql, "9999-12-31T23:59:59+00:01").is_ok() && read(sql, "0001-01-01T00:00:00-00:01").is_ok());
        }
    }

    #[test]
    fn dates() {
        check(
            "DATE",
            &[
                ("2024-02-29", Ok("2024-02-29")),
                ("2023-02-29", Err(NotA)),
                ("1900-02-29", Err(NotA)),
                ("2000-02-29", Ok("2000-02-29")),
                ("2024-02-30", Err(NotA)),
                ("2024-04-31", Err(NotA)),
                ("0001-01-01", Ok("0001-01-01")),
                ("9999-12-31", Ok("9999-12-31")),
                ("0000-01-01", Err(NotA)),
                ("10000-01-01", Err(NotA)),
                ("2024-00-01", Err(NotA)),
                ("2024-13-01", Err(NotA)),
                ("2024-01-00", Err(NotA)),
                ("2024-1-1", Err(NotA)),
                ("2024/01/01", Err(NotA)),
                ("20240101", Err(NotA)),
                ("2024-01-01 ", Err(NotA)),
                (" 2024-01-01", Err(NotA)),
                ("2024-01-01T00:00:00", Err(NotA)),
                ("-024-01-01", Err(NotA)),
                ("", Err(NotA)),
            ],
        );
    }

    #[test]
    fn times_of_day() {
        check(
            "TIME(3)",
            &[
                ("00:00:00", Ok("00:00:00")),
                ("23:59:59.999", Ok("23:59:59.999")),
                ("14:37:35.4119", Ok("14:37:35.411")),
                ("14:37:35.4", Ok("14:37:35.400")),
                ("14:37:35,4", Ok("14:37:35.400")),
                ("23:59", Ok("23:59:00")),
                ("24:00:00", Err(NotA)),
                ("23:60:00", Err(NotA)),
                ("23:59:60", Err(NotA)),
                ("23:59:59.", Err(NotA)),
                ("1:00:00", Err(NotA)),
                ("14:37:35Z", Err(NotA)),
                ("", Err(NotA)),
            ],
        );
        check("TIME(0)", &[("14:37:35.999", Ok("14:37:35"))]);
        check("TIME(6)", &[("14:37:35.1234567", Ok("14:37:35.123456"))]);
        check("TIME(9)", &[("14:37:35.123456789", Ok("14:37:35.123456789"))]);
    }

    #[test]
    fn digits_beyond_the_precision_are_cut() {
        let cut = |sql: &str, expected: &str| check(sql, &[("2023-08-15 14:37:35.9876543219", Ok(expected))]);
        cut("TIMESTAMP(0)", "2023-08-15T14:37:35");
        cut("TIMESTAMP(1)", "2023-08-15T14:37:35.900");
        cut("TIMESTAMP(2)", "2023-08-15T14:37:35.980");
        cut("TIMESTAMP(3)", "2023-08-15T14:37:35.987");
        cut("TIMESTAMP(4)", "2023-08-15T14:37:35.987600");
        cut("TIMESTAMP(5)", "2023-08-15T14:37:35.987650");
        cut("TIMESTAMP(6)", "2023-08-15T14:37:35.987654");
        cut("TIMESTAMP(7)", "2023-08-15T14:37:35.987654300");
        cut("TIMESTAMP(8)", "2023-08-15T14:37:35.987654320");
        cut("TIMESTAMP(9)", "2023-08-15T14:37:35.987654321");
        // Cut, not rounded, also before the epoch.
        check("TIMESTAMP(3)", &[("1969-12-31 23:59:59.9999", Ok("1969-12-31T23:59:59.999"))]);
    }

    #[test]
    fn timestamps() {
        check(
            "TIMESTAMP(3)",
            &[
                ("2023-08-15 14:37:35.411", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15T14:37:35.411", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15t14:37:35.411", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15 14:37:35,411", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15 14:37:35", Ok("2023-08-15T14:37:35")),
                ("2023-08-15 14:37", Ok("2023-08-15T14:37:00")),
                ("2023-08-15", Ok("2023-08-15T00:00:00")),
                ("0001-01-01 00:00:00", Ok("0001-01-01T00:00:00")),
                ("9999-12-31 23:59:59.999", Ok("9999-12-31T23:59:59.999")),
                ("2024-02-29 00:00:00", Ok("2024-02-29T00:00:00")),
            ],
        );
        for text in [
            "",
            "2023-08-15 24:00:00",
            "2023-08-15 23:60:00",
            "2023-08-15 14:37:60",
            "2023-08-15 14:37:35.",
            "2023-08-15 14:37:35.Z",
            "2023-08-15 14",
            "2023-08-15x14:37:35",
            "2023-08-15  14:37:35",
            "2023-08-15 14:37:35 ",
            "2023-02-29 00:00:00",
            "0000-01-01 00:00:00",
            "10000-01-01 00:00:00",
            "1692110255",
            "\0\0\0\0\0\0\0\0\0\0 14:37:35",
        ] {
            check("TIMESTAMP(3)", &[(text, Err(NotA))]);
            check("TIMESTAMP(9)", &[(text, Err(NotA))]);
        }
    }

    #[test]
    fn zones() {
        check(
            "TIMESTAMP(3)",
            &[
                ("2023-08-15T14:37:35.4119Z", Ok("2023-08-15T14:37:35.411")),
                ("2023-08-15T14:37:35z", Ok("2023-08-15T14:37:35")),
                ("2023-08-15T14:37:35 UTC", Ok("2023-08-15T14:37:35")),
                ("2023-08-15T14:37:35+02:00", Ok("2023-08-15T12:37:35")),
                ("2023-08-15 14:37:35.411-09:30", Ok("2023-08-16T00:07:35.411")),
                ("2023-08-15T00:00:00-0130", Ok("2023-08-15T01:30:00")),
                ("2023-08-15T00:00:00+02", Ok("2023-08-14T22:00:00")),
                ("2023-08-15T00:00:00+18:59", Ok("2023-08-14T05:01:00")),
                ("2023-08-15T00:00:00+19:00", Err(NotA)),
                ("2023-08-15T00:00:00+01:60", Err(NotA)),
                ("2023-08-15T00:00:00+1:00", Err(NotA)),
                ("2023-08-15T00:00:00+", Err(NotA)),
                ("2023-08-15T00:00:00 Europe/Berlin", Err(NotA)),
                ("2023-08-15Z", Err(NotA)),
                // Into the year before the first one, and behind the last one.
                ("0001-01-01T00:00:00+01:00", Err(OutOfRange)),
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
    fn nanoseconds_end_where_64_bits_do() {
        check(
            "TIMESTAMP(9)",
            &[
                ("2262-04-11 23:47:16.854775807", Ok("2262-04-11T23:47:16.854775807")),
                ("2262-04-11 23:47:16.854775808", Err(OutOfRange)),
                ("2262-04-11 23:47:17", Err(OutOfRange)),
                // Its whole second is out of range, and it isn't.
                ("1677-09-21 00:12:43.145224192", Ok("1677-09-21T00:12:43.145224192")),
                ("1677-09-21 00:12:43.145224191", Err(OutOfRange)),
                ("9999-01-01 00:00:00", Err(OutOfRange)),
                ("0001-01-01", Err(OutOfRange)),
            ],
        );
        check("TIMESTAMP(6)", &[("9999-12-31 23:59:59.999999", Ok("9999-12-31T23:59:59.999999"))]);
    }

    #[test]
    fn the_day_before_is_not_taken_for_this_one() {
        let mut last_day = LastDay::default();
        let mut read = |text: &str| timestamp::<0>(text, 0, &mut last_day);
        assert_eq!(read("1970-01-02 00:00:00"), Ok(86_400));
        assert_eq!(read("1970-01-02 00:00:01"), Ok(86_401));
        assert_eq!(read("1970-01-03 00:00:00"), Ok(172_800));
        assert_eq!(read("1970-01-32 00:00:00"), Err(NotA));
        assert_eq!(read("1970-01-03 00:00:01"), Ok(172_801));
        assert_eq!(read("1970-01-02 00:00:02"), Ok(86_402));
    }

    #[test]
    fn arrow_csv_reads_the_same_days_but_also_half_written_ones() {
        let same =
            ["2024-02-29", "2023-02-29", "2024-02-30", "0001-01-01", "9999-12-31", "10000-01-01", "2024/01/01", "x"];
        check_beside_arrow("DATE", &same);
        check_against_arrow(
            "DATE",
            &[
                // One way to write a day: what looks otherwise may be meant otherwise.
                ("2024-1-1", Err(NotA), Some("2024-01-01")),
                ("20240101", Err(NotA), Some("2024-01-01")),
                // The time of day would be lost.
                ("2024-01-01 12:00:00", Err(NotA), Some("2024-01-01")),
                // SQL's calendar begins with year 1.
                ("0000-01-01", Err(NotA), Some("0000-01-01")),
                ("-0001-01-01", Err(NotA), Some("-0001-01-01")),
            ],
        );
    }

    #[test]
    fn arrow_csv_reads_the_same_times_but_also_guesses() {
        check_beside_arrow(
            "TIME(3)",
            &["14:37:35", "23:59:59.999", "14:37:35.4119", "23:59", "24:00:00", "23:59:59.", "x"],
        );
        check_against_arrow(
            "TIME(3)",
            &[
                // ISO 8601 allows a comma.
                ("14:37:35,4", Ok("14:37:35.400"), None),
                ("1:00:00", Err(NotA), Some("01:00:00")),
                ("01:00 PM", Err(NotA), Some("13:00:00")),
                // A bare number could count anything.
                ("5", Err(NotA), Some("00:00:00.005")),
            ],
        );
    }

    #[test]
    fn arrow_csv_reads_the_same_timestamps_but_also_leap_seconds_and_names_of_zones() {
        check_beside_arrow(
            "TIMESTAMP(3)",
            &[
                "2023-08-15 14:37:35.411",
                "2023-08-15T14:37:35.411",
                "2023-08-15t14:37:35z",
                "2023-08-15 14:37:35.4119",
                "2023-08-15 14:37:35.1234567891",
                "1969-12-31 23:59:59.9999",
                "2023-08-15T14:37:35 UTC",
                "2023-08-15T14:37:35+02:00",
                "2023-08-15T00:00:00-0130",
                "2023-08-15T00:00:00+02",
                "2023-08-15",
                "2023-08-15Z",
                "2023-08-15 14",
                "2023-08-15 24:00:00",
                "2023-08-15 14:37:35.",
                "2023-08-15 14:37:35 ",
                "x",
            ],
        );
        check_beside_arrow("TIMESTAMP(9)", &["2262-04-11 23:47:16.854775808", "1677-09-21 00:12:43.145224192"]);
        check_beside_arrow("TIMESTAMP_LTZ(3)", &["2023-08-15 14:37:35.411", "2023-08-15T14:37:35.411+02:00"]);
        check_against_arrow(
            "TIMESTAMP(3)",
            &[
                // Spreadsheets leave zero seconds out, and ISO 8601 allows a comma.
                ("2023-08-15 14:37", Ok("2023-08-15T14:37:00"), None),
                ("2023-08-15 14:37:35,411", Ok("2023-08-15T14:37:35.411"), None),
                // Seconds end at 59: it takes this one for the next minute.
                ("2023-08-15 14:37:60", Err(NotA), Some("2023-08-15T14:38:00")),
                // No zone is so far from Greenwich.
                ("2023-08-15T00:00:00+19:00", Err(NotA), Some("2023-08-14T05:00:00")),
                // Names of zones need a data base that changes from year to year.
                ("2023-08-15T00:00:00 Europe/Berlin", Err(NotA), Some("2023-08-14T22:00:00")),
                ("2023-08-15T143735", Err(NotA), Some("2023-08-15T14:37:35")),
                ("0000-01-01 00:00:00", Err(NotA), Some("0000-01-01T00:00:00")),
            ],
        );
    }

    fn same<const UNIT: usize>(text: &str, precision: u8) {
        let general = general_timestamp::<UNIT>(text.as_bytes(), precision);
        assert_eq!(timestamp::<UNIT>(text, precision, &mut LastDay::default()), general, "{text:?} ({precision})");
        let general = general_time::<UNIT>(text.as_bytes(), precision);
        assert_eq!(time_of_day::<UNIT>(text, precision), general, "{text:?} ({precision})");
    }

    fn same_in_every_unit(text: &str) {
        assert_eq!(date(text), general_date(text.as_bytes()), "{text:?}");
        same::<0>(text, 0);
        (0..=3).for_each(|precision| same::<3>(text, precision));
        (0..=6).for_each(|precision| same::<6>(text, precision));
        (0..=9).for_each(|precision| same::<9>(text, precision));
    }

    proptest! {
        #[test]
        fn arrow_csv_agrees_on_timestamps(
            text in "[0-9]{3}[1-9]-[01][0-9]-[0-3][0-9][ T][0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-][01][0-7]:[0-5][0-9])?"
        ) {
            for sql in ["TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)"] {
                prop_assert_eq!(read(sql, &text).ok(), read_by_arrow(sql, &text), "{}", sql);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn the_fast_path_agrees_with_the_general_one_on_days(text in nearly("[0-9]{4}-[0-1][0-9]-[0-3][0-9]")) {
            same_in_every_unit(&text);
        }

        #[test]
        fn the_fast_path_agrees_with_the_general_one_on_times(text in nearly("[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{1,11})?")) {
            same_in_every_unit(&text);
        }

        #[test]
        fn the_fast_path_agrees_with_the_general_one_on_timestamps(
            text in nearly("[0-9]{4}-[01][0-9]-[0-2][0-9][ Tt][0-2][0-9]:[0-5][0-9](:[0-5][0-9]([.,][0-9]{1,11})?)?(Z|z| UTC|[+-][01][0-9](:?[0-6][0-9])?)?")
        ) {
            same_in_every_unit(&text);
        }

        #[test]
        fn chrono_reads_the_same(seconds in -62_135_596_800i64..253_402_300_800, nanos in 0u32..1_000_000_000) {
            let time = DateTime::from_timestamp(seconds, nanos).unwrap();
            let text = time.format("%Y-%m-%d %H:%M:%S%.9f").to_string();
            let mut last_day = LastDay::default();
            prop_assert_eq!(timestamp::<0>(&text, 0, &mut last_day), Ok(time.timestamp()));
            prop_assert_eq!(timestamp::<3>(&text, 3, &mut last_day), Ok(time.timestamp_millis()));
            prop_assert_eq!(timestamp::<6>(&text, 6, &mut last_day), Ok(time.timestamp_micros()));
            let nanos = time.timestamp_nanos_opt().ok_or(OutOfRange);
            prop_assert_eq!(timestamp::<9>(&text, 9, &mut last_day), nanos);
            let parsed = NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M:%S%.f").unwrap();
            prop_assert_eq!(parsed.and_utc(), time);
        }
    }
}
