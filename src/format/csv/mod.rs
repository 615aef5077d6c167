//! Text with separators: [RFC 4180](https://www.rfc-editor.org/rfc/rfc4180), and what files do in spite of it.
//!
//! What a record is, is a function of the bytes alone: `record` is its strict scalar reference. Cutting a file into
//! pieces (`cutter`) and decoding a piece (`decoder`) both go by a fast `index` as long as records are regular, and by
//! the reference where they aren't. The index only knows records of which the reference says the same, so the two
//! can't disagree.
//!
//! ```text
//! bytes ──index──▶ field starts ──columnar──▶ columns
//!   └──record──▶ the fields of one record ──▶ a row, or the fault
//! ```

#[cfg(test)]
mod agreement;
mod chain;
mod charset;
mod chunk;
mod columnar;
mod cutter;
mod decoder;
#[cfg(test)]
#[cfg(feature = "json")]
mod differential;
mod index;
mod infer;
mod messages;
mod plan;
mod record;
#[cfg(any(test, fuzzing))]
pub(crate) mod twins;

use std::collections::BTreeMap;

pub use charset::Charset;
pub(crate) use charset::{CharsetDecoder, Undecodable};
pub(crate) use cutter::CsvCutter;
pub(crate) use infer::{CsvSample, Inference, has_header};
pub(crate) use plan::{CsvColumn, CsvPlan};
pub(crate) use record::{Dialect, FirstRecord};

use crate::error::{Error, Result};
use crate::schema::{BytesFormat, TimestampFormat};

/// Whether the first record of each file names its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Header {
    /// Decided once per source, by its first non-empty file.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It doesn't: columns go by position.
    No,
}

/// What to do with a record that has another number of fields than its header or the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFieldCount {
    /// It is a bad record.
    #[default]
    Fail,
    /// Missing fields are null, extra ones are ignored.
    Lenient,
}

/// How CSV is written. The names in brackets are the option keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// Whether the first record names the columns (`csv.header`).
    pub header: Header,
    /// Drops the first record; columns go by position then (`csv.ignore-first-line`).
    pub ignore_first_line: bool,
    /// Between two fields, any character but a line end (`csv.field-delimiter`); without one a tab in `.tsv` files,
    /// else a comma.
    pub delimiter: Option<char>,
    /// Around a field that may contain anything (`csv.quote-character`); none if switched off.
    pub quote: Option<u8>,
    /// Makes the byte behind it a plain one (`csv.escape-character`).
    pub escape: Option<u8>,
    /// Begins a line that is no record (`csv.allow-comments`: `#`).
    pub comment: Option<u8>,
    /// An unquoted field that is null (`csv.null-literal`).
    pub null_literal: Option<String>,
    /// For records with too few fields (`csv.missing-fields`).
    pub missing_fields: OnFieldCount,
    /// For records with too many fields (`csv.extra-fields`).
    pub extra_fields: OnFieldCount,
    /// Whether bad records are left out and counted, whatever is asked for otherwise (`csv.ignore-parse-errors`).
    pub ignore_parse_errors: bool,
    /// Rounds digits beyond a DECIMAL's scale instead of refusing them (`csv.decimal-rounding`).
    pub decimal_rounding: bool,
    /// How TIMESTAMP and TIMESTAMP_LTZ are written, if not as ISO 8601 has it (`csv.timestamp-format`).
    pub timestamp_format: Option<TimestampFormat>,
    /// How BYTES are written (`csv.bytes-format`).
    pub bytes_format: BytesFormat,
    /// A quoted field that is still open so many bytes after its record's start makes the record bad
    /// (`csv.max-record-bytes`).
    pub max_record_bytes: usize,
    /// How characters are written (`csv.charset`): UTF-8 by default. A byte order mark at the beginning of a file tells
    /// more. Positions count the bytes of the text as UTF-8.
    pub charset: Charset,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            header: Header::Auto,
            ignore_first_line: false,
            delimiter: None,
            quote: Some(b'"'),
            escape: None,
            comment: None,
            null_literal: None,
            missing_fields: OnFieldCount::Fail,
            extra_fields: OnFieldCount::Fail,
            ignore_parse_errors: false,
            decimal_rounding: false,
            timestamp_format: None,
            bytes_format: BytesFormat::Base64,
            max_record_bytes: 1 << 20,
            charset: Charset::default(),
        }
    }
}

impl CsvOptions {
    /// Checks that the characters can be told apart.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the key at fault.
    pub fn check(&self) -> Result<()> {
        if matches!(self.separator(), '\n' | '\r') {
            return Err(Error::option("csv.field-delimiter", "it must be a character other than a line end"));
        }
        let special = [
            ("csv.quote-character", self.quote),
            ("csv.escape-character", self.escape.filter(|escape| Some(*escape) != self.quote)),
            ("csv.allow-comments", self.comment),
        ];
        for (i, (key, byte)) in special.iter().enumerate() {
            let Some(byte) = byte else { continue };
            if !byte.is_ascii() || matches!(byte, b'\n' | b'\r' | 0) {
                return Err(Error::option(*key, "it must be an ASCII character other than a line end"));
            }
            let delimiter = ("csv.field-delimiter", u8::try_from(self.separator()).ok());
            let mut before = special[..i].iter().chain([&delimiter]);
            if let Some((other, _)) = before.find(|(_, other)| other.as_ref() == Some(byte)) {
                return Err(Error::option(*key, format!("it is the same character as {other}")));
            }
        }
        if self.ignore_first_line && self.header == Header::Yes {
            return Err(Error::option("csv.ignore-first-line", "a first line that is a header is dropped anyway"));
        }
        if self.max_record_bytes == 0 {
            return Err(Error::option("csv.max-record-bytes", "it must be at least 1"));
        }
        Ok(())
    }

    fn separator(&self) -> char {
        self.delimiter.unwrap_or(',')
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect {
            delimiter: self.separator().into(),
            quote: self.quote,
            // An escape that is the quote itself is the doubling that RFC 4180 knows.
            escape: self.escape.filter(|escape| Some(*escape) != self.quote),
            comment: self.comment,
            max_record_bytes: self.max_record_bytes,
        }
    }

    /// The options that give positions their meaning, as keys and values, where they aren't the defaults.
    ///
    /// Whether there is a header is kept beside them, since it may be found out instead of chosen.
    pub(crate) fn position_options(&self) -> BTreeMap<String, String> {
        let byte = |byte: Option<u8>| byte.map_or_else(|| "none".to_owned(), |byte| (byte as char).to_string());
        let plain = Self::default();
        let all = [
            ("csv.field-delimiter", self.separator().to_string(), plain.separator().to_string()),
            ("csv.quote-character", byte(self.quote), byte(plain.quote)),
            ("csv.escape-character", byte(self.escape), byte(plain.escape)),
            ("csv.allow-comments", self.comment.is_some().to_string(), plain.comment.is_some().to_string()),
            ("csv.ignore-first-line", self.ignore_first_line.to_string(), plain.ignore_first_line.to_string()),
            ("csv.max-record-bytes", self.max_record_bytes.to_string(), plain.max_record_bytes.to_string()),
            ("csv.charset", self.charset.to_string(), plain.charset.to_string()),
        ];
        let changed = all.into_iter().filter(|(_, value, default)| value != default);
        changed.map(|(key, value, _)| (key.to_owned(), value)).collect()
    }
}
