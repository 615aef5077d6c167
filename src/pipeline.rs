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
use crate::progress::{Progress, RejectCounts};
use crate::sink::{DeadLetters, Sink, arrow_bytes};
use crate::source::{BadRecords, ChainBatch, Phase};

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
#[derive(Debug, Default)]
pub struct CopyOptions {
    /// With what means to read; the share of the sink and of dead letters is taken off its memory.
    pub read: ReadOptions,
    /// Where bad records go. With it they are kept, whatever `read` says.
    pub dead_letters: Option<DeadLetters>,
    /// When to commit.
    pub commit: CommitPolicy,
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
    /// Bad records that this run has left out.
    pub rejected: RejectCounts,
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
/// What the sources, the sink or the store say. After an error of a source what came before it is committed.
/// After one of the sink or the store only what was committed before stays. [`Error::Incompatible`]
/// if the store's checkpoint is ahead of the sink's own.
pub async fn copy(
    hybrid: &HybridSource,
    sink: &mut dyn Sink,
    store: Option<&dyn CheckpointStore>,
    mut options: CopyOptions,
    stop: &Stop,
) -> Result<Summary> {
    let began = Instant::now();
    let mut run = match Run::start(hybrid, sink, store, &mut options, stop).await? {
        Start::Ready(run) => *run,
        Start::Stopped(checkpoint) => {
            return Ok(Summary {
                rows: vec![0; hybrid.sources().len()],
                bytes: 0,
                rejected: RejectCounts::default(),
                duration: began.elapsed(),
                stopped: true,
                commits: 0,
                checkpoint,
            });
        }
    };
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
        rejected: run.rejected,
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
    dead_letters: Option<DeadLetters>,
    /// The last checkpoint that was committed.
    committed: Checkpoint,
    commits: u64,
    rows: Vec<u64>,
    bytes: u64,
    rejected: RejectCounts,
    pending: Pending,
}

/// A copy that can begin, or one that was stopped before it did.
enum Start<'a> {
    Ready(Box<Run<'a>>),
    Stopped(Checkpoint),
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
        options: &mut CopyOptions,
        stop: &Stop,
    ) -> Result<Start<'a>> {
        let of_sink = sink.recover().await?;
        let of_store = match store {
            Some(store) => store.load().await?,
            None => None,
        };
        let mirror_epoch = of_store.as_ref().map(|checkpoint| checkpoint.epoch);
        let stored = newest(of_sink, of_store)?;
        // A broker that can't be reached takes its time.
        let resolved = tokio::select! {
            biased;
            () = stop.requested() => {
                sink.close().await?;
                return Ok(Start::Stopped(stored.unwrap_or_default()));
            }
            resolved = hybrid.resolve(stored.clone()) => resolved?,
        };
        let mut dead_letters = options.dead_letters.take();
        if let Some(letters) = &mut dead_letters {
            letters.open().await?;
        }
        if let Some(stored) = &stored {
            tracing::info!("the job goes on from its checkpoint, with its positions (commit {})", stored.epoch);
        }
        let mut run = Self {
            hybrid,
            sink,
            store,
            policy: options.commit,
            progress: options.read.progress.clone(),
            dead_letters,
            commits: 0,
            rows: vec![0; resolved.sources.len()],
            bytes: 0,
            rejected: RejectCounts::default(),
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
                run.tell(&stored, 0..stored.sources.len());
            }
        }
        Ok(Start::Ready(Box::new(run)))
    }

    /// Reads and writes until the end or the stop; says whether it was the stop.
    async fn read(&mut self, mut options: ReadOptions, stop: &Stop) -> Result<bool> {
        options.memory_bytes = options.memory_bytes.saturating_sub(self.sink.reserved_bytes());
        if let Some(letters) = &self.dead_letters {
            options.memory_bytes = options.memory_bytes.saturating_sub(letters.reserved_bytes());
            options.bad_records = BadRecords::Keep;
        }
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
                    let item = match item {
                        Ok(item) => item,
                        // What came before the error is good, and whoever starts again needn't read it again.
                        Err(e) => {
                            if self.pending.due.is_some()
                                && let Err(second) = self.commit_next(stream.checkpoint().clone()).await
                            {
                                tracing::warn!("what came before the error couldn't be committed: {second}");
                            }
                            return Err(e);
                        }
                    };
                    self.sink.write(&item).await?;
                    self.reject(&item).await?;
                    self.count(&item);
                    let source_done = stream.checkpoint().sources.get(item.source).is_some_and(|source| source.is_done());
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

    /// Hands on and counts the bad records of an item.
    async fn reject(&mut self, item: &ChainBatch) -> Result<()> {
        let rejects = item.item.rejects();
        if rejects.is_empty() {
            return Ok(());
        }
        // Of a source whose own options leave bad records out nothing is kept.
        if let Some(letters) = self.dead_letters.as_mut().filter(|_| rejects.iter().any(|reject| reject.is_kept)) {
            let name = self.hybrid.sources()[item.source].name();
            letters.write(name, self.hybrid.phase(item.source), rejects).await?;
        }
        rejects.iter().for_each(|reject| self.rejected.add(&reject.record, reject.is_kept));
        Ok(())
    }

    fn count(&mut self, item: &ChainBatch) {
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
    }

    fn is_commit_due(&self, item: &ChainBatch, source_done: bool) -> bool {
        let is_seam = source_done && item.source + 1 < self.rows.len();
        self.policy.every_item
            || (self.policy.at_seam && is_seam)
            || self.policy.bytes.is_some_and(|bytes| self.pending.bytes >= bytes)
    }

    /// Tells sources where they stand. Without a checkpoint that lasts they stand nowhere.
    fn tell(&self, checkpoint: &Checkpoint, sources: impl Iterator<Item = usize>) {
        if self.store.is_none() && !self.sink.keeps_checkpoint() {
            return;
        }
        for index in sources {
            if let (Some(source), Some(state)) = (self.hybrid.sources().get(index), checkpoint.sources.get(index)) {
                source.committed(state);
            }
        }
    }

    async fn commit_next(&mut self, mut checkpoint: Checkpoint) -> Result<()> {
        checkpoint.epoch = self.committed.epoch + 1;
        self.commit(checkpoint).await
    }

    async fn commit(&mut self, checkpoint: Checkpoint) -> Result<()> {
        // They are safe before positions move past them.
        if let Some(letters) = &mut self.dead_letters {
            letters.commit().await?;
        }
        self.sink.commit(&checkpoint).await?;
        if let Some(store) = self.store {
            store.save(&checkpoint).await?;
        }
        let moved = std::mem::take(&mut self.pending).sources;
        // Of a job's first commit every source is told: where each begins is known from now on.
        let told = |index: &usize| self.commits == 0 || moved.contains(index);
        self.tell(&checkpoint, (0..checkpoint.sources.len()).filter(told));
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Mutex;

    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{Int64Type, SchemaRef};
    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;
    use crate::checkpoint::{FileCheckpointStore, SourceState};
    use crate::schema::parse_schema;
    use crate::sink::{FolderFormat, FolderSink, StreamFormat, WriterSink};
    use crate::source::{
        Boundedness, DatagenSource, FieldKind, History, MemorySource, ReadRequest, Source, SourceStream,
    };

    type Log = Arc<Mutex<Vec<String>>>;

    /// Writes down what happens, and keeps the rows and what was committed of them.
    #[derive(Debug, Default)]
    struct Recorder {
        log: Log,
        written: Vec<i64>,
        committed: Vec<i64>,
        own: Option<Checkpoint>,
        keeps_checkpoint: bool,
        /// Asked to stop at the commit of this epoch.
        stop_at: Option<(u64, Stop)>,
        fail_write: Option<usize>,
    }

    impl Sink for Recorder {
        fn recover(&mut self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
            self.log.lock().unwrap().push("recover".into());
            self.written = self.committed.clone();
            let own = self.own.clone();
            async move { Ok(own) }.boxed()
        }

        fn write<'a>(&'a mut self, batch: &'a ChainBatch) -> BoxFuture<'a, Result<()>> {
            let rows = batch.item.batch();
            self.log.lock().unwrap().push(format!("write {} rows of {}", rows.num_rows(), batch.source));
            if let Some(left) = &mut self.fail_write {
                if *left == 0 {
                    return async { Err(Error::Output { target: "recorder".into(), source: "full".into() }) }.boxed();
                }
                *left -= 1;
            }
            self.written.extend(rows.column(0).as_primitive::<Int64Type>().values());
            async { Ok(()) }.boxed()
        }

        fn commit<'a>(&'a mut self, checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>> {
            let rows: u64 = checkpoint.sources.iter().map(|source| source.rows).sum();
            self.log.lock().unwrap().push(format!("commit {} at row {rows}", checkpoint.epoch));
            self.committed = self.written.clone();
            if self.keeps_checkpoint {
                self.own = Some(checkpoint.clone());
            }
            if let Some((_, stop)) = self.stop_at.as_ref().filter(|(epoch, _)| *epoch == checkpoint.epoch) {
                stop.request();
            }
            async { Ok(()) }.boxed()
        }

        fn close(&mut self) -> BoxFuture<'_, Result<()>> {
            self.log.lock().unwrap().push("close".into());
            async { Ok(()) }.boxed()
        }
    }

    #[derive(Debug, Default)]
    struct Store {
        log: Log,
        saved: Mutex<Option<Checkpoint>>,
    }

    impl CheckpointStore for Store {
        fn load(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
            async { Ok(self.saved.lock().unwrap().clone()) }.boxed()
        }

        fn save<'a>(&'a self, checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>> {
            self.log.lock().unwrap().push(format!("save {}", checkpoint.epoch));
            *self.saved.lock().unwrap() = Some(checkpoint.clone());
            async { Ok(()) }.boxed()
        }
    }

    /// A source that writes down what it hears of commits.
    #[derive(Debug)]
    struct Listening(MemorySource, Log);

    impl Source for Listening {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn connector(&self) -> &str {
            self.0.connector()
        }

        fn schema(&self) -> SchemaRef {
            self.0.schema()
        }

        fn boundedness(&self) -> Boundedness {
            self.0.boundedness()
        }

        fn position_options(&self) -> BTreeMap<String, String> {
            self.0.position_options()
        }

        fn resolve<'a>(
            &'a self,
            stored: Option<SourceState>,
            history: Option<&'a History>,
        ) -> BoxFuture<'a, Result<SourceState>> {
            self.0.resolve(stored, history)
        }

        fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream> {
            self.0.open(state, request)
        }

        fn committed(&self, state: &SourceState) {
            self.1.lock().unwrap().push(format!("source {} hears of row {}", self.name(), state.rows));
        }
    }

    fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_from_iter_with_nullable([("id", id, true)]).unwrap()
    }

    fn memory(name: &str) -> crate::source::MemorySourceBuilder {
        MemorySource::builder(rows(0..0).schema()).name(name)
    }

    fn sequence(name: &str, ids: std::ops::Range<i64>) -> DatagenSource {
        DatagenSource::builder(Arc::new(parse_schema("id BIGINT").unwrap()))
            .name(name)
            .field("id", FieldKind::Sequence { start: ids.start, end: Some(ids.end - 1) })
            .build()
            .unwrap()
    }

    fn options(commit: CommitPolicy) -> CopyOptions {
        let read = ReadOptions { num_threads: 2, batch_rows: 100, ..ReadOptions::default() };
        CopyOptions { read, commit, ..CopyOptions::default() }
    }

    #[tokio::test]
    async fn a_commit_goes_to_the_sink_then_to_the_store_then_to_the_sources() {
        let log = Log::default();
        let first = memory("a").batch("x", rows(0..2)).batch("x", rows(2..3)).build();
        let second = memory("b").batch("y", rows(3..5)).build();
        let hybrid = HybridSource::builder()
            .source(Listening(first, Arc::clone(&log)))
            .source(Listening(second, Arc::clone(&log)))
            .build()
            .unwrap();
        let mut sink = Recorder { log: Arc::clone(&log), ..Recorder::default() };
        let store = Store { log: Arc::clone(&log), ..Store::default() };
        let progress = Arc::new(Progress::new(["a", "b"]));
        let mut options = options(CommitPolicy::copy());
        options.read.progress = Some(Arc::clone(&progress));
        let summary = copy(&hybrid, &mut sink, Some(&store), options, &Stop::new()).await.unwrap();
        assert_eq!(
            *log.lock().unwrap(),
            [
                "recover",
                "commit 0 at row 0",
                "save 0",
                "source a hears of row 0",
                "source b hears of row 0",
                "write 2 rows of 0",
                "write 1 rows of 0",
                "commit 1 at row 3",
                "save 1",
                "source a hears of row 3",
                "write 2 rows of 1",
                "commit 2 at row 5",
                "save 2",
                "source b hears of row 2",
                "close",
            ]
        );
        assert_eq!((summary.rows.as_slice(), summary.bytes, summary.commits), (&[3, 2][..], 40, 3));
        assert!(!summary.stopped && summary.checkpoint.is_done());
        assert_eq!(store.saved.lock().unwrap().as_ref(), Some(&summary.checkpoint));
        let seen = progress.snapshot();
        assert_eq!((seen.rows(), seen.active, seen.split, seen.commits), (5, 1, Some("y".into()), 3));

        // Once more: nothing is left, and nothing is committed.
        log.lock().unwrap().clear();
        let again = self::options(CommitPolicy::copy());
        let summary = copy(&hybrid, &mut sink, Some(&store), again, &Stop::new()).await.unwrap();
        assert_eq!(summary.commits, 0);
        assert_eq!(
            *log.lock().unwrap(),
            ["recover", "source a hears of row 3", "source b hears of row 2", "close"],
            "whoever watches hears where the job stands, also if it was told once and lost"
        );
    }

    /// A look into a topic must not move its group.
    #[tokio::test]
    async fn without_a_checkpoint_that_lasts_no_source_hears_of_a_commit() {
        let log = Log::default();
        let source = Listening(memory("a").batch("x", rows(0..2)).build(), Arc::clone(&log));
        let hybrid = HybridSource::builder().source(source).build().unwrap();
        let mut sink = Recorder { log: Arc::clone(&log), ..Recorder::default() };
        copy(&hybrid, &mut sink, None, options(CommitPolicy::copy()), &Stop::new()).await.unwrap();
        let log = log.lock().unwrap();
        assert!(log.iter().any(|line| line.starts_with("commit")) && !log.iter().any(|line| line.contains("hears")));
    }

    #[tokio::test]
    async fn commits_come_by_bytes_or_after_every_item() {
        for (policy, expected) in [
            (CommitPolicy::copy().with_bytes(Some(1600)), 1 + 5),
            (CommitPolicy::every_item(), 1 + 10),
            (CommitPolicy::copy(), 1 + 1),
        ] {
            let hybrid = HybridSource::builder().source(sequence("a", 0..1000)).build().unwrap();
            let mut sink = Recorder::default();
            let summary = copy(&hybrid, &mut sink, None, options(policy), &Stop::new()).await.unwrap();
            assert_eq!(summary.commits, expected, "{policy:?}");
            assert_eq!(sink.committed, (0..1000).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_quiet_live_source_is_committed_in_time_and_stops_when_asked() {
        let live = memory("live").boundedness(Boundedness::Unbounded).batch("x", rows(0..3)).build();
        let hybrid = HybridSource::builder().source(live).build().unwrap();
        let stop = Stop::new();
        let mut sink = Recorder { stop_at: Some((1, stop.clone())), ..Recorder::default() };
        // Without the timer this would never end.
        let policy = CommitPolicy::copy().with_interval(Duration::from_millis(10));
        let summary = copy(&hybrid, &mut sink, None, options(policy), &stop).await.unwrap();
        assert!(summary.stopped && stop.is_requested());
        assert_eq!((summary.commits, summary.checkpoint.epoch, sink.committed.len()), (2, 1, 3));
    }

    #[tokio::test]
    async fn a_stop_commits_what_was_read_and_a_restart_brings_the_rest() {
        let hybrid =
            HybridSource::builder().source(sequence("a", 0..5000)).source(sequence("b", 5000..9000)).build().unwrap();
        let store = Store::default();
        let mut sink = Recorder::default();
        let mut runs = 0;
        loop {
            runs += 1;
            let stop = Stop::new();
            sink.stop_at = Some((runs * 20, stop.clone()));
            let summary =
                copy(&hybrid, &mut sink, Some(&store), options(CommitPolicy::every_item()), &stop).await.unwrap();
            assert_eq!(sink.written, sink.committed, "everything that was written is committed");
            if !summary.stopped {
                break;
            }
        }
        assert!(runs > 3);
        assert_eq!(sink.committed, (0..9000).collect::<Vec<_>>(), "each row once");
    }

    #[tokio::test]
    async fn an_error_of_a_source_commits_what_came_before_it_and_one_of_the_sink_does_not() {
        let bad = memory("a").batch("x", rows(0..3)).fail("x", "no number").build();
        let hybrid = HybridSource::builder().source(bad).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let store = Store::default();
        let file = std::fs::File::create(&path).unwrap();
        let mut sink = WriterSink::builder(StreamFormat::Csv, hybrid.output_schema()).build(file).unwrap();
        let error =
            copy(&hybrid, &mut sink, Some(&store), options(CommitPolicy::copy()), &Stop::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "x sequence 3: no number");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "id\n0\n1\n2\n");
        let saved = store.saved.lock().unwrap().clone().unwrap();
        assert_eq!((saved.epoch, saved.sources[0].rows), (1, 3));

        let mut sink = Recorder { fail_write: Some(3), ..Recorder::default() };
        let hybrid = HybridSource::builder().source(sequence("a", 0..1000)).build().unwrap();
        let store = Store::default();
        let policy = CommitPolicy::every_item();
        copy(&hybrid, &mut sink, Some(&store), options(policy), &Stop::new()).await.unwrap_err();
        assert_eq!(store.saved.lock().unwrap().as_ref().unwrap().sources[0].rows, 300);
        sink.fail_write = None;
        copy(&hybrid, &mut sink, Some(&store), options(policy), &Stop::new()).await.unwrap();
        assert_eq!(sink.committed, (0..1000).collect::<Vec<_>>());
    }

    /// A broker that can't be reached takes its time; whoever asks to stop doesn't wait for it.
    #[tokio::test]
    async fn a_stop_before_anything_is_resolved_ends_at_once() {
        let hybrid = HybridSource::builder().source(sequence("a", 0..1000)).build().unwrap();
        let (mut sink, stop) = (Recorder::default(), Stop::new());
        stop.request();
        let summary = copy(&hybrid, &mut sink, None, options(CommitPolicy::copy()), &stop).await.unwrap();
        assert!(summary.stopped && sink.committed.is_empty());
        assert_eq!((summary.commits, summary.rows.as_slice()), (0, &[0][..]));
        assert_eq!(*sink.log.lock().unwrap(), ["recover", "close"]);
    }

    #[tokio::test]
    async fn a_limit_is_committed_at_its_row() {
        let hybrid = HybridSource::builder().source(sequence("a", 0..1000)).build().unwrap();
        let mut sink = Recorder::default();
        let mut options = options(CommitPolicy::copy());
        options.read.limit = Some(250);
        let summary = copy(&hybrid, &mut sink, None, options, &Stop::new()).await.unwrap();
        assert_eq!((summary.rows.as_slice(), summary.stopped, sink.committed.len()), (&[250][..], false, 250));
        assert_eq!(summary.checkpoint.sources[0].rows, 250);
    }

    #[tokio::test]
    async fn a_sink_with_a_checkpoint_of_its_own_leads_and_the_store_follows() {
        let hybrid = HybridSource::builder().source(sequence("a", 0..1000)).build().unwrap();
        let (store, policy) = (Store::default(), CommitPolicy::every_item());
        let mut sink = Recorder { keeps_checkpoint: true, fail_write: Some(4), ..Recorder::default() };
        copy(&hybrid, &mut sink, None, options(policy), &Stop::new()).await.unwrap_err();
        sink.fail_write = Some(0);
        copy(&hybrid, &mut sink, Some(&store), options(policy), &Stop::new()).await.unwrap_err();
        assert_eq!(store.saved.lock().unwrap().as_ref(), sink.own.as_ref(), "the mirror is brought up");
        sink.fail_write = None;
        copy(&hybrid, &mut sink, Some(&store), options(policy), &Stop::new()).await.unwrap();
        assert_eq!(sink.committed, (0..1000).collect::<Vec<_>>());

        sink.own.as_mut().unwrap().epoch -= 1;
        let ahead = copy(&hybrid, &mut sink, Some(&store), options(policy), &Stop::new()).await.unwrap_err();
        assert_eq!(
            ahead.to_string(),
            "the checkpoint doesn't fit: the last commit was 10 in the checkpoint, now 9 in the sink"
        );
    }

    fn ids_of(folder: &Path) -> Vec<i64> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with(['.', '_']) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("id\n") && text.ends_with('\n'), "{name} isn't whole");
            ids.extend(text.lines().skip(1).map(|line| line.parse::<i64>().unwrap()));
        }
        ids.sort_unstable();
        ids
    }

    /// A run that is dropped at any moment, again and again, loses nothing and shows whole files only.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn runs_that_are_dropped_at_any_moment_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, path) = (dir.path().join("out"), dir.path().join("job.json"));
        let hybrid = HybridSource::builder()
            .source(sequence("a", 0..20_000))
            .source(sequence("b", 20_000..40_000))
            .build()
            .unwrap();
        let mut last = Vec::new();
        for patience_ms in (1..).map(|run| 3 * run) {
            let store = FileCheckpointStore::open(&path).unwrap();
            let target = folder.to_str().unwrap();
            let mut sink = FolderSink::builder(FolderFormat::Csv, target).job("j").roll_bytes(20_000).build().unwrap();
            let policy = CommitPolicy::copy().with_bytes(Some(40_000));
            let stop = Stop::new();
            let run = copy(&hybrid, &mut sink, Some(&store), options(policy), &stop);
            let ended = tokio::time::timeout(Duration::from_millis(patience_ms), run).await;
            drop(sink);
            let seen = ids_of(&folder);
            let mut distinct = seen.clone();
            distinct.dedup();
            assert!(last.iter().all(|id| distinct.binary_search(id).is_ok()), "what was seen stays");
            last = distinct;
            if let Ok(summary) = ended {
                assert!(summary.unwrap().checkpoint.is_done());
                break;
            }
        }
        assert_eq!(last, (0..40_000).collect::<Vec<_>>());
    }
}
