//! What a sink is.
//!
//! A *sink* takes the items of a chain in order and makes them last. It is used in this way, by
//! [`copy`](crate::pipeline::copy) and by whoever writes a loop of their own:
//!
//! ```text
//! recover ──▶ write ─ write ─ … ─ commit ──▶ write ─ write ─ … ─ commit ──▶ … ──▶ close
//!    │                               │
//!    │                               └ everything written since the commit before, and the checkpoint
//!    └ the checkpoint of the last commit, if the sink itself keeps it
//! ```
//!
//! # Rules
//!
//! | rule | meaning |
//! |---|---|
//! | *recover first* | before anything else; what a killed run left unfinished is tidied up, forwards or backwards |
//! | *a commit is one fact* | it holds the new data and the checkpoint; a sink that stores the checkpoint itself stores both or neither |
//! | *written isn't committed* | what was only written may be lost with the process, and is read again then |
//! | *whole or not there* | what others can see of the output is complete, at any instant |
//! | *bounded* | a sink holds at most [`Sink::reserved_bytes`], which come out of the one budget |
//! | *drop* | dropping a sink ends its threads |
//!
//! A sink that keeps no checkpoint of its own (a folder, a topic, a pipe) returns `None` from
//! [`Sink::recover`]. Its rows are delivered at least once: those written after the last commit may
//! come again after a kill.

mod arrow_file;
mod dead_letters;
mod folder;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "parquet")]
mod parquet;
mod part;
mod target;
mod text;
mod thread;
mod writer;

use std::fmt::Debug;

use arrow::array::{Array, RecordBatch};
use futures::FutureExt;
use futures::future::BoxFuture;

pub use dead_letters::DeadLetters;
pub use folder::{DEFAULT_FOLDER_MEMORY_BYTES, DEFAULT_ROLL_BYTES, FolderFormat, FolderSink, FolderSinkBuilder};
#[cfg(feature = "kafka")]
pub use kafka::{DEFAULT_KAFKA_MEMORY_BYTES, KafkaSink, KafkaSinkBuilder, MessageFormat};
#[cfg(feature = "parquet")]
pub use parquet::{DEFAULT_PARQUET_MEMORY_BYTES, DEFAULT_ROW_GROUP_ROWS, ParquetCompression, ParquetOptions};
pub use writer::{DEFAULT_WRITER_MEMORY_BYTES, StreamFormat, WriterSink, WriterSinkBuilder};

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::source::ChainBatch;

/// Takes items in order and makes them last. See the [module](self) for the rules.
pub trait Sink: Debug + Send {
    /// Tidies up after a run that was killed, and returns the checkpoint of the last commit if the
    /// sink keeps it itself. Called once, before anything else.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::Error::Checkpoint) if what it keeps can't be read: it must never
    /// count as a fresh start.
    fn recover(&mut self) -> BoxFuture<'_, Result<Option<Checkpoint>>>;

    /// Takes an item. It may return before the rows are written; an error then comes with a later call.
    ///
    /// Items without rows are legal.
    ///
    /// # Errors
    /// [`Error::Output`](crate::Error::Output). The sink is of no further use then.
    ///
    /// # Cancel safety
    /// Dropped before it ends, the item is taken wholly or not at all, and nobody knows which: begin
    /// again at the last commit.
    fn write<'a>(&'a mut self, batch: &'a ChainBatch) -> BoxFuture<'a, Result<()>>;

    /// Makes everything written so far last, together with `checkpoint`, which stands behind it.
    ///
    /// The first commit of a job has epoch 0, the pinned positions, and no rows before it.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn commit<'a>(&'a mut self, checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>>;

    /// Ends the output: after the last commit of a job that ended or was stopped, or after an error of
    /// its sources. What was written since the last commit then reaches those who read along, and is
    /// discarded where nothing is seen before a commit.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }

    /// Says whether the sink's own commits hold the checkpoint, so that [`Self::recover`] returns it.
    fn keeps_checkpoint(&self) -> bool {
        false
    }

    /// How many bytes the sink holds at most; they come out of the budget of the one who reads.
    fn reserved_bytes(&self) -> usize {
        0
    }
}

/// Whether the names of the columns stand above the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Header {
    /// They do, also above no rows.
    #[default]
    Written,
    /// They don't.
    Omitted,
}

/// Bytes of a batch's own rows in memory; buffers that it shares with other batches count only in part.
pub(crate) fn arrow_bytes(batch: &RecordBatch) -> usize {
    let column_bytes = |column: &arrow::array::ArrayRef| {
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
    };
    batch.columns().iter().map(column_bytes).sum()
}

/// An item of source 0 that holds `batch`.
#[cfg(test)]
fn item_of(batch: RecordBatch) -> ChainBatch {
    use crate::checkpoint::{Advance, RowPositions};
    use crate::source::SourceBatch;

    let num_rows = batch.num_rows();
    let advance = Advance::new("a".into(), 0, num_rows as u64);
    let rows = RowPositions::consecutive(0, num_rows);
    ChainBatch { source: 0, item: SourceBatch::try_new(batch, rows, vec![advance]).unwrap() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::{arrow_bytes, item_of};

    #[test]
    fn bytes_of_a_slice_are_its_own() {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("id", id)]).unwrap();
        assert_eq!(arrow_bytes(&batch), 8000);
        assert_eq!(arrow_bytes(&batch.slice(10, 20)), 160);
        assert_eq!(item_of(batch).item.num_rows(), 1000);
    }
}
