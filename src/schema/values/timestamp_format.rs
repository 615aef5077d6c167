//! Timestamps that are written in a way of their own, described by a pattern of `strftime`.
//!
//! The directives are those of [chrono](https://docs.rs/chrono/latest/chrono/format/strftime/index.html), which Polars
//! and Arrow have, too. Whether a pattern says enough is found out when it is read, not at the first value.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use chrono::format::{Fixed, Item, Numeric, Parsed, StrftimeItems, parse};
use chrono::{DateTime, Datelike, NaiveDateTime, NaiveTime};

use super::time::in_units;
use super::word::POWERS;
use super::{Outcome, ValueFault};

/// How timestamps are written as text: a pattern such as `%d.%m.%Y %H:%M:%S%.f`.
///
/// A pattern without a time of day means midnight; one without an offset (`%z`) means UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampFormat {
    pattern: Arc<str>,
    items: Arc<[Item<'static>]>,
}

impl fmt::Display for TimestampFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

impl std::str::FromStr for TimestampFormat {
    type Err = String;

    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in words: also if it doesn't say which day it is, or is one of Java's.
    fn from_str(pattern: &str) -> Result<Self, String> {
        if !pattern.contains('%') {
            let hint = of_java(pattern).filter(|translated| items(translated).is_ok());
            let hint = hint.map(|translated| format!("; as a pattern of strftime it is '{translated}'"));
            return Err(format!("'{pattern}' has no directive such as %Y{}", hint.unwrap_or_default()));
        }
        // Behind a point the digits are a fraction, as Python has it. By itself this directive counts nanoseconds, so
        // that `.5` would be five of them.
        let items = items(&pattern.replace(".%f", "%.f"))?;
        Ok(Self { pattern: pattern.into(), items: items.into() })
    }
}

/// The parts of a pattern that says enough.
fn items(pattern: &str) -> Result<Vec<Item<'static>>, String> {
    let items = StrftimeItems::new(pattern)
        .parse_to_owned()
        .map_err(|_| format!("'{pattern}' has a directive that strftime doesn't know"))?;
    for item in &items {
        match item {
            Item::Fixed(Fixed::TimezoneName) => {
                return Err(format!(
                    "'{pattern}': the name of a zone (%Z) tells no offset; %z reads one, such as +02:00"
                ));
            }
            Item::Numeric(Numeric::Nanosecond, _) => {
                return Err(format!("'{pattern}': %f counts nanoseconds; %.f reads a fraction with its point"));
            }
            _ => {}
        }
    }
    // 2004-02-29T13:14:15Z: in no part of it are two numbers alike that could stand for each other.
    let sample = DateTime::from_timestamp(1_078_060_455, 0).unwrap_or_default().fixed_offset();
    let mut text = String::new();
    for item in &items {
        // An offset that may be short (%#z) can be read and not written.
        if write!(text, "{}", sample.format_with_items(std::iter::once(item))).is_err() {
            text.push_str("+00");
        }
    }
    match parsed(&text, &items).as_ref().map(at) {
        Ok(Ok((read, _))) if read.date() == sample.naive_utc().date() => Ok(items),
        _ => Err(format!("'{pattern}' doesn't tell a day, or tells a time of day without its hour or minute")),
    }
}

impl TimestampFormat {
    /// Units of `10^-UNIT` seconds since the epoch in UTC, digits beyond `precision` cut.
    pub(super) fn read<const UNIT: usize>(&self, text: &str, precision: u8) -> Outcome<i64> {
        let (time, offset) = at(&parsed(text, &self.items)?)?;
        let nanos = time.and_utc().timestamp_subsec_nanos();
        let cut = POWERS[9 - usize::from(precision).min(9)] as u32;
        in_units::<UNIT>(time.and_utc().timestamp() - i64::from(offset), nanos - nanos % cut)
    }

    /// How many digits behind the second a text has that are needed, if it is a timestamp.
    #[cfg(feature = "csv")]
    pub(crate) fn fraction_digits(&self, text: &str) -> Option<u8> {
        let (time, _) = parsed(text, &self.items).and_then(|parsed| at(&parsed)).ok()?;
        let nanos = time.and_utc().timestamp_subsec_nanos();
        [3, 6, 9].into_iter().find(|digits| u64::from(nanos).is_multiple_of(POWERS[9 - usize::from(*digits)]))
    }
}

fn parsed(text: &str, items: &[Item<'static>]) -> Outcome<Parsed> {
    // Numbers are read with blanks before them; at the beginning of a field a blank is a character like others.
    if text.starts_with(char::is_whitespace) && !matches!(items.first(), Some(Item::Space(_) | Item::OwnedSpace(_))) {
        return Err(ValueFault::NotA);
    }
    let mut parsed = Parsed::new();
    parse(&mut parsed, text, items.iter()).map_err(|_| ValueFault::NotA)?;
    Ok(parsed)
}

/// The time of a clock, and how far that clock is ahead of UTC, in seconds.
fn at(parsed: &Parsed) -> Outcome<(NaiveDateTime, i32)> {
    let not_a = |_| ValueFault::NotA;
    // A minute ends with its second 59.
    if parsed.second() == Some(60) {
        return Err(ValueFault::NotA);
    }
    let offset = parsed.offset().unwrap_or(0);
    // As far as clocks differ, and as ISO 8601 is read.
    if offset.abs() > 18 * 3600 + 59 * 60 {
        return Err(ValueFault::NotA);
    }
    let has_time = parsed.hour_div_12().is_some() || parsed.hour_mod_12().is_some() || parsed.minute().is_some();
    let time = if has_time || parsed.timestamp().is_some() {
        parsed.to_naive_datetime_with_offset(offset).map_err(not_a)?
    } else {
        parsed.to_naive_date().map_err(not_a)?.and_time(NaiveTime::MIN)
    };
    if !(1..=9999).contains(&time.year()) {
        return Err(ValueFault::NotA);
    }
    Ok((time, offset))
}

/// The pattern of `strftime` that a pattern of Java's `DateTimeFormatter` stands for, if there is one.
fn of_java(pattern: &str) -> Option<String> {
    let mut translated = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        let len = rest.chars().take_while(|next| *next == letter).map(char::len_utf8).sum();
        let (run, behind) = rest.split_at(len);
        rest = behind;
        let directive = match (letter, len) {
            ('y' | 'u', 2) => "%y",
            ('y' | 'u', _) => "%Y",
            ('M' | 'L', 1 | 2) => "%m",
            ('M' | 'L', 3) => "%b",
            ('M' | 'L', _) => "%B",
            ('d', _) => "%d",
            ('D', _) => "%j",
            ('E', 1..=3) => "%a",
            ('E', _) => "%A",
            ('H', _) => "%H",
            ('h', _) => "%I",
            ('m', _) => "%M",
            ('s', _) => "%S",
            ('S', _) if translated.ends_with('.') => {
                translated.pop();
                "%.f"
            }
            ('S', 3) => "%3f",
            ('S', 6) => "%6f",
            ('S', 9) => "%9f",
            ('a', _) => "%p",
            ('X', _) => "%#z",
            ('x' | 'Z', _) => "%z",
            ('\'', 2) => "'",
            ('\'', 1) => {
                let (quoted, behind) = rest.split_once('\'')?;
                rest = behind;
                quoted
            }
            (letter, _) if letter.is_ascii_alphabetic() || letter == '\'' => return None,
            _ => run,
        };
        translated.push_str(directive);
    }
    translated.contains('%').then_some(translated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ValueOptions;
    use super::super::oracle::{read, read_with};
    use super::ValueFault::*;
    use super::*;

    fn format(pattern: &str) -> TimestampFormat {
        pattern.parse().unwrap()
    }

    #[track_caller]
    fn check(sql: &str, pattern: &str, rows: &[(&str, Result<&str, ValueFault>)]) {
        let format = format(pattern);
        for (text, expected) in rows {
            let options = ValueOptions { timestamp_format: Some(&format), ..ValueOptions::default() };
            assert_eq!(read_with(sql, text, options), expected.map(str::to_owned), "{text:?} by {pattern}");
        }
    }

    #[test]
    fn timestamps_are_read_by_the_pattern_alone() {
        check(
            "TIMESTAMP(3)",
            "%d/%m/%Y %H:%M:%S",
            &[
                ("15/08/2023 14:37:35", Ok("2023-08-15T14:37:35")),
                ("29/02/2024 00:00:00", Ok("2024-02-29T00:00:00")),
                ("29/02/2023 00:00:00", Err(NotA)),
                ("01/01/0001 00:00:00", Ok("0001-01-01T00:00:00")),
                ("31/12/9999 23:59:59", Ok("9999-12-31T23:59:59")),
                ("01/01/0000 00:00:00", Err(NotA)),
                ("01/01/+10000 00:00:00", Err(NotA)),
                ("15/08/2023 24:00:00", Err(NotA)),
                ("15/08/2023 14:60:00", Err(NotA)),
                ("15/08/2023 14:37:60", Err(NotA)),
                ("15/08/2023 14:37", Err(NotA)),
                ("15/08/2023 14:37:35 ", Err(NotA)),
                ("2023-08-15 14:37:35", Err(NotA)),
                ("", Err(NotA)),
            ],
        );
        check("TIMESTAMP(3)", "%m/%d/%y %I:%M %p", &[("08/15/23 02:37 PM", Ok("2023-08-15T14:37:00"))]);
        check("TIMESTAMP(3)", "%d %b %Y", &[("15 Aug 2023", Ok("2023-08-15T00:00:00")), ("15 Foo 2023", Err(NotA))]);
        check(
            "TIMESTAMP(3)",
            "%Y%m%d",
            &[("20230815", Ok("2023-08-15T00:00:00")), ("2023081", Ok("2023-08-01T00:00:00"))],
        );
        check("TIMESTAMP(3)", "%s", &[("1692110255", Ok("2023-08-15T14:37:35")), ("-1", Err(NotA))]);
        check("TIMESTAMP(3)", "%Y-%j", &[("2024-060", Ok("2024-02-29T00:00:00")), ("2023-366", Err(NotA))]);
        check("TIMESTAMP(3)", "%d.%m.%Y um %H Uhr %M", &[("15.08.2023 um 14 Uhr 37", Ok("2023-08-15T14:37:00"))]);
    }

    #[test]
    fn digits_beyond_the_precision_are_cut() {
        for pattern in ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S.%f"] {
            for (sql, expected) in [
                ("TIMESTAMP(0)", "2023-08-15T14:37:35"),
                ("TIMESTAMP(2)", "2023-08-15T14:37:35.980"),
                ("TIMESTAMP(3)", "2023-08-15T14:37:35.987"),
                ("TIMESTAMP(5)", "2023-08-15T14:37:35.987650"),
                ("TIMESTAMP(6)", "2023-08-15T14:37:35.987654"),
                ("TIMESTAMP(9)", "2023-08-15T14:37:35.987654321"),
                ("TIMESTAMP_LTZ(3)", "2023-08-15T14:37:35.987Z"),
                ("ARROW('Timestamp(s)')", "2023-08-15T14:37:35"),
            ] {
                check(sql, pattern, &[("2023-08-15 14:37:35.987654321", Ok(expected))]);
            }
            // Before the epoch, too; and a fraction may be short or not there.
            check(
                "TIMESTAMP(3)",
                pattern,
                &[
                    ("1969-12-31 23:59:59.9999", Ok("1969-12-31T23:59:59.999")),
                    ("2023-08-15 14:37:35.5", Ok("2023-08-15T14:37:35.500")),
                    ("2023-08-15 14:37:35", Ok("2023-08-15T14:37:35")),
                ],
            );
        }
        check("TIMESTAMP(3)", "%Y%m%d%H%M%S%3f", &[("20230815143735411", Ok("2023-08-15T14:37:35.411"))]);
    }

    #[test]
    fn offsets_are_applied_and_what_has_none_is_utc() {
        for (pattern, text) in [
            ("%d/%m/%Y %H:%M:%S %z", "15/08/2023 14:37:35 +0200"),
            ("%d/%m/%Y %H:%M:%S %:z", "15/08/2023 14:37:35 +02:00"),
            ("%d/%m/%Y %H:%M:%S%#z", "15/08/2023 14:37:35+02"),
            ("%d/%m/%Y %H:%M:%S%#z", "15/08/2023 12:37:35Z"),
            ("%d/%m/%Y %H:%M:%S UTC", "15/08/2023 12:37:35 UTC"),
            ("%+", "2023-08-15T14:37:35+02:00"),
        ] {
            check("TIMESTAMP(3)", pattern, &[(text, Ok("2023-08-15T12:37:35"))]);
            check("TIMESTAMP_LTZ(0)", pattern, &[(text, Ok("2023-08-15T12:37:35Z"))]);
        }
        check("TIMESTAMP_LTZ(3)", "%d/%m/%Y", &[("15/08/2023", Ok("2023-08-15T00:00:00Z"))]);
    }

    #[test]
    fn what_no_clock_shows_is_refused() {
        for text in ["15/08/2023 14:37 +2500", "15/08/2023 14:37 -1900", " 15/08/2023 14:37 +0200"] {
            check("TIMESTAMP(3)", "%d/%m/%Y %H:%M %z", &[(text, Err(NotA))]);
        }
        check("TIMESTAMP(3)", " %d/%m/%Y", &[(" 15/08/2023", Ok("2023-08-15T00:00:00"))]);
        check("TIMESTAMP(3)", "%d/%m/%Y %H:%M %z", &[("31/12/9999 23:59 -0100", Err(OutOfRange))]);
    }

    #[test]
    fn nanoseconds_end_where_64_bits_do() {
        let rows = [("9999-01-01", Err(OutOfRange)), ("2262-04-11", Ok("2262-04-11T00:00:00"))];
        check("TIMESTAMP(9)", "%Y-%m-%d", &rows);
    }

    #[test]
    fn days_and_times_of_day_stay_iso_8601() {
        check("DATE", "%d/%m/%Y", &[("2023-08-15", Ok("2023-08-15")), ("15/08/2023", Err(NotA))]);
        check("TIME(0)", "%d/%m/%Y", &[("14:37:35", Ok("14:37:35"))]);
    }

    #[test]
    fn a_pattern_that_can_not_be_is_refused_with_what_helps() {
        for (pattern, message) in [
            ("", "'' has no directive such as %Y"),
            ("iso", "'iso' has no directive such as %Y"),
            (
                "yyyy-MM-dd HH:mm:ss",
                "'yyyy-MM-dd HH:mm:ss' has no directive such as %Y; as a pattern of strftime it is '%Y-%m-%d %H:%M:%S'",
            ),
            ("%Q", "'%Q' has a directive that strftime doesn't know"),
            ("%Y-%m", "'%Y-%m' doesn't tell a day, or tells a time of day without its hour or minute"),
            ("%H:%M", "'%H:%M' doesn't tell a day, or tells a time of day without its hour or minute"),
            ("%Y-%m-%d %H", "'%Y-%m-%d %H' doesn't tell a day, or tells a time of day without its hour or minute"),
            (
                "%Y-%m-%d %I:%M",
                "'%Y-%m-%d %I:%M' doesn't tell a day, or tells a time of day without its hour or minute",
            ),
            ("100%%", "'100%%' doesn't tell a day, or tells a time of day without its hour or minute"),
            (
                "%Y-%m-%d %H:%M:%S,%f",
                "'%Y-%m-%d %H:%M:%S,%f': %f counts nanoseconds; %.f reads a fraction with its point",
            ),
            (
                "%Y-%m-%d %H:%M %Z",
                "'%Y-%m-%d %H:%M %Z': the name of a zone (%Z) tells no offset; %z reads one, such as +02:00",
            ),
        ] {
            assert_eq!(pattern.parse::<TimestampFormat>().unwrap_err(), message);
        }
    }

    #[test]
    fn patterns_of_java_are_translated() {
        for (java, strftime) in [
            ("yyyy-MM-dd HH:mm:ss", "%Y-%m-%d %H:%M:%S"),
            ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "%Y-%m-%dT%H:%M:%S%.f%#z"),
            ("dd.MM.yy HH:mm", "%d.%m.%y %H:%M"),
            ("M/d/yyyy h:mm a", "%m/%d/%Y %I:%M %p"),
            ("EEE, d MMM uuuu HH:mm:ss Z", "%a, %d %b %Y %H:%M:%S %z"),
            ("yyyyMMddHHmmssSSS", "%Y%m%d%H%M%S%3f"),
            ("d MMMM yyyy 'at' HH''mm", "%d %B %Y at %H'%M"),
        ] {
            assert_eq!(of_java(java).as_deref(), Some(strftime), "{java}");
        }
        for unknown in ["QQQ yyyy", "yyyy 'open", "yyyy VV"] {
            assert_eq!(of_java(unknown), None, "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_of_iso_8601_reads_what_is_read_without_one(
            text in "[0-9]{3}[1-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{1,9}[+-][01][0-7]:[0-5][0-9]"
        ) {
            let format = format("%Y-%m-%d %H:%M:%S%.f%:z");
            let options = ValueOptions { timestamp_format: Some(&format), ..ValueOptions::default() };
            for sql in ["TIMESTAMP(1)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)"] {
                prop_assert_eq!(read_with(sql, &text, options), read(sql, &text), "{}", sql);
            }
        }
    }
}
