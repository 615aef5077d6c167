//! Values of options: how durations, sizes and characters are written, and how secrets get in.

use std::fmt;
use std::fs;
use std::time::Duration;

use super::keys::{OptionKey, ValueType};
use crate::error::{Error, Result, quoted};
use crate::schema::timestamp_millis;

/// Reads a duration: a number with `ms`, `s`, `min`, `h` or `d`, with or without a blank between; a bare
/// number is milliseconds.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let millis = with_unit(text, &units).ok_or_else(|| {
        format!("{} is not a duration such as 10 s (units ms, s, min, h, d)", quoted(text.as_bytes()))
    })?;
    Ok(Duration::from_millis(millis))
}

/// Reads a size in bytes: a number with `b`, `kb`, `mb` or `gb` (of 1024), with or without a blank between;
/// a bare number is bytes.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_size(text: &str) -> Result<u64, String> {
    with_unit(text, &[("b", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)])
        .ok_or_else(|| format!("{} is not a size such as 64 mb (units b, kb, mb, gb)", quoted(text.as_bytes())))
}

/// A number times its unit; the first unit is that of a bare number.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => units.first()?.1,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Reads a time as ms since the epoch: ISO 8601, with an offset or else in UTC, also a date alone; or the number
/// itself.
///
/// # Errors
/// What is wrong with it, in words; also that it is before 1970, where Kafka has no times.
pub fn parse_time(text: &str) -> Result<i64, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_millis(text);
    }
    let wrong = || format!("{} is not a time such as 2023-08-15T14:00:00Z or 2023-08-15", quoted(text.as_bytes()));
    let millis = timestamp_millis(text).ok_or_else(wrong)?;
    if millis < 0 {
        return Err(format!("{} is before 1970", quoted(text.as_bytes())));
    }
    Ok(millis)
}

/// Reads ms since the epoch.
pub(crate) fn parse_millis(text: &str) -> Result<i64, String> {
    let too_large = |_| format!("{} is too far in the future", quoted(text.as_bytes()));
    i64::try_from(parse_count(text)?).map_err(too_large)
}

/// Reads `true` or `false`.
pub(crate) fn parse_boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{} is neither true nor false", quoted(text.as_bytes()))),
    }
}

/// Reads one character; `\t`, `\\` and `\u0001` are understood.
pub(crate) fn parse_character(text: &str) -> Result<char, String> {
    let not_one = || format!("{} is not one character (or \\t, \\u0001)", quoted(text.as_bytes()));
    let mut characters = text.chars();
    let character = match (text.strip_prefix("\\u"), text) {
        (Some(digits), _) if digits.len() == 4 => {
            u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).ok_or_else(not_one)?
        }
        (_, "\\t") => '\t',
        (_, "\\\\") => '\\',
        _ => characters.next().filter(|_| characters.next().is_none()).ok_or_else(not_one)?,
    };
    match character {
        '\n' | '\r' => Err("a line end can't be it".into()),
        character => Ok(character),
    }
}

/// Reads one character of one byte.
#[cfg(feature = "csv")]
pub(crate) fn parse_ascii(text: &str) -> Result<u8, String> {
    let character = parse_character(text)?;
    let byte = u8::try_from(character).ok().filter(u8::is_ascii);
    byte.ok_or_else(|| format!("{} is not one character of one byte", quoted(text.as_bytes())))
}

pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("{} is not a whole number from 0", quoted(text.as_bytes())))
}

pub(crate) fn parse_integer(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("{} is not a whole number", quoted(text.as_bytes())))
}

/// The value of an option. What came from the environment or from a file is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct OptionValue {
    text: String,
    /// What was put in for `${env:NAME}` and `${file:PATH}`.
    secrets: Vec<String>,
}

impl fmt::Debug for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.hide(&self.text))
    }
}

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), secrets: Vec::new() }
    }
}

impl OptionValue {
    /// Puts in what `${env:NAME}` and `${file:PATH}` stand for; a file's last line end doesn't count.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a variable that isn't set or a file that can't be read.
    pub fn substitute(key: &str, text: &str) -> Result<Self> {
        let mut value = Self { text: String::new(), secrets: Vec::new() };
        let mut rest = text;
        while let Some((before, reference, after)) = next_reference(rest) {
            let secret = match reference {
                Reference::Env(name) => std::env::var(name)
                    .map_err(|_| Error::option(key, format!("the environment has no variable {name}")))?,
                Reference::File(path) => {
                    let content = fs::read_to_string(path)
                        .map_err(|e| Error::option(key, format!("{path} can't be read: {e}")))?;
                    let line_end = content.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text));
                    line_end.unwrap_or(&content).to_owned()
                }
            };
            value.text.push_str(before);
            value.text.push_str(&secret);
            value.secrets.push(secret);
            rest = after;
        }
        value.text.push_str(rest);
        Ok(value)
    }

    /// The text, secrets included: for use, not for show.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Says whether a part of it must not be shown.
    pub fn is_secret(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// `text` with stars in place of this value's secrets, for messages.
    pub(crate) fn hide(&self, text: &str) -> String {
        // Longest first: one secret may be a part of another.
        let mut secrets: Vec<&String> = self.secrets.iter().filter(|secret| !secret.is_empty()).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }

    /// Checks that the value is one that `option` can have.
    pub(crate) fn check(&self, option: &OptionKey) -> Result<(), String> {
        let text = self.as_str();
        let checked = match option.value {
            ValueType::Text => Ok(()),
            ValueType::Boolean => parse_boolean(text).map(drop),
            ValueType::Count => parse_count(text).map(drop),
            ValueType::Integer => parse_integer(text).map(drop),
            ValueType::Size => parse_size(text).map(drop),
            ValueType::Duration => parse_duration(text).map(drop),
            ValueType::Character => parse_character(text).map(drop),
            ValueType::OneOf(words) if words.contains(&text) => Ok(()),
            ValueType::OneOf(words) => Err(format!("{} is none of {}", quoted(text.as_bytes()), words.join(", "))),
        };
        // A secret may have been cut or escaped in the message, so none of it is shown.
        checked.map_err(|reason| if self.is_secret() { format!("its value is no {}", option.value) } else { reason })
    }
}

enum Reference<'a> {
    Env(&'a str),
    File(&'a str),
}

fn next_reference(text: &str) -> Option<(&str, Reference<'_>, &str)> {
    let mut from = 0;
    while let Some(start) = text[from..].find("${").map(|at| from + at) {
        let inside = &text[start + 2..];
        if let Some((reference, after)) = inside.split_once('}') {
            if let Some(name) = reference.strip_prefix("env:") {
                return Some((&text[..start], Reference::Env(name), after));
            }
            if let Some(path) = reference.strip_prefix("file:") {
                return Some((&text[..start], Reference::File(path), after));
            }
        }
        from = start + 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_flinks_units_and_a_bare_number_is_milliseconds() {
        for (text, millis) in
            [("10", 10), ("10ms", 10), ("2 s", 2_000), ("3min", 180_000), ("1 h", 3_600_000), ("1D", 86_400_000)]
        {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for wrong in ["", "s", "-1 s", "1.5 s", "1 m", "99999999999999999999", "18446744073709551615 d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_count_by_1024_and_allow_a_blank_before_the_unit() {
        for (text, bytes) in [("7", 7), ("7b", 7), ("124 kb", 124 << 10), ("256MB", 256 << 20), ("2 gb", 2 << 30)] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        assert_eq!(parse_size("12 kib").unwrap_err(), "'12 kib' is not a size such as 64 mb (units b, kb, mb, gb)");
    }

    #[test]
    fn a_time_is_iso_8601_in_utc_or_milliseconds() {
        for (text, millis) in [
            ("1970-01-02", 86_400_000),
            ("1970-01-01T00:00:01.5Z", 1_500),
            ("1970-01-01 00:01", 60_000),
            ("1970-01-01T02:00:00+02:00", 0),
            ("1692108000000", 1_692_108_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_time(text), Ok(millis), "{text}");
        }
        for (wrong, why) in [
            ("", "'' is not a time such as 2023-08-15T14:00:00Z or 2023-08-15"),
            ("yesterday", "'yesterday' is not a time such as"),
            ("2023-02-30", "'2023-02-30' is not a time such as"),
            ("-1", "'-1' is not a time such as"),
            ("1969-12-31T23:59:59Z", "'1969-12-31T23:59:59Z' is before 1970"),
            ("9999999999999999999", "'9999999999999999999' is too far in the future"),
        ] {
            let error = parse_time(wrong).unwrap_err();
            assert!(error.starts_with(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_character_is_itself_or_an_escape() {
        for (text, character) in [
            ("|", '|'),
            ("\\t", '\t'),
            ("\t", '\t'),
            ("\\u0001", '\u{1}'),
            ("\\u0000", '\0'),
            ("\\", '\\'),
            ("\\\\", '\\'),
            ("é", 'é'),
            ("\\u00a7", '§'),
            ("｜", '｜'),
            ("😀", '😀'),
        ] {
            assert_eq!(parse_character(text).unwrap(), character, "{text}");
        }
        for wrong in ["||", "", "§§", "e\u{301}", "\\u01", "\\ud800", "\n", "\r", "\\u000a"] {
            assert!(parse_character(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    #[cfg(feature = "csv")]
    fn a_quote_or_an_escape_is_one_byte() {
        assert_eq!(parse_ascii("'"), Ok(b'\''));
        for wrong in ["é", "\\u00e9", "''", ""] {
            assert!(parse_ascii(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_comes_from_outside_is_used_and_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "geheim\n").unwrap();
        let value = OptionValue::substitute("k", &format!("a-${{file:{}}}-${{b}}", file.path().display())).unwrap();
        assert_eq!(value.as_str(), "a-geheim-${b}");
        assert_eq!(format!("{value:?}"), "'a-***-${b}'");
        assert_eq!(value.hide("can't use geheim"), "can't use ***");

        let missing = OptionValue::substitute("k", "${env:SEGUE_NO_SUCH_VARIABLE}").unwrap_err();
        assert_eq!(missing.to_string(), "option 'k': the environment has no variable SEGUE_NO_SUCH_VARIABLE");
    }
}
