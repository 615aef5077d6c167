//! Dates, times of day and timestamps as one reads them who has time: character by character, the calendar by chrono.
//!
//! Nothing here is shared with [`time`](super::time), which it is held against.

use chrono::{DateTime, Datelike, NaiveDate};

use super::time;

/// A date, a time of day and a timestamp in every unit and precision are what this file makes of them; whatever the
/// bytes, nothing panics.
pub(crate) fn check_times(input: &[u8]) {
    // What isn't text is never given to a parser.
    let Ok(text) = std::str::from_utf8(input) else { return };
    assert_eq!(time::date(text).ok(), date(text), "{text:?}");
    check_unit::<0>(text);
    check_unit::<3>(text);
    check_unit::<6>(text);
    check_unit::<9>(text);
}

fn check_unit<const UNIT: usize>(text: &str) {
    for precision in 0..=UNIT as u8 {
        let (found, expected) = (time::time_of_day::<UNIT>(text, precision).ok(), clock_alone(text, UNIT, precision));
        assert_eq!(found, expected, "{text:?} as a time, digits kept: {precision}");
        // Whatever day was read before.
        for mut last_day in [time::LastDay::default(), last_day_of(text)] {
            let found = time::timestamp::<UNIT>(text, precision, &mut last_day).ok();
            assert_eq!(found, timestamp(text, UNIT, precision), "{text:?}, digits kept: {precision}");
        }
    }
}

/// What is known after a timestamp of the same day, if `text` begins with one.
fn last_day_of(text: &str) -> time::LastDay {
    let mut last_day = time::LastDay::default();
    if let Some(day) = text.get(..10) {
        // Only what it leaves behind is wanted.
        let _ = time::timestamp::<3>(&format!("{day} 00:00:00"), 3, &mut last_day);
    }
    last_day
}

/// Walks over characters.
struct Walk<'a>(std::iter::Peekable<std::str::Chars<'a>>);

impl<'a> Walk<'a> {
    fn new(text: &'a str) -> Self {
        Self(text.chars().peekable())
    }

    fn take(&mut self, wanted: &str) -> Option<char> {
        self.0.next_if(|c| wanted.contains(*c))
    }

    fn number(&mut self, num_digits: usize) -> Option<u32> {
        (0..num_digits).try_fold(0, |number, _| Some(number * 10 + self.take("0123456789")?.to_digit(10)?))
    }

    fn is_done(&mut self) -> bool {
        self.0.peek().is_none()
    }

    /// `YYYY-MM-DD` of the years 1 to 9999.
    fn day(&mut self) -> Option<NaiveDate> {
        let year = self.number(4)?;
        self.take("-")?;
        let month = self.number(2)?;
        self.take("-")?;
        let day = self.number(2)?;
        NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day).filter(|_| year > 0)
    }

    /// `HH:MM[:SS[.fraction]]` in nanoseconds, with so many digits of the fraction.
    fn clock(&mut self, precision: u8) -> Option<i128> {
        let hour = self.number(2).filter(|hour| *hour < 24)?;
        self.take(":")?;
        let minute = self.number(2).filter(|minute| *minute < 60)?;
        let (mut second, mut fraction) = (0, String::new());
        if self.take(":").is_some() {
            second = self.number(2).filter(|second| *second < 60)?;
            if self.take(".,").is_some() {
                while let Some(digit) = self.take("0123456789") {
                    fraction.push(digit);
                }
                if fraction.is_empty() {
                    return None;
                }
            }
        }
        fraction.truncate(precision.into());
        let nanos: i128 = format!("{fraction:0<9}").parse().ok()?;
        Some(i128::from((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos)
    }

    /// Nothing, `Z`, ` UTC`, `+HH`, `+HHMM` or `+HH:MM`, up to 18 hours and 59 minutes: what is to be taken off, in
    /// nanoseconds.
    fn zone(&mut self) -> Option<i128> {
        let rest: String = std::mem::replace(self, Self::new("")).0.collect();
        if ["", "Z", "z", " UTC"].contains(&rest.as_str()) {
            return Some(0);
        }
        let mut walk = Walk::new(&rest);
        let sign = if walk.take("+-")? == '+' { 1 } else { -1 };
        let hours = walk.number(2).filter(|hours| *hours <= 18)?;
        let mut minutes = 0;
        if !walk.is_done() {
            walk.take(":");
            minutes = walk.number(2).filter(|minutes| *minutes < 60)?;
        }
        walk.is_done().then_some(sign * i128::from(hours * 60 + minutes) * 60_000_000_000)
    }
}

fn days(day: NaiveDate) -> i64 {
    day.signed_duration_since(NaiveDate::default()).num_days()
}

fn date(text: &str) -> Option<i32> {
    let mut walk = Walk::new(text);
    let day = walk.day()?;
    i32::try_from(days(day)).ok().filter(|_| walk.is_done())
}

fn clock_alone(text: &str, unit: usize, precision: u8) -> Option<i64> {
    let mut walk = Walk::new(text);
    let nanos = walk.clock(precision)?;
    in_units(nanos, unit).filter(|_| walk.is_done())
}

fn timestamp(text: &str, unit: usize, precision: u8) -> Option<i64> {
    let mut walk = Walk::new(text);
    let midnight = i128::from(days(walk.day()?)) * 86_400_000_000_000;
    let clock = match walk.is_done() {
        true => 0,
        false => {
            walk.take("Tt ")?;
            walk.clock(precision)?
        }
    };
    let nanos = midnight + clock - walk.zone()?;
    // No offset leads out of the years that there are.
    let in_utc = |nanos: i128| DateTime::from_timestamp(i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?, 0);
    let is_in_calendar = in_utc(nanos).is_some_and(|time| (1..=9999).contains(&time.year()));
    in_units(nanos, unit).filter(|_| is_in_calendar)
}

fn in_units(nanos: i128, unit: usize) -> Option<i64> {
    i64::try_from(nanos.div_euclid(10i128.pow(9 - unit as u32))).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::oracle::nearly;

    #[test]
    fn what_the_fuzzer_kept_of_timestamps_is_read_alike() {
        crate::fuzzing::replay("timestamps", super::check_times);
    }

    proptest! {
        #[test]
        fn nearly_timestamps_are_read_alike(
            text in nearly("[0-9]{4}-[01][0-9]-[0-2][0-9][ Tt][0-2][0-9]:[0-5][0-9](:[0-5][0-9]([.,][0-9]{1,11})?)?(Z|z| UTC|[+-][01][0-9](:?[0-6][0-9])?)?")
        ) {
            super::check_times(text.as_bytes());
        }
    }
}
