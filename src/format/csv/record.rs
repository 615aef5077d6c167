//! Where a record ends and what its fields are: strict, scalar, and a function of the bytes alone.
//!
//! A record whose quotes are well-formed ends where RFC 4180 says. One with broken quotes (text behind a
//! closing quote; still open `max_record_bytes` behind the record's start, or at the end of the file) is bad
//! and ends at the first line end after its *start*, so that a stray quote can't swallow the rest of a file. A line feed
//! that is escaped outside quotes is data, and no line end.
//!
//! Advice to the next person: whatever speeds this up must agree with it on every input. Quotes inside an
//! unquoted field (`6" nail`) are data, comments and escapes break parity, a lone CR is data.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2, memchr3};

use super::chain::Chain;
use crate::error::{Reason, quoted};
use crate::format::RecordFault;
use crate::format::raw::invalid_utf8;

/// What stands between two fields: the UTF-8 of one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delimiter {
    bytes: [u8; 4],
    len: usize,
}

impl From<char> for Delimiter {
    fn from(character: char) -> Self {
        let mut bytes = [0; 4];
        let len = character.encode_utf8(&mut bytes).len();
        Self { bytes, len }
    }
}

impl Delimiter {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The first byte of it, which no other byte of a character is.
    pub(super) fn first(self) -> u8 {
        self.bytes[0]
    }

    pub(super) fn is_one_byte(self) -> bool {
        self.len == 1
    }

    /// Says whether `data` begins with it.
    fn begins(&self, data: &[u8]) -> bool {
        data.first() == Some(&self.bytes[0]) && (self.len == 1 || data.starts_with(self.as_bytes()))
    }

    /// Says whether `data` may be the beginning of it.
    fn may_go_on(&self, data: &[u8]) -> bool {
        self.as_bytes().starts_with(data)
    }
}

/// The special characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) delimiter: Delimiter,
    pub(crate) quote: Option<u8>,
    pub(crate) escape: Option<u8>,
    pub(crate) comment: Option<u8>,
    pub(crate) max_record_bytes: usize,
}

/// One field, as a range of the scanned bytes; a quoted one without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) quoted: bool,
    /// Whether doubled quotes or escapes are to be undone.
    pub(crate) escaped: bool,
}

impl Span {
    /// The same, of text that begins so many bytes later.
    pub(super) fn moved_down(self, bytes: usize) -> Self {
        Self { start: self.start - bytes, end: self.end - bytes, ..self }
    }
}

/// What stands at a record's start. `next` is where the one behind it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// A record; its fields were noted.
    Record {
        next: usize,
    },
    /// An empty line.
    Blank {
        next: usize,
    },
    Comment {
        next: usize,
    },
    /// A record with broken quotes.
    Broken {
        next: usize,
        why: BrokenQuotes,
    },
    /// It can't be told without the bytes that follow.
    Incomplete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenQuotes {
    /// Text behind a closing quote, at this byte.
    TextBehind(usize),
    /// A field that was opened at this byte isn't closed.
    StillOpen(usize),
}

impl Dialect {
    /// Scans what starts at `start`, which must be before the end of `data`. `at_end` says that nothing
    /// follows `data`. The fields of a record are added to `fields`.
    ///
    /// `chain` makes it fast to scan record after record of `data`, and has no influence on what comes out. It must have
    /// seen no other data, and no start behind this one.
    pub(crate) fn scan(
        &self,
        data: &[u8],
        start: usize,
        at_end: bool,
        fields: &mut Vec<Span>,
        chain: &mut Chain,
    ) -> Scan {
        let line_end = memchr(b'\n', &data[start..]).map(|len| start + len);
        let next = match line_end {
            Some(end) => end + 1,
            None if at_end => data.len(),
            None => data.len(), // looked at again below
        };
        #[cfg(test)]
        (chain.num_looked_at += next - start);
        let is_whole = line_end.is_some() || at_end;
        let line_end = trim_cr(data, start, line_end.unwrap_or(data.len()), line_end.is_some());
        if line_end == start && is_whole {
            return Scan::Blank { next };
        }
        if self.comment.is_some() && self.comment == data.get(start).copied() {
            return if is_whole { Scan::Comment { next } } else { Scan::Incomplete };
        }
        let line = &data[start..line_end];
        let special = match (self.quote, self.escape) {
            (None, None) => None,
            (Some(byte), None) | (None, Some(byte)) => memchr(byte, line),
            (Some(quote), Some(escape)) => memchr2(quote, escape, line),
        };
        if special.is_some() {
            return Walk { dialect: self, data, start, at_end }.scan(fields, chain);
        }
        if !is_whole {
            return Scan::Incomplete;
        }
        let mut field = start;
        for delimiter in memchr_iter(self.delimiter.first(), line).filter(|at| self.delimiter.begins(&line[*at..])) {
            fields.push(plain(field, start + delimiter));
            field = start + delimiter + self.delimiter.len;
        }
        fields.push(plain(field, line_end));
        Scan::Record { next }
    }
}

/// Goes field by field, for records whose first line has a quote or an escape in it.
struct Walk<'a> {
    dialect: &'a Dialect,
    data: &'a [u8],
    /// Where the record starts.
    start: usize,
    at_end: bool,
}

/// How a walk ends.
enum Walked {
    Record { next: usize },
    Broken(BrokenQuotes),
    Incomplete,
}

impl Walk<'_> {
    fn scan(&self, fields: &mut Vec<Span>, chain: &mut Chain) -> Scan {
        let first_field = fields.len();
        let mut trail = Trail::default();
        chain.begin(self.start);
        let walked = self.fields(fields, chain, &mut trail);
        if let Walked::Record { next } = walked {
            if !trail.has_joined {
                return Scan::Record { next };
            }
            // Fields are missing. The record goes on behind the chain, and is long enough to pay for a second walk.
            fields.truncate(first_field);
            chain.clear();
            return self.scan(fields, chain);
        }
        if let Some(last) = trail.last {
            chain.take(&fields[first_field..], last);
        }
        let scan = match walked {
            Walked::Broken(why) => self.broken(&fields[first_field..], why),
            _ => Scan::Incomplete,
        };
        fields.truncate(first_field);
        scan
    }

    /// `fields` are those of the first line that are well-formed, at least.
    fn broken(&self, fields: &[Span], why: BrokenQuotes) -> Scan {
        match first_line_end(self.data, self.start, fields, why) {
            (Some(end), why) => Scan::Broken { next: end + 1, why },
            (None, why) if self.at_end => Scan::Broken { next: self.data.len(), why },
            (None, _) => Scan::Incomplete,
        }
    }

    /// Adds the fields; along the chain none but those of the first line.
    fn fields(&self, fields: &mut Vec<Span>, chain: &mut Chain, trail: &mut Trail) -> Walked {
        let Self { dialect, data, at_end, .. } = *self;
        let mut at = self.start;
        loop {
            let end = if dialect.quote.is_some() && data.get(at).copied() == dialect.quote {
                if trail.is_behind_line
                    && let Some(last) = chain.last_from(at)
                {
                    at = last;
                }
                let searched = chain.join(at);
                trail.has_joined |= searched.is_some();
                let from = searched.unwrap_or(at + 1);
                let (quoted, searched) = self.quoted_field(at, from);
                #[cfg(test)]
                (chain.num_looked_at += searched - from + 1);
                trail.last = Some((at, searched));
                match quoted {
                    Quoted::Field(span) => {
                        trail.is_behind_line =
                            trail.is_behind_line || memchr(b'\n', &data[span.start..span.end]).is_some();
                        fields.push(span);
                        span.end + 1
                    }
                    Quoted::StillOpen => return Walked::Broken(BrokenQuotes::StillOpen(at)),
                    Quoted::Incomplete => return Walked::Incomplete,
                }
            } else {
                let span = self.plain_field(at);
                #[cfg(test)]
                (chain.num_looked_at += span.map_or(data.len(), |span| span.end) - at + 1);
                let Some(span) = span else { return Walked::Incomplete };
                fields.push(span);
                span.end
            };
            // `end` is behind the field, quotes included: a delimiter, a line end, or the end of the data.
            match &data[end..] {
                [] => return Walked::Record { next: end },
                [b'\n', ..] => return Walked::Record { next: end + 1 },
                [b'\r', b'\n', ..] => return Walked::Record { next: end + 2 },
                [b'\r'] if !at_end => return Walked::Incomplete,
                rest if dialect.delimiter.begins(rest) => at = end + dialect.delimiter.len,
                rest if !at_end && dialect.delimiter.may_go_on(rest) => return Walked::Incomplete,
                _ => return Walked::Broken(BrokenQuotes::TextBehind(end)),
            }
        }
    }

    /// The field that a quote opens at `open`, which nothing before `from` closes; and up to where nothing does.
    fn quoted_field(&self, open: usize, from: usize) -> (Quoted, usize) {
        let Self { dialect, data, at_end, .. } = *self;
        let Some(quote) = dialect.quote else { return (Quoted::StillOpen, from) };
        // A quote that closes lies within the limit, or the field counts as open.
        let limit = self.start.saturating_add(dialect.max_record_bytes);
        let window = &data[..data.len().min(limit)];
        let beyond = if data.len() >= limit || at_end { Quoted::StillOpen } else { Quoted::Incomplete };
        let mut escaped = false;
        let mut at = from;
        loop {
            let rest = window.get(at..).unwrap_or_default();
            let found = match dialect.escape {
                Some(escape) => memchr2(quote, escape, rest),
                None => memchr(quote, rest),
            };
            // What is doubled or escaped may end behind the window.
            let Some(found) = found.map(|len| at + len) else { return (beyond, at.max(window.len())) };
            if data[found] != quote {
                escaped = true;
                at = found + 2;
                continue;
            }
            match data.get(found + 1) {
                Some(next) if *next == quote => {
                    escaped = true;
                    at = found + 2;
                }
                None if !at_end => return (Quoted::Incomplete, found),
                _ => {
                    let span = Span { start: open + 1, end: found, quoted: true, escaped };
                    return (Quoted::Field(span), found);
                }
            }
        }
    }

    /// The unquoted field at `start`, up to a delimiter, a line end or the end of the data.
    fn plain_field(&self, start: usize) -> Option<Span> {
        let Self { dialect, data, at_end, .. } = *self;
        let mut escaped = false;
        let mut at = start;
        loop {
            let rest = data.get(at..).unwrap_or_default();
            let found = match dialect.escape {
                Some(escape) => memchr3(dialect.delimiter.first(), b'\n', escape, rest),
                None => memchr2(dialect.delimiter.first(), b'\n', rest),
            };
            let Some(found) = found.map(|len| at + len) else {
                return at_end.then_some(Span { escaped, ..plain(start, data.len()) });
            };
            if Some(data[found]) == dialect.escape {
                escaped = true;
                at = found + 2;
                continue;
            }
            if data[found] != b'\n' && !dialect.delimiter.begins(&data[found..]) {
                // Another character that begins as it does.
                at = found + 1;
                continue;
            }
            let end = if data[found] == b'\n' { trim_cr(data, start, found, true) } else { found };
            return Some(Span { escaped, ..plain(start, end) });
        }
    }
}

/// Where a walk came by.
#[derive(Default)]
struct Trail {
    /// The last quoted field: where it opens, and up to where nothing closes it.
    last: Option<(usize, usize)>,
    /// Whether the first line ended, inside a quoted field.
    is_behind_line: bool,
    /// Whether it went on along the chain.
    has_joined: bool,
}

/// Where the first line of a broken record ends, and what is wrong with that line alone: a decoder may see no more.
///
/// `fields` are those that were well-formed. One that isn't quoted may hold line feeds that were escaped; they end no
/// line, or the line alone might be a good record.
fn first_line_end(data: &[u8], start: usize, fields: &[Span], why: BrokenQuotes) -> (Option<usize>, BrokenQuotes) {
    let mut at = start;
    for field in fields {
        if field.quoted
            && let Some(len) = memchr(b'\n', &data[field.start..field.end])
        {
            return (Some(field.start + len), BrokenQuotes::StillOpen(field.start - 1));
        }
        at = field.end;
    }
    (memchr(b'\n', &data[at..]).map(|len| at + len), why)
}

enum Quoted {
    Field(Span),
    StillOpen,
    Incomplete,
}

fn plain(start: usize, end: usize) -> Span {
    Span { start, end, quoted: false, escaped: false }
}

/// Moves a line's end before its CR, if a LF follows that.
fn trim_cr(data: &[u8], start: usize, end: usize, has_lf: bool) -> usize {
    if has_lf && end > start && data[end - 1] == b'\r' { end - 1 } else { end }
}

/// A field's text, with doubled quotes and escapes undone. `text` is what was scanned.
pub(crate) fn text_of<'a>(dialect: &Dialect, text: &'a str, span: &Span) -> Cow<'a, str> {
    let raw = &text[span.start..span.end];
    if !span.escaped {
        return Cow::Borrowed(raw);
    }
    let mut plain = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        let is = |byte: Option<u8>| byte.is_some_and(|byte| c == byte as char);
        if is(dialect.escape) || (span.quoted && is(dialect.quote)) {
            plain.extend(chars.next());
        } else {
            plain.push(c);
        }
    }
    Cow::Owned(plain)
}

/// The first record of a file.
#[derive(Debug)]
pub(crate) struct FirstRecord<'a> {
    dialect: &'a Dialect,
    /// What stands before the record, and the record.
    data: &'a [u8],
    record: Range<usize>,
    spans: Vec<Span>,
}

impl<'a> FirstRecord<'a> {
    /// Looks for it; `None` if there is no whole one. Blank lines and comments before it are passed over.
    ///
    /// # Errors
    /// A record with broken quotes.
    pub(crate) fn find(dialect: &'a Dialect, data: &'a [u8], at_end: bool) -> Result<Option<Self>, RecordFault> {
        let mut at = 0;
        while at < data.len() {
            let mut spans = Vec::new();
            match dialect.scan(data, at, at_end, &mut spans, &mut Chain::default()) {
                Scan::Blank { next } | Scan::Comment { next } => at = next,
                Scan::Incomplete => return Ok(None),
                Scan::Broken { next, why } => return Err(why.fault(data, at..next)),
                Scan::Record { next } => {
                    return Ok(Some(Self { dialect, data: &data[..next], record: at..next, spans }));
                }
            }
        }
        Ok(None)
    }

    /// Where the record behind it starts.
    pub(crate) fn next(&self) -> usize {
        self.record.end
    }

    /// Its fields.
    ///
    /// # Errors
    /// Bytes that aren't UTF-8.
    pub(crate) fn fields(&self) -> Result<Vec<String>, RecordFault> {
        let start = self.record.start;
        let text = record_text(&self.data[start..], self.record.clone())?;
        let field = |span: &Span| text_of(self.dialect, text, &span.moved_down(start)).into_owned();
        Ok(self.spans.iter().map(field).collect())
    }
}

/// The text of the record that stands at `record` and is all of `bytes`.
pub(super) fn record_text(bytes: &[u8], record: Range<usize>) -> Result<&str, RecordFault> {
    std::str::from_utf8(bytes).map_err(|e| {
        let hint = "csv.charset says how a file is written, such as windows-1252";
        invalid_utf8(record, bytes, &e).with_hint(hint)
    })
}

impl BrokenQuotes {
    /// What is wrong with the record that stands at `record`.
    pub(super) fn fault(self, data: &[u8], record: Range<usize>) -> RecordFault {
        let (start, line) = (record.start, data[record.clone()].trim_ascii_end());
        let (message, hint) = match self {
            Self::TextBehind(at) => (
                format!("text behind a closing quote, at byte {} of the record: {}", at - start, quoted(line)),
                "a quote within quotes is written twice, or behind csv.escape-character; \
                 csv.disable-quote-character=true makes quotes plain characters",
            ),
            Self::StillOpen(at) => (
                format!("the quote at byte {} of the record isn't closed: {}", at - start, quoted(line)),
                "a quoted field may go over line ends, as far as csv.max-record-bytes (1 mb) behind the start of its record; \
                 csv.disable-quote-character=true makes quotes plain characters",
            ),
        };
        RecordFault::new(record, Reason::Quotes, message).with_hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CsvOptions;
    use super::*;

    /// Every record of `data` as its fields; broken ones as `!`.
    fn records(options: &CsvOptions, data: &[u8]) -> Vec<Vec<String>> {
        let dialect = options.dialect();
        let text = std::str::from_utf8(data).unwrap();
        let (mut at, mut records) = (0, Vec::new());
        while at < data.len() {
            let mut spans = Vec::new();
            at = match dialect.scan(data, at, true, &mut spans, &mut Chain::default()) {
                Scan::Record { next } => {
                    records.push(spans.iter().map(|span| text_of(&dialect, text, span).into_owned()).collect());
                    next
                }
                Scan::Broken { next, .. } => {
                    records.push(vec!["!".into()]);
                    next
                }
                Scan::Blank { next } | Scan::Comment { next } => next,
                Scan::Incomplete => panic!("incomplete at the end"),
            };
        }
        records
    }

    #[track_caller]
    fn check(options: &CsvOptions, data: &str, expected: &[&[&str]]) {
        assert_eq!(records(options, data.as_bytes()), expected, "{data:?}");
    }

    #[test]
    fn rfc_4180() {
        let plain = CsvOptions::default();
        check(&plain, "a,b\nc,d", &[&["a", "b"], &["c", "d"]]);
        check(&plain, "a,b\r\n\r\n\nc,\r\n", &[&["a", "b"], &["c", ""]]);
        check(&plain, "\"a,1\",\"b\n2\"\n\"\",\"\"\"x\"\"\"", &[&["a,1", "b\n2"], &["", "\"x\""]]);
        check(&plain, "\"a\"\r\n\"b\"", &[&["a"], &["b"]]);
        check(&plain, ",\n", &[&["", ""]]);
        check(&plain, "a\rb,c\r\r\n", &[&["a\rb", "c\r"]]);
    }

    #[test]
    fn a_quote_inside_an_unquoted_field_is_data() {
        check(&CsvOptions::default(), "6\" nail,1\n a \"b\",2\n", &[&["6\" nail", "1"], &[" a \"b\"", "2"]]);
    }

    #[test]
    fn broken_quotes_end_at_the_first_line_end_after_the_start() {
        let plain = CsvOptions::default();
        check(&plain, "\"a\"b,1\nc,2\n", &[&["!"], &["c", "2"]]);
        check(&plain, "\"open,1\nc,2\n", &[&["!"], &["c", "2"]]);
        check(&plain, "x,\"a\nb\"c\nd,2", &[&["!"], &["b\"c"], &["d", "2"]]);
        check(&plain, "\"a\"\r", &[&["!"]]);
        let short = CsvOptions { max_record_bytes: 8, ..CsvOptions::default() };
        check(&short, "\"a\n3456\"\n\"a\n34567\"\nz", &[&["a\n3456"], &["!"], &["34567\""], &["z"]]);
    }

    #[test]
    fn comments_escapes_and_no_quotes() {
        let options = CsvOptions { comment: Some(b'#'), ..CsvOptions::default() };
        check(&options, "#\"\na,#b\n# x", &[&["a", "#b"]]);
        let options = CsvOptions { escape: Some(b'\\'), ..CsvOptions::default() };
        check(&options, "\"a\\\"b\",c\\,d\n\"x\"\"y\",\\\\", &[&["a\"b", "c,d"], &["x\"y", "\\"]]);
        let options = CsvOptions { quote: None, ..CsvOptions::default() };
        check(&options, "\"a,b\"\n", &[&["\"a", "b\""]]);
        let options = CsvOptions { delimiter: Some('\t'), ..CsvOptions::default() };
        check(&options, "a,b\tc\n", &[&["a,b", "c"]]);
    }

    /// What followed it in the chunk decided what was told of a broken record; and one whose first line feed was escaped
    /// was a good one when the chunk ended there.
    #[test]
    fn a_broken_record_is_the_same_without_what_follows_it() {
        let options = CsvOptions { escape: Some(b'\\'), max_record_bytes: 12, ..CsvOptions::default() };
        let dialect = options.dialect();
        for data in
            ["\"a\nb\"c\nd\n", "x,\"a\nb\",\"cdefghi\"\n", "a\\\nb,\"x\"y\nc\n", "a\\\n,\"b\nc\"d\n", "\"a\\\nb\"c\n"]
        {
            let whole = dialect.scan(data.as_bytes(), 0, true, &mut Vec::new(), &mut Chain::default());
            let Scan::Broken { next, .. } = whole else { panic!("{data:?}: {whole:?}") };
            assert_eq!(
                dialect.scan(&data.as_bytes()[..next], 0, true, &mut Vec::new(), &mut Chain::default()),
                whole,
                "{data:?}"
            );
        }
    }

    #[test]
    fn any_character_may_be_the_delimiter() {
        let by = |delimiter| CsvOptions { delimiter: Some(delimiter), ..CsvOptions::default() };
        check(&by('§'), "a§b\n\"x§y\"§¨¶\n§\n", &[&["a", "b"], &["x§y", "¨¶"], &["", ""]]);
        // Characters that begin with the same bytes are others.
        check(&by('｜'), "a｜b｝｜\n\"q\"｜（\n", &[&["a", "b｝", ""], &["q", "（"]]);
        check(&by('😀'), "a😀😁\n", &[&["a", "😁"]]);
        check(&by('\0'), "a\0\"b\0c\"\n", &[&["a", "b\0c"]]);
        check(&by('\u{1}'), "a\u{1}b,c\n", &[&["a", "b,c"]]);
        check(&by('\u{7f}'), "a\u{7f}b", &[&["a", "b"]]);
        let escaped = CsvOptions { escape: Some(b'\\'), ..by('§') };
        check(&escaped, "a\\§b§c\n\"x\\\"\"§¨\\", &[&["a§b", "c"], &["x\"", "¨"]]);
        check(&by('§'), "\"a\"¨\nb§c\n", &[&["!"], &["b", "c"]]);
    }

    #[test]
    fn half_a_delimiter_is_incomplete() {
        let dialect = CsvOptions { delimiter: Some('｜'), ..CsvOptions::default() }.dialect();
        let data = "\"a\"｜\"b\"｜c\n".as_bytes();
        for len in 1..data.len() {
            let scan = dialect.scan(&data[..len], 0, false, &mut Vec::new(), &mut Chain::default());
            assert_eq!(scan, Scan::Incomplete, "of {len} bytes");
        }
        assert_eq!(
            dialect.scan(data, 0, false, &mut Vec::new(), &mut Chain::default()),
            Scan::Record { next: data.len() }
        );
    }

    #[test]
    fn what_could_go_on_is_incomplete() {
        let dialect = CsvOptions::default().dialect();
        for data in ["a,b", "\"a\"", "\"a\"\r", "\"a\nb", "\"a\"\"", "a,\"b\"", "\"a\"x"] {
            assert_eq!(
                dialect.scan(data.as_bytes(), 0, false, &mut Vec::new(), &mut Chain::default()),
                Scan::Incomplete,
                "{data:?}"
            );
        }
    }
}
