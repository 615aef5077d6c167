//! Bytes to columns, without I/O.
//!
//! A text format is two things: a [`RecordCutter`], which finds where whole records end and so lets a
//! file be decoded in pieces, and a [`RecordDecoder`], which turns whole records into columns. The same
//! decoder serves files and messages, with the same options.

#[cfg(feature = "csv")]
pub(crate) mod csv;
#[cfg(test)]
#[cfg(all(feature = "csv", feature = "json"))]
mod differential;
#[cfg(feature = "json")]
pub(crate) mod json;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
mod plan;
pub(crate) mod raw;

use std::fmt::{self, Debug};
use std::ops::{ControlFlow, Range};
use std::str::FromStr;

use arrow::array::RecordBatch;

#[cfg(feature = "csv")]
pub use csv::{Charset, CsvOptions, Header, OnFieldCount};
#[cfg(feature = "json")]
pub use json::JsonOptions;
pub(crate) use plan::{DecoderPlan, TextOptions};

use crate::error::{Error, Reason, Result};

/// How a file's bytes, or a message's, are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Text with separators (RFC 4180).
    Csv,
    /// Newline-delimited JSON: one object a line.
    Json,
    /// Apache Parquet.
    Parquet,
    /// A line a record, in the one column `value STRING`.
    Raw,
}

impl Format {
    /// As in the option `format`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Raw => "raw",
        }
    }

    /// Says whether files of this format carry their own types.
    pub fn has_types(self) -> bool {
        self == Self::Parquet
    }

    /// The format of a file by its suffix, compression aside; `None` if the suffix isn't known.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a suffix that is known and not in this version.
    pub fn of_file(name: &str) -> Result<Option<Self>> {
        let Some((_, suffix)) = without_compression(name).rsplit_once('.') else { return Ok(None) };
        Ok(match suffix {
            "csv" | "tsv" => Some(Self::Csv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "parquet" => Some(Self::Parquet),
            "avro" | "arrow" => {
                return Err(Error::Unsupported(format!("{name}: {suffix} files are not in this version")));
            }
            _ => None,
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "parquet" => Ok(Self::Parquet),
            "raw" => Ok(Self::Raw),
            "avro" | "arrow" | "delta" => Err(Error::Unsupported(format!("format {text} is not in this version"))),
            _ => Err(Error::option("format", format!("'{text}' is none of csv, json, parquet, raw"))),
        }
    }
}

/// A file's name without the suffix of its compression.
pub(crate) fn without_compression(name: &str) -> &str {
    name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name)
}

/// A record that can't be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFault {
    /// Where the record starts, in bytes from the start of what was given.
    pub start: usize,
    /// Where it ends, its line end included, and the next one starts.
    pub end: usize,
    /// What kind of fault it is.
    pub reason: Reason,
    /// The column, where one is to blame.
    pub column: Option<String>,
    /// What is wrong, with the value cut and escaped.
    pub message: String,
    /// What may help.
    pub hint: Option<String>,
}

impl RecordFault {
    /// Something is wrong with the record at `start..end`.
    pub(crate) fn new(record: Range<usize>, reason: Reason, message: impl Into<String>) -> Self {
        let Range { start, end } = record;
        Self { start, end, reason, column: None, message: message.into(), hint: None }
    }

    #[must_use]
    pub(crate) fn in_column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Finds where whole records end.
pub trait RecordCutter: Debug + Send {
    /// How many bytes of `data` are whole records, as far as can be told without what follows.
    ///
    /// `data` starts at the start of a record. The next call's `data` starts where this one's whole
    /// records ended; so after a 0 it starts at the same place and is longer. What `data` holds behind
    /// the returned length was looked at already and isn't looked at again.
    ///
    /// At the end of a file everything is whole: the last record needs no line end.
    fn cut(&mut self, data: &[u8]) -> usize;
}

/// Hears of a bad record, and says whether to go on behind it.
pub type OnBadRecord<'a> = dyn FnMut(RecordFault) -> ControlFlow<()> + 'a;

/// Hears of a bad message, its index first, and says whether to go on behind it.
pub type OnBadMessage<'a> = dyn FnMut(usize, RecordFault) -> ControlFlow<()> + 'a;

/// Turns whole records into columns.
///
/// A bad record leaves nothing behind: its neighbours are as if it weren't there.
pub trait RecordDecoder: Debug + Send {
    /// Decodes the records of `chunk` that start at `at` or behind it. `chunk` holds whole records only, and one starts
    /// at `at`. Adds to `starts` where each row's record starts, and tells `on_bad` of each bad record in its turn; both
    /// count bytes from the start of `chunk`.
    ///
    /// Returns where the next record starts: the end of `chunk`, or behind the bad record at which `on_bad` stopped.
    ///
    /// # Contract
    /// A call with an `at` other than 0 goes on in the chunk of the call before, there or further behind; only for a new
    /// decoder it may be any.
    fn decode(&mut self, chunk: &[u8], at: usize, starts: &mut Vec<u64>, on_bad: &mut OnBadRecord<'_>) -> usize;

    /// Decodes a message, which is exactly one record whatever is inside it. One final line end is ignored.
    ///
    /// # Errors
    /// What is wrong with it: also if it is empty, or holds more than one record.
    fn decode_message(&mut self, message: &[u8]) -> Result<(), RecordFault>;

    /// Decodes messages from `first` on. They stand one behind the other, a line feed behind each: it ends in `values`
    /// where `ends` says, and behind the line feed the next one starts. As [`Self::decode_message`] would have it, message by message.
    ///
    /// Returns the index of the next message: how many there are, or behind the bad one at which `on_bad` stopped.
    fn decode_messages(&mut self, values: &[u8], ends: &[usize], first: usize, on_bad: &mut OnBadMessage<'_>) -> usize {
        decode_each_message(self, values, ends, first, on_bad)
    }

    /// Takes the rows out. The columns are those the decoder was made for.
    ///
    /// # Errors
    /// [`Error::Other`] if the columns don't make a batch, which is a bug.
    fn finish(&mut self) -> Result<RecordBatch>;
}

/// Decodes messages one by one.
pub(crate) fn decode_each_message(
    decoder: &mut (impl RecordDecoder + ?Sized),
    values: &[u8],
    ends: &[usize],
    first: usize,
    on_bad: &mut OnBadMessage<'_>,
) -> usize {
    each_message(values, ends, first, on_bad, |message| decoder.decode_message(message))
}

/// Gives messages from `first` on to `decode`; returns as [`RecordDecoder::decode_messages`] does.
pub(crate) fn each_message(
    values: &[u8],
    ends: &[usize],
    first: usize,
    on_bad: &mut OnBadMessage<'_>,
    mut decode: impl FnMut(&[u8]) -> Result<(), RecordFault>,
) -> usize {
    for index in first..ends.len() {
        if let Err(fault) = decode(&values[message_range(ends, index)])
            && on_bad(index, fault).is_break()
        {
            return index + 1;
        }
    }
    ends.len()
}

/// Where message `index` stands among all that end where `ends` says, without the line feed behind it.
pub(crate) fn message_range(ends: &[usize], index: usize) -> Range<usize> {
    let start = if index == 0 { 0 } else { ends[index - 1] + 1 };
    start..ends[index]
}

/// Messages as decoders take them: one behind the other, a line feed behind each, and where each ends.
#[cfg(any(test, fuzzing))]
pub(crate) fn join_messages<M: AsRef<[u8]>>(messages: &[M]) -> (Vec<u8>, Vec<usize>) {
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    for message in messages {
        values.extend_from_slice(message.as_ref());
        ends.push(values.len());
        values.push(b'\n');
    }
    (values, ends)
}

/// Decoding that ends at the first fault.
#[cfg(test)]
pub(crate) trait DecodeStrictly: RecordDecoder {
    fn decode_all(&mut self, chunk: &[u8], starts: &mut Vec<u64>) -> Result<(), RecordFault> {
        let mut first = None;
        self.decode(chunk, 0, starts, &mut |fault| {
            first = Some(fault);
            ControlFlow::Break(())
        });
        first.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
impl<D: RecordDecoder + ?Sized> DecodeStrictly for D {}

/// Cuts at line ends: for formats in which no record contains one.
#[derive(Debug, Default)]
pub(crate) struct LineCutter;

impl RecordCutter for LineCutter {
    fn cut(&mut self, data: &[u8]) -> usize {
        memchr::memrchr(b'\n', data).map_or(0, |end| end + 1)
    }
}

/// The next line of `data` from `at` on, without its end (LF or CRLF), and where the one after it starts.
pub(crate) fn line_at(data: &[u8], at: usize) -> (&[u8], usize) {
    let (end, next) = match memchr::memchr(b'\n', &data[at..]) {
        Some(len) => (at + len, at + len + 1),
        None => (data.len(), data.len()),
    };
    (without_cr(&data[at..end]), next)
}

/// A message without its one final line end.
pub(crate) fn without_line_end(message: &[u8]) -> &[u8] {
    match message {
        [line @ .., b'\n'] => without_cr(line),
        _ => message,
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    match line {
        [line @ .., b'\r'] => line,
        _ => line,
    }
}
