//! Batches of generated records: what they look like, and what is known of them.

use std::sync::Arc;

use crate::format::csv::plan::{CsvColumn, CsvPlan};
use crate::format::csv::{CsvOptions, OnFieldCount};
use crate::format::differential::Noise;
use crate::format::differential::values::{Kind, Spelling, TIMESTAMP_FORMATS, TYPES};
use crate::schema::BytesFormat;

/// What a batch's records look like.
pub(super) struct Batch {
    pub(super) options: CsvOptions,
    /// For each field of a record the column that reads it, if one does.
    fields: Vec<Option<usize>>,
    pub(super) columns: Vec<Kind>,
    /// Whether arrow-csv has all of the options, and gets the same bytes.
    pub(super) is_plain: bool,
    has_bad_records: bool,
    pub(super) timestamp_format: Option<&'static str>,
}

/// Generated records, and what is known of them.
#[derive(Default)]
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    /// Where the good ones start, and the bad ones.
    pub(super) starts: Vec<u64>,
    pub(super) bad_starts: Vec<usize>,
    /// The good ones for arrow-csv.
    pub(super) canonical: Vec<u8>,
}

impl Batch {
    pub(super) fn new(noise: &mut Noise) -> Self {
        let is_plain = noise.once_in(3);
        let mut columns: Vec<Kind> = Vec::new();
        for index in 0..1 + noise.below(12) {
            let kind = Kind::new(noise.pick(&TYPES), &format!("c{index}"));
            columns.push(kind.with_nullable(!noise.once_in(4)));
        }
        let mut fields: Vec<Option<usize>> = (0..columns.len()).map(Some).collect();
        if !is_plain && noise.once_in(2) {
            for _ in 0..noise.below(4) {
                fields.push(None);
            }
            for place in (1..fields.len()).rev() {
                fields.swap(place, noise.below(place + 1));
            }
        }
        let quote = match noise.below(8) {
            0 => Some(b'\''),
            1 if !is_plain => None,
            _ => Some(b'"'),
        };
        // Values hold no blanks, and no signs of these kinds, where there are no quotes to hide them.
        let delimiter = match noise.below(8) {
            0 => Some(';'),
            1 => Some('\t'),
            2 => Some('|'),
            3 if quote.is_some() => Some(noise.pick(&[' ', ':', '-', '.', '\x01'])),
            4 => Some(','),
            5 if !is_plain => Some(noise.pick(&['é', '｜', '😀'])),
            _ => None,
        };
        let lenient = |noise: &mut Noise| match !is_plain && noise.once_in(4) {
            true => OnFieldCount::Lenient,
            false => OnFieldCount::Fail,
        };
        // What isn't text can be told from the first two also without quotes.
        let literals = if quote.is_some() { ["NULL", "é", "-", "n/a", "0"].as_slice() } else { &["NULL", "é"] };
        let null_literal = (!is_plain && noise.once_in(3)).then(|| noise.pick(literals).to_owned());
        let timestamp_format = (!is_plain && noise.once_in(3)).then(|| noise.pick(&TIMESTAMP_FORMATS));
        let options = CsvOptions {
            timestamp_format: timestamp_format.map(|format| format.parse().unwrap()),
            delimiter,
            quote,
            escape: noise.once_in(5).then_some(b'\\'),
            comment: noise.once_in(5).then_some(b'#'),
            null_literal: null_literal.filter(|literal| !literal.contains(delimiter.unwrap_or(','))),
            missing_fields: lenient(noise),
            extra_fields: lenient(noise),
            decimal_rounding: !is_plain && noise.once_in(3),
            bytes_format: noise.pick(&[BytesFormat::Base64, BytesFormat::Hex]),
            ..CsvOptions::default()
        };
        options.check().unwrap();
        let has_bad_records = !is_plain && noise.once_in(2);
        Self { options, fields, columns, is_plain, has_bad_records, timestamp_format }
    }

    fn spelling(&self) -> Spelling {
        Spelling {
            is_plain: self.is_plain,
            is_json: false,
            bytes_format: self.options.bytes_format,
            rounding: self.options.decimal_rounding,
            timestamp_format: self.timestamp_format,
        }
    }

    pub(super) fn plan(&self) -> CsvPlan {
        let index = |column: usize| self.fields.iter().position(|field| *field == Some(column)).unwrap();
        let column =
            |(place, kind): (usize, &Kind)| CsvColumn { index: index(place), field: Arc::new(kind.field.clone()) };
        CsvPlan::new(&self.options, self.columns.iter().enumerate().map(column).collect(), self.fields.len())
    }

    pub(super) fn delimiter(&self) -> char {
        self.options.delimiter.unwrap_or(',')
    }

    fn write_delimiter(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.delimiter().encode_utf8(&mut [0; 4]).as_bytes());
    }

    pub(super) fn write(&self, noise: &mut Noise, num_records: usize) -> Written {
        let mut written = Written::default();
        let line_end = noise.below(3);
        for index in 0..num_records {
            self.write_between(noise, &mut written.bytes);
            if self.has_bad_records && noise.once_in(100) {
                written.bad_starts.push(written.bytes.len());
                self.write_bad(noise, &mut written.bytes);
            } else {
                written.starts.push(written.bytes.len() as u64);
                self.write_record(noise, &mut written);
            }
            let is_last = index + 1 == num_records;
            let is_empty = written.starts.last() == Some(&(written.bytes.len() as u64));
            match line_end {
                // An empty one would not be there without its line end.
                _ if is_last && !is_empty && noise.once_in(2) => {}
                0 => written.bytes.push(b'\n'),
                1 => written.bytes.extend(b"\r\n"),
                _ => written.bytes.extend(noise.pick(&[b"\n".as_slice(), b"\r\n"])),
            }
        }
        written
    }

    /// Blank lines and comments.
    fn write_between(&self, noise: &mut Noise, bytes: &mut Vec<u8>) {
        // With one field an empty line is a record.
        if self.fields.len() > 1 && noise.once_in(50) {
            bytes.extend(noise.pick(&[b"\n".as_slice(), b"\r\n", b"\n\n"]));
        }
        if self.options.comment.is_some() && noise.once_in(20) {
            bytes.extend(noise.pick(&[b"#\n".as_slice(), b"# \"open, and\r\n", b"#,,\\\n"]));
        }
    }

    /// Text whose bytes are special somewhere.
    fn text(&self, noise: &mut Noise, text: &mut String) {
        text.clear();
        // Without quotes and escapes some bytes can't be told from structure.
        let has_all = self.options.quote.is_some();
        let has_most = has_all || self.options.escape.is_some();
        let num_pieces = match noise.below(16) {
            0 => 0,
            1 => 40,
            _ => noise.below(8),
        };
        let quote = char::from(self.options.quote.unwrap_or(b'"'));
        for _ in 0..num_pieces {
            match noise.below(24) {
                0 if has_most => text.push(self.delimiter()),
                1 if has_most => text.push('\n'),
                2 if has_all => text.push_str("\r\n"),
                3 if has_all => text.push('\r'),
                4 => text.push(quote),
                5 if has_most => text.push('\\'),
                6 if has_most => text.push('#'),
                7 => text.push('é'),
                8 => text.push('中'),
                9 => text.push('😀'),
                10 => text.push_str("6\" nail "),
                11 => text.push_str(&"x".repeat(noise.below(70))),
                12 if has_all => text.push_str(&quote.to_string().repeat(1 + noise.below(3))),
                13 => text.push(' '),
                _ => text.extend((0..noise.below(9)).map(|_| char::from(b'a' + noise.below(26) as u8))),
            }
        }
        if !has_most {
            text.retain(|c| c != self.delimiter());
        }
    }

    fn write_record(&self, noise: &mut Noise, written: &mut Written) {
        let (mut ours, mut theirs) = (String::new(), String::new());
        // For each column what arrow-csv gets; none is null.
        let mut canonical: Vec<Option<String>> = vec![None; self.columns.len()];
        let nullable_from = |place: usize| {
            self.fields[place..].iter().flatten().all(|column| self.columns[*column].field.is_nullable())
        };
        let num_fields = match self.options.missing_fields {
            // Of one field the line might be blank.
            OnFieldCount::Lenient if self.fields.len() > 2 && noise.once_in(4) => {
                let place = 2 + noise.below(self.fields.len() - 2);
                if nullable_from(place) { place } else { self.fields.len() }
            }
            _ => self.fields.len(),
        };
        for (place, field) in self.fields[..num_fields].iter().enumerate() {
            if place > 0 {
                self.write_delimiter(&mut written.bytes);
            }
            let kind = field.map(|column| &self.columns[column]);
            let is_text = kind.is_none_or(Kind::is_text);
            if is_text {
                self.text(noise, &mut ours);
                theirs.clone_from(&ours);
            } else if let Some(kind) = kind {
                kind.write(noise, self.spelling(), &mut ours, &mut theirs);
            }
            let is_nullable = kind.is_some_and(|kind| kind.field.is_nullable());
            let null_literal = self.options.null_literal.as_deref();
            if is_nullable && noise.once_in(6) && self.write_null(noise, is_text, &mut written.bytes) {
                continue;
            }
            if null_literal == Some(ours.as_str()) && self.options.quote.is_none() {
                // It would be null.
                ours.push('x');
                theirs.push('x');
            }
            self.write_field(noise, &ours, place, num_fields, &mut written.bytes);
            if let Some(column) = field {
                canonical[*column] = Some(std::mem::take(&mut theirs));
            }
        }
        if num_fields == self.fields.len() && self.options.extra_fields == OnFieldCount::Lenient && noise.once_in(4) {
            for _ in 0..1 + noise.below(3) {
                self.write_delimiter(&mut written.bytes);
                self.text(noise, &mut ours);
                self.write_field(noise, &ours, 1, usize::MAX, &mut written.bytes);
            }
        }
        for (place, value) in canonical.iter().enumerate() {
            if place > 0 {
                written.canonical.push(b',');
            }
            written.canonical.push(b'"');
            for byte in value.as_deref().unwrap_or_default().bytes() {
                written.canonical.push(byte);
                if byte == b'"' {
                    written.canonical.push(byte);
                }
            }
            written.canonical.push(b'"');
        }
        written.canonical.push(b'\n');
    }

    /// Says whether a null was written: text has none without a literal.
    fn write_null(&self, noise: &mut Noise, is_text: bool, bytes: &mut Vec<u8>) -> bool {
        match (&self.options.null_literal, self.options.quote) {
            (Some(literal), _) if is_text || noise.once_in(2) => bytes.extend(literal.as_bytes()),
            _ if is_text => return false,
            // Of one field the line would be blank for arrow-csv.
            (_, Some(quote)) if noise.once_in(3) || (self.is_plain && self.fields.len() == 1) => {
                bytes.extend([quote, quote]);
            }
            _ => {}
        }
        true
    }

    /// Writes a value that isn't null: quoted where it has to be, and now and then where not; or with escapes.
    fn write_field(&self, noise: &mut Noise, text: &str, place: usize, num_fields: usize, bytes: &mut Vec<u8>) {
        let CsvOptions { quote, escape, comment, null_literal, .. } = &self.options;
        let is = |special: Option<u8>, c: char| special.is_some_and(|special| c == char::from(special));
        let is_special = |c: char| c == self.delimiter() || c == '\n' || is(*escape, c) || (self.is_plain && c == '\r');
        let first = text.as_bytes().first().copied();
        let has_to = text.contains(is_special)
            || (first.is_some() && first == *quote)
            || (place == 0 && first.is_some() && first == *comment)
            || null_literal.as_deref() == Some(text)
            || text.ends_with('\r')
            // For arrow-csv that is a blank line.
            || (self.is_plain && num_fields == 1 && text.is_empty());
        let by_escapes = !self.is_plain
            && escape.is_some()
            // The reference takes a CR before a line end for a part of it, escaped or not.
            && !text.contains('\r')
            && null_literal.as_deref() != Some(text)
            && (quote.is_none() || noise.once_in(3));
        match (*quote, *escape) {
            (_, Some(escape)) if has_to && by_escapes => {
                for (at, c) in text.chars().enumerate() {
                    if is_special(c) || (at == 0 && (is(*quote, c) || is(*comment, c))) {
                        bytes.push(escape);
                    }
                    bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            (Some(quote), escape) if has_to || noise.once_in(6) => {
                bytes.push(quote);
                for byte in text.bytes() {
                    if byte == quote {
                        bytes.push(escape.filter(|_| noise.once_in(2)).unwrap_or(quote));
                    } else if Some(byte) == escape {
                        bytes.push(byte);
                    }
                    bytes.push(byte);
                }
                bytes.push(quote);
            }
            _ => bytes.extend(text.as_bytes()),
        }
    }

    /// A record with something wrong, without its line end.
    fn write_bad(&self, noise: &mut Noise, bytes: &mut Vec<u8>) {
        let num_fields = self.fields.len();
        let bare = |bytes: &mut Vec<u8>, num_fields: usize| {
            for place in 0..num_fields {
                if place > 0 {
                    self.write_delimiter(bytes);
                }
                bytes.push(b'z');
            }
        };
        let has_value = self.columns.iter().any(|kind| !kind.is_text());
        match (noise.below(4), self.options.quote) {
            // No value of any other type than text.
            (0, _) if has_value => bare(bytes, num_fields),
            (1, _) if self.options.extra_fields == OnFieldCount::Fail => bare(bytes, num_fields + 1 + noise.below(3)),
            (2, Some(quote)) => {
                bytes.extend([quote, b'a', quote]);
                bare(bytes, num_fields);
            }
            _ => {
                bytes.push(b'\xff');
                bare(bytes, num_fields);
            }
        }
    }
}
