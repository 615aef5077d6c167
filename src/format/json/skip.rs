//! Passes good values fast, eight bytes at a time.
//!
//! These functions know the grammar of RFC 8259 as [`Scanner`] does, and nothing of faults: at whatever isn't plain and
//! right they return `None`, and the strict scanner says what it is. They may refuse what is good, and never take
//! what is bad. No line end is ever passed, since outside of strings, where it is a fault, it may end the record.

use super::scan::{Kind, Scanner, Slot};

/// Bytes of a word are looked at side by side; these have a one, and the highest bit, in each.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const WORD_BYTES: usize = 8;

/// How many arrays and objects inside each other are followed here: as many as a word has bits, less the one that
/// marks the outermost.
const MAX_OPEN: usize = 63;

/// The value that begins at byte `at` or behind blanks there, and where it ends. Arrays and objects in it may be
/// `max_levels` deep.
#[inline]
pub(super) fn value(text: &str, at: usize, max_levels: usize) -> Option<(Slot, usize)> {
    let bytes = text.as_bytes();
    let at = blanks(bytes, at);
    let kind = match bytes.get(at)? {
        b'"' => return string(text, at + 1),
        b'-' | b'0'..=b'9' => {
            let end = number(bytes, at)?;
            return Some((Slot { kind: Kind::Number, start: at, end }, end));
        }
        b'{' => Kind::Object,
        b'[' => Kind::Array,
        _ => return word(bytes, at),
    };
    let end = nested(text, at, max_levels)?;
    Some((Slot { kind, start: at, end }, end))
}

/// Where the record ends whose last member ends at `at`, its line end included: `None` if more follows than blanks.
#[inline]
pub(super) fn end_of_record(bytes: &[u8], at: usize) -> Option<usize> {
    let at = blanks(bytes, at);
    if bytes.get(at) != Some(&b'}') {
        return None;
    }
    let end = blanks(bytes, at + 1);
    match bytes.get(end) {
        Some(b'\n') => Some(end + 1),
        None => Some(end),
        Some(_) => None,
    }
}

/// Where the blanks end that begin at `at`, if there are any.
#[inline]
pub(super) fn blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

fn load(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// How many bytes stand before the first one whose highest bit is set.
fn before_first(highs: u64) -> usize {
    highs.trailing_zeros() as usize / WORD_BYTES
}

/// The string whose first byte behind the quote is at `start`, and where it ends, its quotes included.
#[inline]
fn string(text: &str, start: usize) -> Option<(Slot, usize)> {
    let bytes = text.as_bytes();
    let (mut at, mut kind) = (start, Kind::String);
    loop {
        at = plain(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some((Slot { kind, start, end: at }, at + 1)),
            b'\\' => {
                kind = Kind::Escaped;
                let mut scanner = Scanner::new(text, at, bytes.len(), 0);
                scanner.escape().ok()?;
                at = scanner.at();
            }
            _ => return None,
        }
    }
}

/// The first byte from `at` on that isn't plain in a string: a quote, a backslash, a control character, or the end.
#[inline]
fn plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = load(bytes, at) {
        // Each difference borrows, and so has a high bit where none was, at the bytes that are looked for: at the
        // lowest of them for sure, and behind it perhaps by the borrow. Only the lowest counts.
        let (quotes, backslashes) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        let found = (quotes.wrapping_sub(ONES) & !quotes)
            | (backslashes.wrapping_sub(ONES) & !backslashes)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if found & HIGHS != 0 {
            return at + before_first(found & HIGHS);
        }
        at += WORD_BYTES;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        at += 1;
    }
    at
}

/// `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
#[inline]
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let first = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = some_digits(bytes, first)?;
    if bytes.get(first) == Some(&b'0') && end > first + 1 {
        return None;
    }
    if bytes.get(end) == Some(&b'.') {
        end = some_digits(bytes, end + 1)?;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
        end = some_digits(bytes, end + 1 + usize::from(sign))?;
    }
    Some(end)
}

/// Where the digits end that begin at `start`: one at least.
#[inline]
fn some_digits(bytes: &[u8], start: usize) -> Option<usize> {
    let end = digits(bytes, start);
    (end > start).then_some(end)
}

#[inline]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = load(bytes, at) {
        // Digits become 0 to 9; from 10 on the sum reaches the highest bit, and no sum reaches the next byte.
        let values = word ^ (ONES * 0x30);
        let others = (((values & !HIGHS) + ONES * 0x76) | values) & HIGHS;
        if others != 0 {
            return at + before_first(others);
        }
        at += WORD_BYTES;
    }
    while matches!(bytes.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    at
}

fn word(bytes: &[u8], at: usize) -> Option<(Slot, usize)> {
    let rest = bytes.get(at..)?;
    let (kind, len) = if rest.starts_with(b"null") {
        (Kind::Null, 4)
    } else if rest.starts_with(b"true") {
        (Kind::Bool, 4)
    } else if rest.starts_with(b"false") {
        (Kind::Bool, 5)
    } else {
        return None;
    };
    Some((Slot { kind, start: at, end: at + len }, at + len))
}

/// Where the array or object ends that begins at `at`.
fn nested(text: &str, mut at: usize, max_levels: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    // What is open, the innermost lowest: a one for an object, a zero for an array; above all a one.
    let mut open: u64 = 1;
    let mut num_open = 0;
    loop {
        // Before a value.
        match bytes.get(at)? {
            bracket @ (b'{' | b'[') => {
                if num_open >= max_levels.min(MAX_OPEN) {
                    return None;
                }
                let is_object = *bracket == b'{';
                at = blanks(bytes, at + 1);
                // In ASCII both closing brackets stand two behind their opening ones.
                if bytes.get(at) != Some(&(bracket + 2)) {
                    open = open << 1 | u64::from(is_object);
                    num_open += 1;
                    if is_object {
                        at = key(text, at)?;
                    }
                    continue;
                }
                at += 1;
            }
            _ => at = scalar(text, at)?,
        }
        // Behind a value.
        loop {
            if num_open == 0 {
                return Some(at);
            }
            let is_object = open & 1 == 1;
            at = blanks(bytes, at);
            match bytes.get(at)? {
                b',' => {
                    at = blanks(bytes, at + 1);
                    if is_object {
                        at = key(text, at)?;
                    }
                    break;
                }
                b'}' if is_object => {}
                b']' if !is_object => {}
                _ => return None,
            }
            open >>= 1;
            num_open -= 1;
            at += 1;
        }
    }
}

/// Where the value begins whose key begins at `at`.
fn key(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let (_, end) = string(text, at + 1)?;
    let colon = blanks(bytes, end);
    (bytes.get(colon) == Some(&b':')).then(|| blanks(bytes, colon + 1))
}

fn scalar(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    match bytes.get(at)? {
        b'"' => string(text, at + 1).map(|(_, end)| end),
        b'-' | b'0'..=b'9' => number(bytes, at),
        _ => word(bytes, at).map(|(_, end)| end),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEVELS: usize = 8;

    fn fast(text: &str) -> Option<(Slot, usize)> {
        value(text, 0, LEVELS)
    }

    fn strict(text: &str) -> Option<(Slot, usize)> {
        let mut scanner = Scanner::new(text, 0, text.len(), LEVELS);
        scanner.skip_whitespace();
        scanner.value(0).ok().map(|slot| (slot, scanner.at()))
    }

    /// What is good is passed, and what isn't is left to the strict scanner.
    #[track_caller]
    fn check(text: &str) {
        assert_eq!(fast(text), strict(text), "{text:?}");
    }

    #[test]
    fn any_byte_at_any_place_of_a_string() {
        for len in 0..20 {
            for at in 0..len {
                for byte in 0..=0x7f {
                    let mut text = vec![b'x'; len + 2];
                    (text[0], text[len + 1], text[at + 1]) = (b'"', b'"', byte);
                    check(std::str::from_utf8(&text).unwrap());
                }
            }
        }
        for len in 0..20 {
            for character in ["\u{80}", "\u{a2}", "é", "\u{5c22}", "\u{1f}", "😀"] {
                check(&format!("\"{}{character}{character}x\" ", "x".repeat(len)));
            }
        }
    }

    #[test]
    fn any_byte_at_any_place_of_a_number() {
        for len in 1..20 {
            for at in 0..len {
                for byte in 0..=0x7f {
                    let mut text = vec![b'7'; len];
                    text[at] = byte;
                    if !text.contains(&b'\n') {
                        check(std::str::from_utf8(&text).unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn nesting_is_followed_to_the_limit() {
        for levels in 1..12 {
            check(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
            check(&format!("{}1{}", "{\"a\":[".repeat(levels), "]}".repeat(levels)));
        }
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(value(&deep(63), 0, 100).is_some());
        assert_eq!(value(&deep(64), 0, 100), None, "so deep only the strict scanner goes");
    }

    #[test]
    fn a_line_end_is_never_passed() {
        for text in ["[\n]", "[1,\n2]", "{\"a\":\n1}", "\n1", "\"\n\""] {
            assert_eq!(fast(text), None, "{text:?}");
        }
        for (text, end) in
            [("}", Some(1)), (" } \t\r\n{", Some(6)), ("}\n\n", Some(2)), ("} }", None), ("\n}", None), ("", None)]
        {
            assert_eq!(end_of_record(text.as_bytes(), 0), end, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_strict_scanner_agrees(text in r#"([\[\]{}:,"\\u0-9a-f.eE+\- \t\r]|null|true|false|"a":|\\u00e9|\\ud83d\\ude00){0,24}"#) {
            check(&text);
        }
    }
}
