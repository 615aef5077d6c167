//! What can go wrong, told so that somebody can act on it.

use std::fmt;

/// A result with segue's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause behind an [`Error`], whatever library it came from.
pub type Cause = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What went wrong, and where.
///
/// A variant exists because somebody would act differently on it. The text of an error is one line
/// without its cause; the cause is reached through [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path, folder or URL that isn't there, or a pattern that matches nothing.
    #[error("{what}")]
    NotFound {
        /// What was looked for, in words.
        what: String,
    },

    /// The operating system refused an operation on a local file.
    #[error("{path}: {action}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What was being done, such as `cannot create`.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },

    /// An object store refused an operation.
    #[error("{url}: cannot {action}")]
    Store {
        /// The object, as the user would name it.
        url: String,
        /// What was being done, such as `read`.
        action: &'static str,
        /// What the store said.
        source: object_store::Error,
    },

    /// A Kafka cluster that can't be reached, or refuses something.
    #[error("{place}: cannot {action}")]
    Kafka {
        /// The brokers, topic or partition.
        place: String,
        /// What was being done, such as `look offsets up`.
        action: &'static str,
        /// What the client or the broker said.
        #[source]
        source: Cause,
    },

    /// An offset that a partition's log doesn't have: retention or compaction took it, or it was never there.
    #[error("{split}: offset {wanted} is wanted, and the log has {} up to {}", available.start, available.end)]
    OffsetOutOfRange {
        /// The partition, as `topic/partition`.
        split: String,
        /// The offset wanted.
        wanted: u64,
        /// From the log's first offset, inclusive, to its end, exclusive.
        available: std::ops::Range<u64>,
    },

    /// A topic that was deleted and made again since positions of it were stored: they mean nothing in the new one.
    #[error("{split}: the topic was deleted and made again: its id was {stored}, and is {now}")]
    TopicRecreated {
        /// The partition, as `topic/partition`.
        split: String,
        /// The id of the topic that was read.
        stored: String,
        /// The id of the topic that is there now.
        now: String,
    },

    /// A log that lost what was read of it, and has other messages in its place: an unclean leader election.
    #[error(
        "{split}: the log was cut before offset {position}, up to which it was read: what stands there now is something else"
    )]
    LogTruncated {
        /// The partition, as `topic/partition`.
        split: String,
        /// The position, up to which the lost messages were read.
        position: u64,
        /// What the client found out.
        #[source]
        source: Cause,
    },

    /// One record that isn't what the schema or the format wants.
    #[error("{0}")]
    BadRecord(Box<BadRecord>),

    /// A file that can't be read as what it claims to be: no Parquet, a truncated gzip.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
        /// What the format's library said.
        #[source]
        source: Option<Cause>,
    },

    /// A file that was listed and not yet finished is no longer what it was.
    #[error("{path}: the file has changed since it was listed: {difference}")]
    Changed {
        /// The file.
        path: String,
        /// What differs, with both values.
        difference: String,
    },

    /// Two types of one column that no type can hold.
    #[error("column {column}: {left} ({left_of}) and {right} ({right_of}) can't be unified")]
    SchemaConflict {
        /// The column.
        column: String,
        /// The one type.
        left: String,
        /// Where it comes from.
        left_of: String,
        /// The other type.
        right: String,
        /// Where it comes from.
        right_of: String,
    },

    /// A schema that can't be read, or doesn't fit a source.
    #[error("{0}")]
    Schema(String),

    /// Sources without a record, of which no schema can be inferred.
    #[error("{path}: there are no records to infer a schema from; give one with --schema")]
    NoRecords {
        /// The source.
        path: String,
    },

    /// An option key that nobody knows.
    #[error("unknown option '{key}'")]
    UnknownOption {
        /// The key as given.
        key: String,
        /// The nearest known key, if one is near.
        nearest: Option<String>,
    },

    /// An option whose value, or whose place, is wrong.
    #[error("option '{key}': {reason}")]
    InvalidOption {
        /// The key as given.
        key: String,
        /// Why it can't stand.
        reason: String,
    },

    /// A chain of sources that can't be: no source, two of one name, an endless one before the last.
    #[error("{0}")]
    Chain(String),

    /// Progress that doesn't continue where the checkpoint stands: a gap or an overlap.
    #[error("split {split}: {} at position {position}: an advance starts at {from}", if from > position { "gap" } else { "overlap" })]
    NotContinuous {
        /// The split.
        split: String,
        /// Where the checkpoint stands.
        position: u64,
        /// Where the advance starts.
        from: u64,
    },

    /// Progress of a split that can't move: unknown, done, or out of its turn.
    #[error("split {split}: {reason}")]
    UnexpectedSplit {
        /// The split.
        split: String,
        /// Why it can't move now.
        reason: String,
    },

    /// A stored checkpoint that can't be read: truncated, newer than this version, without its list.
    #[error("checkpoint {path}: {reason}")]
    Checkpoint {
        /// The file or object.
        path: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A checkpoint that belongs to another job, or to the same job with options that give
    /// positions another meaning.
    #[error("the checkpoint doesn't fit: {what} was {stored}, now {now}")]
    Incompatible {
        /// What differs: `source 0: format`.
        what: String,
        /// As stored.
        stored: String,
        /// As given now.
        now: String,
    },

    /// Another copy of this job is running.
    #[error("{path}: another copy of this job is running")]
    Locked {
        /// The lock, or what it stands for.
        path: String,
    },

    /// A target that holds something that isn't this job's.
    #[error("{target}: {reason}")]
    Target {
        /// The folder or URL.
        target: String,
        /// Why it can't be written into.
        reason: String,
    },

    /// A file that dead letters can't go into.
    #[error("{path}: {reason}")]
    DeadLetters {
        /// The file.
        path: String,
        /// Why: it holds something else, or another job writes into it.
        reason: &'static str,
    },

    /// Something too large for the memory that was allowed.
    #[error("{place}: needs {needed_bytes} bytes at once, more than the {allowed_bytes} bytes allowed")]
    Memory {
        /// What needs it: file and row group, or record.
        place: String,
        /// How much.
        needed_bytes: u64,
        /// How much there is.
        allowed_bytes: u64,
    },

    /// More bad records than were allowed.
    #[error("{what}")]
    TooManyBadRecords {
        /// How many there are, and how many may be: `3 bad records, and 2 are allowed`.
        what: String,
        /// The one that was too many; none if a share was judged at the end, or at the first 1000 records.
        #[source]
        record: Option<Box<Error>>,
    },

    /// A decoding job or a thread ended in a panic: a bug, told instead of hidden.
    #[error("a worker failed: {message}")]
    Worker {
        /// The message of the panic.
        message: String,
    },

    /// Output that can't be written (a full disk, a closed pipe).
    #[error("{target}: cannot write")]
    Output {
        /// Where to.
        target: String,
        /// Why.
        #[source]
        source: Cause,
    },

    /// Something that is planned, or that this build leaves out.
    #[error("{0}")]
    Unsupported(String),

    /// An error of a user's own source or sink.
    #[error("{context}")]
    Other {
        /// What was being done.
        context: String,
        /// The error.
        #[source]
        source: Cause,
    },
}

/// The place and the reason of one bad record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadRecord {
    /// The file, or `topic/partition`.
    pub split: String,
    /// Where the record starts.
    pub position: u64,
    /// What the position counts.
    pub unit: PositionUnit,
    /// The line where the record starts, from 1, header counted; only for text, and only once looked up.
    pub line: Option<u64>,
    /// What kind of fault it is.
    pub reason: Reason,
    /// The column, where one is to blame.
    pub column: Option<String>,
    /// What is wrong, with the value cut and escaped.
    pub message: String,
    /// What may help.
    pub hint: Option<String>,
}

/// What a position counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PositionUnit {
    /// Bytes from the start of the file's text: decompressed, and as UTF-8.
    Byte,
    /// Rows from the start of the file.
    Row,
    /// Offsets of a topic partition.
    Offset,
    /// Sequence numbers of generated or scripted rows.
    Sequence,
}

impl BadRecord {
    /// Describes a bad record of `split` that starts at `position`.
    pub fn new(
        split: impl Into<String>,
        position: u64,
        unit: PositionUnit,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        let (split, message) = (split.into(), message.into());
        Self { split, position, unit, line: None, reason, column: None, message, hint: None }
    }
}

/// Kinds of bad records, by which they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A value that is none of its column's type.
    Type,
    /// A value beyond what its column's type holds.
    Range,
    /// A number with more digits than its column's DECIMAL holds.
    Digits,
    /// A null, or a missing value, where none may be.
    Null,
    /// Another number of fields than the header or the schema has.
    Fields,
    /// Quotes that RFC 4180 doesn't know.
    Quotes,
    /// Bytes that aren't text in the source's character set.
    Encoding,
    /// What isn't one JSON object.
    Syntax,
    /// A message that isn't exactly one record.
    Message,
}

impl Reason {
    /// As it stands in dead letters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Range => "range",
            Self::Digits => "digits",
            Self::Null => "null",
            Self::Fields => "fields",
            Self::Quotes => "quotes",
            Self::Encoding => "encoding",
            Self::Syntax => "syntax",
            Self::Message => "message",
        }
    }

    /// What such a record has, for a summary: `3 with a value of another type`.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Type => "a value that is none of its column's type",
            Self::Range => "a value out of range",
            Self::Digits => "too many digits",
            Self::Null => "a null where none may be",
            Self::Fields => "another number of fields",
            Self::Quotes => "broken quotes",
            Self::Encoding => "bytes that aren't text",
            Self::Syntax => "broken JSON",
            Self::Message => "not exactly one record in a message",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.position;
        write!(f, "{}", self.split)?;
        match (self.unit, self.line) {
            (PositionUnit::Byte, Some(line)) => write!(f, " line {line} (byte {position})")?,
            (PositionUnit::Byte, None) => write!(f, " byte {position}")?,
            (PositionUnit::Row, _) => write!(f, " row {position}")?,
            (PositionUnit::Offset, _) => write!(f, " offset {position}")?,
            (PositionUnit::Sequence, _) => write!(f, " sequence {position}")?,
        }
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Error {
    /// Says whether the same call may succeed later, though nobody changed anything: the network
    /// broke, a store was busy.
    pub fn is_retryable(&self) -> bool {
        use std::io::ErrorKind;
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::ConnectionReset
            ),
            Self::Store { source, .. } => matches!(source, object_store::Error::Generic { .. }),
            _ => false,
        }
    }

    /// Says whether trying again can't help, since what was asked for is wrong: options, schema,
    /// chain, a checkpoint of another job. The command line ends with 2 then, otherwise with 1.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::SchemaConflict { .. }
                | Self::Schema(_)
                | Self::NoRecords { .. }
                | Self::UnknownOption { .. }
                | Self::InvalidOption { .. }
                | Self::Chain(_)
                | Self::Incompatible { .. }
                | Self::Locked { .. }
                | Self::Target { .. }
                | Self::DeadLetters { .. }
                | Self::Unsupported(_)
        )
    }

    /// Returns one sentence that may help, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::BadRecord(record) => record.hint.clone(),
            Self::UnknownOption { nearest: Some(key), .. } => Some(format!("did you mean '{key}'?")),
            Self::UnknownOption { nearest: None, .. } => Some("`segue options` lists every key".into()),
            Self::OffsetOutOfRange { wanted, available, .. } if *wanted < available.start => {
                Some("retention took them; -o scan.on-data-loss=earliest goes on where the log begins, and `segue plan` shows every partition".into())
            }
            Self::OffsetOutOfRange { .. } => {
                Some("the log ends before what was read of it, or asked for; if it is another log now, begin a new job with another --checkpoint".into())
            }
            Self::TopicRecreated { .. } | Self::LogTruncated { .. } => {
                Some("its messages are others now, and what was read can't be taken back; begin a new job with another --checkpoint".into())
            }
            Self::Changed { .. } => {
                Some("a job reads the files that it listed at its start; put the file back, or begin a new job without the checkpoint".into())
            }
            Self::Incompatible { what, .. } if what == "the job" => {
                Some("a job is named by its first source and its sink, as they are written, or by --job-id".into())
            }
            Self::TooManyBadRecords { .. } => {
                Some("what came before stays; with --checkpoint the same command goes on under a higher --max-errors".into())
            }
            Self::Memory { .. } => Some("allow more with --memory".into()),
            Self::DeadLetters { .. } => Some("give a file of this job's own, one that isn't there yet or that has dead letters".into()),
            Self::Target { .. } => Some("give an empty folder, or one that this job has written before".into()),
            Self::Locked { .. } => Some("wait for it, or stop it; a left-over lock file blocks nobody".into()),
            _ => None,
        }
    }

    pub(crate) fn io(path: impl fmt::Display, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_string(), action, source }
    }

    pub(crate) fn option(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidOption { key: key.into(), reason: reason.into() }
    }
}

/// A character as it is, as long as it is one that can be seen.
fn shown(c: char) -> impl Iterator<Item = char> {
    let escaped = (!matches!(c, '"' | '\'' | '\\')).then(|| c.escape_debug());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

/// Makes a value fit for an error message: cut to 40 characters, control characters escaped, in quotes.
pub(crate) fn quoted(value: &[u8]) -> String {
    const MAX_CHARS: usize = 40;
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * MAX_CHARS)]);
    let mut shown: String = text.chars().take(MAX_CHARS).flat_map(shown).collect();
    if text.chars().count() > MAX_CHARS || value.len() > 4 * MAX_CHARS {
        shown.push('…');
    }
    format!("'{shown}'")
}
