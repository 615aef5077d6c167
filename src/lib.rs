//! **segue** reads history from files, then follows Kafka, as one ordered stream of Arrow `RecordBatch`es under
//! one schema.
//!
//! Everyone who bootstraps a table or a pipeline has years of CSV, JSON or Parquet in a lake and a topic with the
//! last days, and wants them read once, in order, resumable at any row, and joined without a gap or a repeat.
//!
//! ```text
//!  files ─▶ fetch ─▶ cut ─┐
//!                         ├─▶ decode in parallel ─▶ one ordered stream ─▶ your code, a folder, a topic, stdout
//!  topic ─▶ micro-batches ┘                            │
//!                                                      └─▶ checkpoint: every position, after every item
//! ```
//!
//! # Quick start
//!
//! ```
//! use segue::{FileSource, HybridSource, ReadOptions};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("bids.csv"), "id,price\n1,2.5\n2,7.25\n")?;
//! # let path = folder.path().join("*.csv").display().to_string();
//! let bids = FileSource::builder(path).build().await?; // lists the files, infers header and schema
//! let chain = HybridSource::builder().source(bids).build()?; // more sources may follow
//!
//! let checkpoint = chain.resolve(None).await?; // pins what there is to read; or Some(stored)
//! let mut stream = chain.open(checkpoint, ReadOptions::default())?;
//! let mut rows = 0;
//! while let Some(item) = stream.next().await {
//!     rows += item?.item.num_rows(); // an Arrow RecordBatch, and where each row stands
//!     let _where_we_are = stream.checkpoint(); // store it with what you made of the rows
//! }
//! assert_eq!(rows, 2);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(run())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! * *Order*: sources in their order, files in natural order, rows in file order, messages in offset order within
//!   their partition, whatever the number of threads. A replay of history is identical.
//! * *The seam*: where a topic begins is a number in the checkpoint before the first row of history leaves; an
//!   offset that is gone is an error, never a silent jump.
//! * *Exact positions*: a position is the next thing to read. [`Checkpoint::apply`] refuses an advance that
//!   skips or repeats anything, so a gap is an error and never a silence.
//! * *Resume anywhere*: a stream can be cut after any row, and reopened there, also inside a file.
//! * *Bounded*: one budget in bytes covers what is fetched, decoded and waiting. Dropping the stream ends its
//!   threads.
//! * *Nothing lost*: a bad record, a changed file, a damaged checkpoint is an error with its place.
//!
//! # Features
//!
//! | feature | default | what |
//! |---|---|---|
//! | `csv` | yes | text with separators |
//! | `json` | yes | newline-delimited JSON |
//! | `parquet` | yes | Parquet files, read and written |
//! | `kafka` | yes | topics, read and written, by librdkafka |
//! | `cloud` | with `cli` | `s3://`, `gs://`, `az://`, `http(s)://` |
//! | `cli` | yes | the program `segue` |
//! | `testing` | no | the [conformance suite](source#rules) for sources of your own |
//!
//! Without any of them there are still the traits, checkpoints, schemas, raw text files, [`MemorySource`] and
//! [`DatagenSource`].

#![cfg_attr(
    not(all(feature = "csv", feature = "json", feature = "parquet")),
    allow(dead_code, unused_imports, reason = "what formats share isn't used up when some are left out")
)]

pub mod budget;
pub mod checkpoint;
pub mod error;
pub mod file;
pub mod format;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod hybrid;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod options;
pub mod ordered;
pub mod pipeline;
pub mod progress;
pub mod schema;
pub mod sink;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;

pub use checkpoint::{Checkpoint, CheckpointStore, FileCheckpointStore};
pub use error::{Error, Result};
pub use file::FileSource;
pub use format::Format;
pub use hybrid::{HybridSource, HybridStream, ReadOptions};
#[cfg(feature = "kafka")]
pub use kafka::KafkaSource;
pub use schema::Provenance;
pub use source::{Boundedness, ChainBatch, DatagenSource, MemorySource, Source, SourceBatch};

#[cfg(all(doctest, feature = "csv", feature = "json"))]
#[doc = include_str!("../README.md")]
struct Readme;
