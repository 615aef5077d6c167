//! Dead letters: bad records with where they were and what was wrong, for whoever mends them.
//!
//! One JSON object each, of the same keys for files and for topics:
//!
//! ```json
//! {"source":"0","phase":"bounded","split":"a.csv","position":9,"column":"v","reason":"type","message":"'x7' is not a DOUBLE","raw":"2,x7"}
//! ```
//!
//! `position` is where the record starts, as in `_position`. `column` is null where no single one is to blame. `raw` is
//! the record without its line end, null where its format isn't text, or where the letter would be too long for a message; bytes that aren't UTF-8 stand in `raw_base64`
//! instead. They are safe before a commit moves positions past them. After a kill some may come again.

mod file;

use std::num::TryFromIntError;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "kafka")]
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{RecordBatch, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use self::file::LetterFile;
#[cfg(feature = "kafka")]
use super::kafka::KafkaSinkBuilder;
use super::thread::{Call, OnDrop, OutputThread};
use crate::error::{Error, Result};
use crate::source::{Phase, Reject};

/// Letters that may wait for the disk, in bytes.
const QUEUE_BYTES: usize = 1 << 20;

/// Bytes of letters that are handed over at once.
const BATCH_BYTES: usize = 128 << 10;

/// Bytes of a record that are written at once; three become four in base64.
const PIECE_BYTES: usize = 3 * (16 << 10);

/// The longest letter that becomes a message: what brokers take if nobody has told them otherwise, less what comes with it.
#[cfg(feature = "kafka")]
const MAX_MESSAGE_BYTES: usize = 990_000;

/// Where dead letters go. They are written on a thread of its own; after an error it is of no further use.
#[derive(Debug)]
pub struct DeadLetters {
    target: String,
    thread: OutputThread,
    reserved_bytes: usize,
    /// Letters longer than this go without their `raw`.
    max_letter_bytes: Option<usize>,
    /// Tells the thread that nobody waits for it any more, also while it waits for a broker.
    #[cfg(feature = "kafka")]
    abandoned: Option<Arc<AtomicBool>>,
}

/// A letter as it is written.
#[derive(Debug, Serialize)]
struct Letter<'a> {
    source: &'a str,
    phase: &'a str,
    split: &'a str,
    position: u64,
    column: Option<&'a str>,
    reason: &'a str,
    message: &'a str,
    #[serde(flatten)]
    raw: Raw<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Raw<'a> {
    Raw(Option<&'a str>),
    RawBase64(String),
}

/// Letters, or pieces of one, on their way.
#[derive(Debug)]
struct Letters {
    text: Vec<u8>,
    /// Where each ends, after where the first begins.
    ends: Vec<i32>,
}

impl Default for Letters {
    fn default() -> Self {
        Self { text: Vec::new(), ends: vec![0] }
    }
}

impl Letters {
    fn add(&mut self, letter: &Letter<'_>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.text, letter)
    }

    fn end(&mut self) -> Result<(), TryFromIntError> {
        self.ends.push(i32::try_from(self.text.len())?);
        Ok(())
    }
}

impl<'a> Letter<'a> {
    fn new(source: &'a str, phase: Phase, reject: &'a Reject, raw: Option<&'a [u8]>) -> Self {
        let raw = match raw {
            None => Raw::Raw(None),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Raw::Raw(Some(text)),
                Err(_) => Raw::RawBase64(STANDARD.encode(bytes)),
            },
        };
        Self {
            source,
            phase: phase.as_str(),
            split: reject.split.as_str(),
            position: reject.record.position,
            column: reject.record.column.as_deref(),
            reason: reject.record.reason.as_str(),
            message: &reject.record.message,
            raw,
        }
    }

    /// With nothing in its `raw`, or `raw_base64`, yet.
    fn begun(source: &'a str, phase: Phase, reject: &'a Reject, raw: &[u8]) -> Self {
        let raw = if std::str::from_utf8(raw).is_ok() { Raw::Raw(Some("")) } else { Raw::RawBase64(String::new()) };
        Self { raw, ..Self::new(source, phase, reject, None) }
    }
}

impl DeadLetters {
    /// Appends to a file, which is made if it isn't there; its folder must be.
    ///
    /// # Errors
    /// [`Error::Worker`] if the system gives no thread. The file is opened by [`Self::open`].
    pub fn to_file(path: impl AsRef<Path>) -> Result<Self> {
        let target = path.as_ref().display().to_string();
        let output = LetterFile::new(path.as_ref());
        Ok(Self {
            thread: OutputThread::start(target.clone(), output, QUEUE_BYTES, OnDrop::Drain)?,
            target,
            reserved_bytes: QUEUE_BYTES,
            max_letter_bytes: None,
            #[cfg(feature = "kafka")]
            abandoned: None,
        })
    }

    /// Sends each letter as a message. [`Self::open`] connects, and makes a topic that isn't there.
    ///
    /// # Errors
    /// As [`KafkaSinkBuilder::build`].
    #[cfg(feature = "kafka")]
    pub fn to_topic(topic: KafkaSinkBuilder) -> Result<Self> {
        let target = topic.target();
        let reserved_bytes = topic.reserved_bytes();
        let (thread, abandoned) = topic.start(Box::new(super::text::LineEncoder))?;
        Ok(Self {
            thread,
            target,
            reserved_bytes,
            max_letter_bytes: Some(MAX_MESSAGE_BYTES),
            abandoned: Some(abandoned),
        })
    }

    /// The file, or the topic's address.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// What letters that wait may take.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    /// Opens the file, or connects. Called once, before anything else.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Kafka`]; [`Error::DeadLetters`] for a file that holds something else, or that another job
    /// writes into.
    pub async fn open(&mut self) -> Result<()> {
        self.thread.call(Call::Recover).await
    }

    /// Hands over the bad records of an item.
    ///
    /// # Errors
    /// What an earlier letter met with.
    pub async fn write(&mut self, source: &str, phase: Phase, rejects: &[Reject]) -> Result<()> {
        let mut letters = Letters::default();
        for reject in rejects {
            let start = letters.text.len();
            match (self.max_letter_bytes, reject.raw.as_deref()) {
                // A long record grows as it is written, to six times as much; so that is done piece by piece.
                (None, Some(raw)) if raw.len() > PIECE_BYTES => {
                    self.write_long(&mut letters, &Letter::begun(source, phase, reject, raw), raw).await?;
                }
                (None, raw) => {
                    letters.add(&Letter::new(source, phase, reject, raw)).map_err(|e| self.failed(e))?;
                    letters.text.push(b'\n');
                }
                (Some(max), raw) => {
                    letters.add(&Letter::new(source, phase, reject, raw)).map_err(|e| self.failed(e))?;
                    if letters.text.len() - start > max {
                        letters.text.truncate(start);
                        letters.add(&Letter::new(source, phase, reject, None)).map_err(|e| self.failed(e))?;
                    }
                }
            }
            letters.end().map_err(|e| self.failed(e))?;
            if letters.text.len() >= BATCH_BYTES {
                self.send(&mut letters).await?;
            }
        }
        self.send(&mut letters).await
    }

    /// A letter whose `raw` is long. The other letters before it come first.
    async fn write_long(&mut self, letters: &mut Letters, letter: &Letter<'_>, raw: &[u8]) -> Result<()> {
        letters.add(letter).map_err(|e| self.failed(e))?;
        // What closes the text that is still empty, and the object.
        let closing = b"\"}";
        letters.text.truncate(letters.text.len() - closing.len());
        let (mut rest, is_text) = (raw, std::str::from_utf8(raw).is_ok());
        while !rest.is_empty() {
            letters.end().map_err(|e| self.failed(e))?;
            self.send(letters).await?;
            // No character is torn apart.
            let is_inside = |byte: &&u8| is_text && **byte & 0xc0 == 0x80;
            let len = PIECE_BYTES + rest.iter().skip(PIECE_BYTES).take_while(is_inside).count();
            let (piece, behind) = rest.split_at(rest.len().min(len));
            if is_text {
                let escaped = serde_json::to_string(&String::from_utf8_lossy(piece)).map_err(|e| self.failed(e))?;
                letters.text.extend_from_slice(&escaped.as_bytes()[1..escaped.len() - 1]);
            } else {
                letters.text.extend_from_slice(STANDARD.encode(piece).as_bytes());
            }
            rest = behind;
        }
        letters.text.extend_from_slice(closing);
        letters.text.push(b'\n');
        Ok(())
    }

    async fn send(&mut self, letters: &mut Letters) -> Result<()> {
        let Letters { text, ends } = std::mem::take(letters);
        let batch = self.batch(text, ends)?;
        self.thread.write(&batch).await
    }

    /// Letters that end where `ends` says.
    fn batch(&self, text: Vec<u8>, ends: Vec<i32>) -> Result<RecordBatch> {
        let letters = StringArray::try_new(OffsetBuffer::new(ends.into()), text.into(), None);
        let letters = letters.map_err(|e| self.failed(e))?;
        let schema = Schema::new(vec![Field::new("letter", DataType::Utf8, false)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(letters)]).map_err(|e| self.failed(e))
    }

    /// Returns when all letters are safe.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Output`] if they can't be.
    pub async fn commit(&mut self) -> Result<()> {
        self.thread.call(Call::Commit).await
    }

    fn failed(&self, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Output { target: self.target.clone(), source: Box::new(cause) }
    }
}

#[cfg(feature = "kafka")]
impl Drop for DeadLetters {
    fn drop(&mut self) {
        if let Some(abandoned) = &self.abandoned {
            abandoned.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{BadRecord, PositionUnit, Reason};

    fn reject(column: Option<&str>, raw: Option<&'static [u8]>) -> Reject {
        let mut record = BadRecord::new("dir/a.csv", 9, PositionUnit::Byte, Reason::Type, "'x\"7' is not a DOUBLE");
        record.column = column.map(ToOwned::to_owned);
        Reject { split: "a.csv".into(), record, is_kept: true, raw: raw.map(Into::into) }
    }

    fn letter(reject: &Reject) -> String {
        serde_json::to_string(&Letter::new("0", Phase::Bounded, reject, reject.raw.as_deref())).unwrap()
    }

    #[test]
    fn a_letter_has_the_keys_of_the_contract_in_their_order() {
        assert_eq!(
            letter(&reject(Some("v"), Some(b"2,x\"7"))),
            r#"{"source":"0","phase":"bounded","split":"a.csv","position":9,"column":"v","reason":"type","message":"'x\"7' is not a DOUBLE","raw":"2,x\"7"}"#
        );
        assert!(letter(&reject(None, None)).contains(r#""column":null,"reason":"type""#));
        assert!(letter(&reject(None, None)).ends_with(r#","raw":null}"#));
        assert!(letter(&reject(None, Some(b"\xff\x00"))).ends_with(r#","raw_base64":"/wA="}"#));
    }

    #[tokio::test]
    async fn long_records_are_written_piece_by_piece_as_they_are_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dead.ndjson");
        let texts = ["\u{1}é\"", "ééé€", "x"].map(|text| text.repeat(PIECE_BYTES / 2 + 1).into_bytes());
        let bytes: Vec<u8> = (0..=255u8).cycle().take(3 * PIECE_BYTES + 1).collect();
        let raws: Vec<Vec<u8>> = texts.into_iter().chain([bytes, b"short".to_vec()]).collect();
        let rejects: Vec<Reject> =
            raws.iter().map(|raw| Reject { raw: Some(raw.clone().into()), ..reject(None, None) }).collect();
        let mut letters = DeadLetters::to_file(&path).unwrap();
        letters.open().await.unwrap();
        letters.write("0", Phase::Bounded, &rejects).await.unwrap();
        letters.commit().await.unwrap();
        let expected: String = rejects.iter().map(|reject| letter(reject) + "\n").collect();
        assert!(std::fs::read_to_string(&path).unwrap() == expected);
    }
}
