//! Copies a chain into a sink.
//!
//! ```text
//! recover, load ─▶ resolve ─▶ commit 0: pinned positions, no rows ─▶ item, write ─▶ item, write ─▶ … ─▶ close
//!                                                                          │ now and then, at the seam, at the end
//!                                                                          ▼
//!                                       sink.commit(checkpoint) ─▶ store.save(checkpoint) ─▶ source.committed(state)
//! ```
//!
//! The order of a commit is what keeps rows from being lost: the stored checkpoint is never ahead of
//! what the sink has made last.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::error::{Error, Result};
use crate::hybrid::{HybridSource, ReadOptions};
use crate::progress::Progress;
use crate::sink::{Sink, arrow_bytes};
use crate::source::{ChainBatch, Phase};

/// Arrow bytes after which `copy` commits: the size of a file that is good to read.
const COPY_BYTES: u64 = 128 << 20;

/// Times after which `copy` commits: history can be read again, live rows are waited for.
const COPY_TIMES: CommitTimes = CommitTimes { history: Duration::from_secs(300), live: Duration::from_secs(60) };

/// Times after which `read` moves its checkpoint: what a restart would print again.
const READ_TIMES: CommitTimes = CommitTimes { history: Duration::from_secs(10), live: Duration::from_secs(10) };

/// When to commit. There is always a commit at the start, and one at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPolicy {
    /// After so many bytes of rows in memory; never for their sake without.
    pub bytes: Option<u64>,
    /// When so much time has passed since the first item after the last commit.
    pub times: Option<CommitTimes>,
    /// When a source before the last is done.
    pub at_seam: bool,
    /// After every item.
    pub every_item: bool,
}

/// Times between commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitTimes {
    /// While history is read.
    pub history: Duration,
    /// While a live source is read.
    pub live: Duration,
}

impl CommitPolicy {
    /// As `segue copy` commits: every 128 MB, 5 minutes of history, 60 s live, at the seam.
    pub fn copy() -> Self {
        Self { bytes: Some(COPY_BYTES), times: Some(COPY_TIMES), at_seam: true, every_item: false }
    }

    /// As `segue read` commits: every 10 s, at the seam.
    pub fn read() -> Self {
        Self { bytes: None, times: Some(READ_TIMES), at_seam: true, every_item: false }
    }

    /// After every item.
    pub fn every_item() -> Self {
        Self { bytes: None, times: None, at_seam: true, every_item: true }
    }

    /// Sets both times.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.times = Some(CommitTimes { history: interval, live: interval });
        self
    }

    /// Sets the bytes; `None` for never.
    #[must_use]
    pub fn with_bytes(mut self, bytes: Option<u64>) -> Self {
        self.bytes = bytes;
        self
    }
}

impl Default for CommitPolicy {
    fn default() -> Self {
        Self::copy()
    }
}

/// How to copy.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// With what means to read; the sink's share is taken off its memory.
    pub read: ReadOptions,
    /// When to commit.
    pub commit: CommitPolicy,
    /// Where to count.
    pub progress: Option<Arc<Progress>>,
}

/// A request to stop, shared by whoever asks and whoever stops. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Begins unrequested.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Asks to stop: the current batch is finished and committed.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Says whether somebody has asked.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns as soon as somebody has asked.
    ///
    /// # Cancel safety
    /// Nothing is lost if dropped.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + use<> {
        let sender = Arc::clone(&self.0);
        async move {
            // The sender lives as long as this, so the only way to end is the request.
            let _ = sender.subscribe().wait_for(|requested| *requested).await;
        }
    }
}

/// What a run has done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Rows of each source, in chain order, of this run.
    pub rows: Vec<u64>,
    /// Bytes of these rows in memory.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// Whether it was stopped before its end, or its limit, was reached.
    pub stopped: bool,
    /// Commits of this run, the first one included if the job was new.
    pub commits: u64,
    /// The last checkpoint that was committed.
    pub checkpoint: Checkpoint,
}

/// Copies `hybrid` into `sink` until its end, its limit, or `stop`.
///
/// It goes on from what the sink or `store` keeps; the sink's own checkpoint counts if both have one.
///
/// # Contract
/// Called within a Tokio runtime with its timer enabled.
///
/// # Errors
/// What the sources, the sink or the store say. What was committed before stays; what came after the
/// last commit isn't committed, but reaches those who read along, such as a pipe. [`Error::Incompatible`]
/// if the store's checkpoint is ahead of the sink's own.
pub async fn copy(
    hybrid: &HybridSource,
    sink: &mut dyn Sink,
    store: Option<&dyn CheckpointStore>,
    options: CopyOptions,
    stop: &Stop,
) -> Result<Summary> {
    let began = Instant::now();
    let mut run = Run::start(hybrid, sink, store, &options).await?;
    let outcome = run.read(options.read, stop).await;
    // Rows before an error are good, and a reader of a pipe is to see them before the error.
    let closed = run.sink.close().await;
    let stopped = match (outcome, closed) {
        (Ok(stopped), Ok(())) => stopped,
        (Ok(_), Err(e)) => return Err(e),
        (Err(e), Ok(())) => return Err(e),
        (Err(e), Err(second)) => {
            tracing::debug!(error = %second, "closing the sink after an error failed as well");
            return Err(e);
        }
    };
    Ok(Summary {
        rows: run.rows,
        bytes: run.bytes,
        duration: began.elapsed(),
        stopped,
        commits: run.commits,
        checkpoint: run.committed,
    })
}

/// A running copy.
struct Run<'a> {
    hybrid: &'a HybridSource,
    sink: &'a mut dyn Sink,
    store: Option<&'a dyn CheckpointStore>,
    policy: CommitPolicy,
    progress: Option<Arc<Progress>>,
    /// The last checkpoint that was committed.
    committed: Checkpoint,
    commits: u64,
    rows: Vec<u64>,
    bytes: u64,
    pending: Pending,
}

/// What came since the last commit.
#[derive(Debug, Default)]
struct Pending {
    bytes: u64,
    /// When the commit is due, once there is something to commit.
    due: Option<Due>,
    sources: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    At(tokio::time::Instant),
    /// Only for another reason than time.
    Never,
}

impl<'a> Run<'a> {
    /// Finds out where the job stands, pins what has to be, and makes that last before a row is read.
    async fn start(
        hybrid: &'a HybridSource,
        sink: &'a mut dyn Sink,
        store: Option<&'a dyn CheckpointStore>,
        options: &CopyOptions,
    ) -> Result<Self> {
        let of_sink = sink.recover().await?;
        let of_store = match store {
            Some(store) => store.load().await?,
            None => None,
        };
        let mirror_epoch = of_store.as_ref().map(|checkpoint| checkpoint.epoch);
        let stored = newest(of_sink, of_store)?;
        let resolved = hybrid.resolve(stored.clone()).await?;
        if let Some(progress) = &options.progress {
            progress.begin(&resolved.sources);
        }
        let mut run = Self {
            hybrid,
            sink,
            store,
            policy: options.commit,
            progress: options.progress.clone(),
            commits: 0,
            rows: vec![0; resolved.sources.len()],
            bytes: 0,
            pending: Pending::default(),
            committed: resolved,
        };
        match stored {
            None => run.commit(run.committed.clone()).await?,
            // New sources, or a new stop, are pinned as well.
            Some(stored) if stored != run.committed => run.commit_next(run.committed.clone()).await?,
            Some(stored) => {
                if let Some(store) = store.filter(|_| mirror_epoch != Some(stored.epoch)) {
                    store.save(&stored).await?;
                }
            }
        }
        Ok(run)
    }

    /// Reads and writes until the end or the stop; says whether it was the stop.
    async fn read(&mut self, mut options: ReadOptions, stop: &Stop) -> Result<bool> {
        options.memory_bytes = options.memory_bytes.saturating_sub(self.sink.reserved_bytes());
        let mut stream = self.hybrid.open(self.committed.clone(), options)?;
        let requested = stop.requested();
        tokio::pin!(requested);
        let stopped = loop {
            // Taking an item is safe to cancel: what was not returned stays in the stream.
            tokio::select! {
                biased;
                () = &mut requested => break true,
                () = self.pending.is_due() => self.commit_next(stream.checkpoint().clone()).await?,
                item = stream.next() => {
                    let Some(item) = item else { break false };
                    let item = item?;
                    self.sink.write(&item).await?;
                    let state = stream.checkpoint();
                    self.count(&item, state);
                    let source_done = state.sources.get(item.source).is_some_and(|source| source.is_done());
                    if self.is_commit_due(&item, source_done) {
                        self.commit_next(stream.checkpoint().clone()).await?;
                    }
                }
            }
        };
        if self.pending.due.is_some() {
            self.commit_next(stream.checkpoint().clone()).await?;
        }
        Ok(stopped)
    }

    fn count(&mut self, item: &ChainBatch, state: &Checkpoint) {
        let num_rows = item.item.num_rows() as u64;
        let num_bytes = if num_rows == 0 { 0 } else { arrow_bytes(item.item.batch()) as u64 };
        if let Some(rows) = self.rows.get_mut(item.source) {
            *rows += num_rows;
        }
        self.bytes += num_bytes;
        self.pending.bytes += num_bytes;
        self.pending.sources.insert(item.source);
        if self.pending.due.is_none() {
            let after = self.policy.times.map(|times| match self.hybrid.phase(item.source) {
                Phase::Bounded => times.history,
                Phase::Unbounded => times.live,
            });
            self.pending.due = Some(match after {
                Some(after) => Due::At(tokio::time::Instant::now() + after),
                None => Due::Never,
            });
        }
        if let (Some(progress), Some(source)) = (&self.progress, state.sources.get(item.source)) {
            progress.advance(item.source, source, num_rows, item.item.advances().last().map(|advance| &advance.split));
        }
    }

    fn is_commit_due(&self, item: &ChainBatch, source_done: bool) -> bool {
        let is_seam = source_done && item.source + 1 < self.rows.len();
        self.policy.every_item
            || (self.policy.at_seam && is_seam)
            || self.policy.bytes.is_some_and(|bytes| self.pending.bytes >= bytes)
    }

    async fn commit_next(&mut self, mut checkpoint: Checkpoint) -> Result<()> {
        checkpoint.epoch = self.committed.epoch + 1;
        self.commit(checkpoint).await
    }

    async fn commit(&mut self, checkpoint: Checkpoint) -> Result<()> {
        self.sink.commit(&checkpoint).await?;
        if let Some(store) = self.store {
            store.save(&checkpoint).await?;
        }
        for index in std::mem::take(&mut self.pending).sources {
            if let (Some(source), Some(state)) = (self.hybrid.sources().get(index), checkpoint.sources.get(index)) {
                source.committed(state);
            }
        }
        self.commits += 1;
        if let Some(progress) = &self.progress {
            progress.committed();
        }
        self.committed = checkpoint;
        Ok(())
    }
}

impl Pending {
    /// Returns when the time for a commit has come; never if there is nothing to commit.
    async fn is_due(&self) {
        match self.due {
            Some(Due::At(at)) => tokio::time::sleep_until(at).await,
            Some(Due::Never) | None => std::future::pending().await,
        }
    }
}

/// Where to go on: at the sink's own checkpoint if it keeps one, else at the stored one.
fn newest(of_sink: Option<Checkpoint>, of_store: Option<Checkpoint>) -> Result<Option<Checkpoint>> {
    match (of_sink, of_store) {
        // The store is written after the sink, so it can only be behind; ahead means another sink's.
        (Some(sink), Some(store)) if store.epoch > sink.epoch => Err(Error::Incompatible {
            what: "the last commit".into(),
            stored: format!("{} in the checkpoint", store.epoch),
            now: format!("{} in the sink", sink.epoch),
        }),
        (Some(sink), _) => Ok(Some(sink)),
        (None, store) => Ok(store),
    }
}
