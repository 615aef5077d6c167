//! The stream of a chain: one source after the other, every advance applied.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use super::tolerance::Tolerance;
use super::{HybridSource, ReadOptions};
use crate::budget::Budget;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::ordered::DecodePool;
use crate::progress::{Moved, Progress};
use crate::source::{ChainBatch, ReadRequest, Source, SourceBatch, SourceStream};

/// The next source's prefetch has an eighth of the memory, and at most this.
const AHEAD_BYTES: usize = 32 << 20;

/// Reads a chain. After an error or the end nothing more comes.
///
/// It applies every advance to its checkpoint before it returns an item, so an item that skips
/// something or repeats something is an error and never reaches the caller.
pub struct HybridStream {
    sources: Vec<Arc<dyn Source>>,
    requests: Vec<ReadRequest>,
    checkpoint: Checkpoint,
    memory_bytes: usize,
    rows_left: Option<u64>,
    tolerance: Tolerance,
    progress: Option<Arc<Progress>>,
    /// What comes behind the last item.
    failure: Option<Error>,
    phase: Reading,
}

enum Reading {
    /// Source `index` is read; the one after it may be open already.
    Source {
        index: usize,
        stream: SourceStream,
        ahead: Option<Ahead>,
    },
    Done,
}

/// The next source that isn't done, opened before its turn.
struct Ahead {
    index: usize,
    stream: Result<SourceStream>,
}

impl fmt::Debug for HybridStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.phase {
            Reading::Source { index, .. } => write!(f, "HybridStream(reading source {index})"),
            Reading::Done => f.write_str("HybridStream(done)"),
        }
    }
}

impl HybridStream {
    pub(super) fn try_new(
        hybrid: &HybridSource,
        checkpoint: Checkpoint,
        columns: SchemaRef,
        options: ReadOptions,
    ) -> Result<Self> {
        let sources = hybrid.sources().to_vec();
        if checkpoint.sources.len() != sources.len() {
            return Err(Error::Chain(format!(
                "the checkpoint has {} sources, the chain {}",
                checkpoint.sources.len(),
                sources.len()
            )));
        }
        let pool = DecodePool::new(options.num_threads)?;
        let tolerance = Tolerance::new(options.max_errors, &checkpoint);
        let requests = (0..sources.len())
            .map(|index| ReadRequest {
                columns: Arc::clone(&columns),
                provenance: hybrid.provenance().to_vec(),
                source_name: sources[index].name().into(),
                phase: hybrid.phase(index),
                bad_records: options.bad_records,
                batch_rows: options.batch_rows.max(1),
                budget: Budget::new(ahead_bytes(options.memory_bytes)).with_ceiling(options.memory_bytes),
                pool: pool.clone(),
                gauges: options.progress.as_ref().and_then(|progress| progress.gauges(index)),
            })
            .collect();
        if let Some(progress) = &options.progress {
            progress.begin(&checkpoint.sources);
        }
        let mut stream = Self {
            sources,
            requests,
            checkpoint,
            memory_bytes: options.memory_bytes,
            rows_left: options.limit,
            tolerance,
            progress: options.progress,
            failure: None,
            phase: Reading::Done,
        };
        stream.failure = stream.tolerance.begin();
        if options.limit != Some(0) && stream.failure.is_none() {
            stream.switch_to(None)?;
        }
        Ok(stream)
    }

    /// The next item, `None` at the end.
    ///
    /// # Errors
    /// What a source says; [`Error::NotContinuous`] if a source broke its rules.
    ///
    /// # Cancel safety
    /// Nothing is lost if dropped.
    pub async fn next(&mut self) -> Option<Result<ChainBatch>> {
        StreamExt::next(self).await
    }

    /// The state after the last item returned: store it with what was made of the items.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The rows alone, for those who keep no checkpoint.
    pub fn into_batches(self) -> BoxStream<'static, Result<RecordBatch>> {
        self.filter_map(|item| async {
            match item {
                Ok(item) if item.item.num_rows() == 0 => None,
                Ok(item) => Some(Ok(item.item.into_batch())),
                Err(e) => Some(Err(e)),
            }
        })
        .boxed()
    }

    fn open(&self, index: usize) -> Result<SourceStream> {
        self.sources[index].open(&self.checkpoint.sources[index], self.requests[index].clone())
    }

    /// The first source from `from` on that has something left to read.
    fn next_open(&self, from: usize) -> Option<usize> {
        (from..self.sources.len()).find(|&index| !self.checkpoint.sources[index].is_done())
    }

    /// Begins the first source that isn't done, which may be open already, and opens the one after it.
    fn switch_to(&mut self, ahead: Option<Ahead>) -> Result<()> {
        self.phase = Reading::Done;
        let Some(index) = self.next_open(0) else {
            // The end of the job, where a share is judged; a limit is none.
            self.failure = self.tolerance.end();
            return Ok(());
        };
        let following = self.next_open(index + 1);
        let reserved = if following.is_some() { ahead_bytes(self.memory_bytes) } else { 0 };
        // Before it is opened: how it reads may follow from what it may hold.
        self.requests[index].budget.resize(self.memory_bytes - reserved);
        let stream = match ahead {
            Some(ahead) if ahead.index == index => ahead.stream?,
            _ => self.open(index)?,
        };
        let ahead = match following.map(|index| (index, self.open(index))) {
            // What was asked for wrongly is told before its turn comes: history may take hours.
            Some((_, Err(e))) if e.is_usage() => return Err(e),
            following => following.map(|(index, stream)| Ahead { index, stream }),
        };
        self.phase = Reading::Source { index, stream, ahead };
        Ok(())
    }

    /// Applies an item's progress, cut at the limit.
    fn take(&mut self, index: usize, item: SourceBatch) -> Result<ChainBatch> {
        let item = match self.rows_left {
            Some(left) if item.num_rows() as u64 > left => item.split_at(left as usize).0,
            _ => item,
        };
        let (item, failure) = self.tolerance.take(item);
        let num_rows = item.num_rows() as u64;
        let state = &mut self.checkpoint.sources[index];
        state.take_up(item.changed());
        state.apply(item.advances(), num_rows)?;
        state.rejected += item.rejects().len() as u64;
        if let Some(progress) = &self.progress {
            let moved = Moved { rows: item.rows(), advances: item.advances(), changed: item.changed() };
            progress.advance(index, state, &moved);
            progress.reject(index, item.rejects().iter().map(|reject| (&reject.record, reject.is_kept)));
        }
        if failure.is_some() {
            self.phase = Reading::Done;
            self.failure = failure;
        }
        if let Some(left) = &mut self.rows_left {
            *left -= num_rows;
            if *left == 0 {
                self.phase = Reading::Done;
            }
        }
        Ok(ChainBatch { source: index, item })
    }
}

fn ahead_bytes(memory_bytes: usize) -> usize {
    (memory_bytes / 8).min(AHEAD_BYTES)
}

impl Stream for HybridStream {
    type Item = Result<ChainBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Reading::Source { index, stream, .. } = &mut this.phase else {
                return Poll::Ready(this.failure.take().map(Err));
            };
            let index = *index;
            let step = match ready!(stream.poll_next_unpin(cx)) {
                Some(Ok(item)) => this.take(index, item).map(Some),
                Some(Err(e)) => Err(e),
                None if !this.checkpoint.sources[index].is_done() => Err(Error::Other {
                    context: format!("source {}", this.sources[index].name()),
                    source: "its stream ended before its splits were done".into(),
                }),
                None => match std::mem::replace(&mut this.phase, Reading::Done) {
                    Reading::Source { ahead, .. } => this.switch_to(ahead).map(|()| None),
                    Reading::Done => Ok(None),
                },
            };
            match step {
                Ok(None) => {}
                Ok(Some(item)) => return Poll::Ready(Some(Ok(item))),
                Err(e) => {
                    this.phase = Reading::Done;
                    return Poll::Ready(Some(Err(e)));
                }
            }
        }
    }
}
