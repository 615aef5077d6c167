//! A strict scanner of JSON text (RFC 8259): it checks the grammar of everything it passes and copies nothing.
//!
//! Values come back as places in the text, so that a key that stands twice costs nothing and a string
//! without escapes is used where it stands.

use crate::error::quoted;

/// Where the grammar is broken, in bytes of the text, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Syntax {
    pub(super) at: usize,
    pub(super) message: String,
}

impl Syntax {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

type Scanned<T> = Result<T, Syntax>;

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    /// No value: the key isn't there.
    #[default]
    Missing,
    Null,
    Bool,
    Number,
    String,
    /// A string with escapes.
    Escaped,
    Array,
    Object,
}

impl Kind {
    /// In words, with an article.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Missing => "nothing",
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String | Self::Escaped => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// A value where it stands: strings without their quotes, all else whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slot {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Slot {
    pub(super) fn text(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// Reads one text from front to back.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    max_depth: usize,
}

impl<'a> Scanner<'a> {
    /// Begins at byte `at` of `text`, of which nothing behind `end` is looked at. Arrays and objects may be
    /// nested `max_depth` deep, the outermost counted.
    pub(super) fn new(text: &'a str, at: usize, end: usize, max_depth: usize) -> Self {
        Self { bytes: text.as_bytes().get(..end).unwrap_or_default(), at, max_depth }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    pub(super) fn expected(&self, what: &str) -> Syntax {
        match self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            // A whole character, not its first byte.
            Some(rest) => {
                let len = (1..4).find(|&len| rest.get(len).is_none_or(|byte| byte & 0xc0 != 0x80)).unwrap_or(4);
                Syntax::new(self.at, format!("expected {what}, found {}", quoted(&rest[..len.min(rest.len())])))
            }
            None => Syntax::new(self.at, format!("expected {what}, found the end of the record")),
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Goes through the members of the object that begins here; `member` gets each key, as a place, and
    /// stands before the value, which it must pass.
    pub(super) fn object<E: From<Syntax>>(
        &mut self,
        mut member: impl FnMut(&mut Self, Slot) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.take(b'{') {
            return Err(self.expected("an object").into());
        }
        self.skip_whitespace();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            self.skip_whitespace();
            if self.take(b'}') {
                return Ok(());
            }
            self.comma("',' or '}'")?;
        }
    }

    /// Goes through the elements of the array that begins here; `element` stands before each, and must pass it.
    pub(super) fn array<E: From<Syntax>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.take(b'[') {
            return Err(self.expected("an array").into());
        }
        self.skip_whitespace();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            element(self)?;
            self.skip_whitespace();
            if self.take(b']') {
                return Ok(());
            }
            self.comma("',' or ']'")?;
        }
    }

    fn comma(&mut self, what: &str) -> Scanned<()> {
        if !self.take(b',') {
            return Err(self.expected(what));
        }
        self.skip_whitespace();
        Ok(())
    }

    /// A key and its colon, with the blanks behind it.
    fn key(&mut self) -> Scanned<Slot> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key in double quotes"));
        }
        let key = self.string()?;
        self.skip_whitespace();
        if !self.take(b':') {
            return Err(self.expected("':'"));
        }
        self.skip_whitespace();
        Ok(key)
    }

    /// Passes one value. `depth` is how many arrays and objects are open around it.
    ///
    /// No recursion: a hostile text can't use up the stack.
    pub(super) fn value(&mut self, depth: usize) -> Scanned<Slot> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'"') => return self.string(),
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            _ => return self.scalar(),
        };
        let mut open: Vec<u8> = Vec::new();
        loop {
            // Before a value.
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth + open.len() >= self.max_depth {
                        let message = format!("nested deeper than {} levels", self.max_depth);
                        return Err(Syntax::new(self.at, message));
                    }
                    self.at += 1;
                    self.skip_whitespace();
                    if !self.take(bracket + 2) {
                        open.push(bracket);
                        if bracket == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                _ => {
                    self.scalar()?;
                }
            }
            // Behind a value.
            loop {
                let Some(&bracket) = open.last() else { return Ok(Slot { kind, start, end: self.at }) };
                self.skip_whitespace();
                // In ASCII both closing brackets stand two behind their opening ones.
                if self.take(bracket + 2) {
                    open.pop();
                    continue;
                }
                self.comma(if bracket == b'{' { "',' or '}'" } else { "',' or ']'" })?;
                if bracket == b'{' {
                    self.key()?;
                }
                break;
            }
        }
    }

    fn scalar(&mut self) -> Scanned<Slot> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                Kind::Number
            }
            Some(b't') => self.word("true", Kind::Bool)?,
            Some(b'f') => self.word("false", Kind::Bool)?,
            Some(b'n') => self.word("null", Kind::Null)?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Slot { kind, start, end: self.at })
    }

    fn word(&mut self, word: &str, kind: Kind) -> Scanned<Kind> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            return Err(Syntax::new(self.at, format!("{} is not JSON", quoted(&rest[..len]))));
        }
        self.at += word.len();
        Ok(kind)
    }

    /// `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
    fn number(&mut self) -> Scanned<()> {
        self.take(b'-');
        if self.take(b'0') {
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(Syntax::new(self.at, "a number with a leading zero"));
            }
        } else {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Scanned<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn string(&mut self) -> Scanned<Slot> {
        self.at += 1;
        let start = self.at;
        let mut kind = Kind::String;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Slot { kind, start, end: self.at - 1 });
                }
                Some(b'\\') => {
                    kind = Kind::Escaped;
                    self.escape()?;
                }
                Some(control @ 0..=0x1f) => {
                    return Err(Syntax::new(self.at, format!("a control character (0x{control:02x}) in a string")));
                }
                Some(_) => self.at += 1,
                None => return Err(Syntax::new(self.at, "a string is still open at the end of the record")),
            }
        }
    }

    /// Passes an escape, which begins here with a backslash.
    pub(super) fn escape(&mut self) -> Scanned<()> {
        let start = self.at;
        self.at += 2;
        match self.bytes.get(start + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => {
                let lone = || Syntax::new(start, "half of a surrogate pair alone in a string");
                match self.hex4()? {
                    0xd800..=0xdbff => {
                        let second = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(b"\\u"));
                        if !second {
                            return Err(lone());
                        }
                        self.at += 2;
                        if matches!(self.hex4()?, 0xdc00..=0xdfff) { Ok(()) } else { Err(lone()) }
                    }
                    0xdc00..=0xdfff => Err(lone()),
                    _ => Ok(()),
                }
            }
            _ => {
                self.at = start + 1;
                Err(self.expected("an escape of RFC 8259 behind '\\'"))
            }
        }
    }

    fn hex4(&mut self) -> Scanned<u32> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            value = value << 4 | digit.ok_or_else(|| self.expected("four hexadecimal digits behind '\\u'"))?;
            self.at += 1;
        }
        Ok(value)
    }
}

/// Appends a string that [`Scanner`] passed, its escapes replaced.
pub(super) fn unescape(raw: &str, out: &mut String) {
    let mut rest = raw;
    // A high surrogate waits here for its other half.
    let mut high = None;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or_default();
        let mut len = 2;
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                len = 6;
                let digits = rest.get(at + 2..at + 6).unwrap_or_default();
                let unit = u32::from_str_radix(digits, 16).unwrap_or_default();
                let code = match (high.take(), unit) {
                    (_, 0xd800..=0xdbff) => {
                        high = Some(unit);
                        None
                    }
                    (Some(high), low) => Some(0x10000 + ((high - 0xd800) << 10) + low.wrapping_sub(0xdc00)),
                    (None, unit) => Some(unit),
                };
                if let Some(c) = code.and_then(char::from_u32) {
                    out.push(c);
                }
            }
            other => out.push(char::from(other)),
        }
        rest = rest.get(at + len..).unwrap_or_default();
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(text: &str) -> Result<Slot, Syntax> {
        let mut scanner = Scanner::new(text, 0, text.len(), 8);
        scanner.skip_whitespace();
        let slot = scanner.value(0)?;
        scanner.skip_whitespace();
        if scanner.at() == text.len() { Ok(slot) } else { Err(scanner.expected("the end")) }
    }

    #[test]
    fn the_grammar_is_that_of_rfc_8259() {
        for good in [
            "0",
            "-0",
            "-1.5e+30",
            "1E5",
            "true",
            "null",
            " [ ] ",
            "{}",
            r#"{"a":[1,{"b":null}],"c":"\u00e9\uD83D\uDE00"}"#,
            r#""\"\\\/\b\f\n\r\t""#,
            "[[[[[[[[]]]]]]]]",
            r#"{"a":1,"a":2}"#,
            "\"\u{7f}\"",
            "\"\u{2028}\"",
        ] {
            assert!(scan(good).is_ok(), "{good}: {:?}", scan(good));
        }
        for (bad, at) in [
            ("", 0),
            ("01", 1),
            ("-", 1),
            ("+1", 0),
            (".5", 0),
            ("5.", 2),
            ("1e", 2),
            ("1e+", 3),
            ("0x10", 1),
            ("NaN", 0),
            ("Infinity", 0),
            ("-Infinity", 1),
            ("nul", 0),
            ("truE", 0),
            ("[1,]", 3),
            ("[,1]", 1),
            ("[1 2]", 3),
            ("{a:1}", 1),
            (r#"{"a" 1}"#, 5),
            (r#"{"a":1,}"#, 7),
            (r#"{"a"}"#, 4),
            (r#"{"a":}"#, 5),
            ("[1", 2),
            (r#"{"a":1"#, 6),
            ("[1}", 2),
            ("\"a\nb\"", 2),
            ("\"\0\"", 1),
            ("\"a", 2),
            (r#""\x""#, 2),
            (r#""\u12g4""#, 5),
            (r#""\ud800""#, 1),
            (r#""\udc00x""#, 1),
            (r#""\ud800\u0041""#, 1),
            ("1 2", 2),
            ("[[[[[[[[[]]]]]]]]]", 8),
            ("'a'", 0),
            ("[1]]", 3),
            (r#""\u+123""#, 3),
            ("/*c*/1", 0),
            ("\u{feff}1", 0),
        ] {
            assert_eq!(scan(bad).map_err(|syntax| syntax.at), Err(at), "{bad}");
        }
    }

    #[test]
    fn a_very_deep_text_is_refused_and_not_followed() {
        for bracket in ["[", "{\"a\":"] {
            let deep = bracket.repeat(1_000_000);
            assert!(scan(&deep).unwrap_err().message.contains("nested deeper than 8 levels"));
        }
    }

    #[test]
    fn escapes_are_replaced() {
        for (raw, text) in [
            (r"a\n\u00e9\uD83D\uDE00b", "a\né😀b"),
            (r#"\"\\\/\b\f\r\t"#, "\"\\/\u{8}\u{c}\r\t"),
            (r"\u0000", "\0"),
            ("plain", "plain"),
        ] {
            let mut out = String::new();
            unescape(raw, &mut out);
            assert_eq!(out, text);
        }
    }

    proptest! {
        #[test]
        fn the_scanner_agrees_with_serde_json(text in r#"[\[\]{}:,"\\u0-9a-f.eE+\-ntrls \t]{0,24}"#) {
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            // serde_json doesn't look at escapes in what it ignores.
            if !text.contains('\\') {
                let shallow = text.bytes().filter(|b| matches!(b, b'[' | b'{')).count() <= 8;
                prop_assert_eq!(scan(&text).is_ok(), theirs && shallow, "{:?}", scan(&text));
            }
        }

        #[test]
        fn strings_come_back_as_serde_json_wrote_them(text in "\\PC{0,12}|[\\x00-\\x7f]{0,8}") {
            let written = serde_json::to_string(&text).unwrap();
            let slot = scan(&written).unwrap();
            let mut out = String::new();
            unescape(slot.text(&written), &mut out);
            prop_assert_eq!(out, text);
        }
    }
}
