//! Runs a chain into a sink: signals, progress, and the exit status.

use std::io;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use segue::checkpoint::{CheckpointStore, FileCheckpointStore};
use segue::error::Error;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::pipeline::{self, CommitPolicy, CopyOptions, Stop, Summary};
use segue::progress::Progress;
use segue::sink::Sink;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::args::{CheckpointInterval, MeansArgs, RunArgs};
use super::bad_records::OnError;
use super::chain::Stored;
use super::console::{Console, counted};
use super::fault::{Failure, Fault};
use super::metrics::MetricsServer;

/// The exit status of a job that a signal has ended is this and the signal's number, as shells have it.
const SIGNALLED: u8 = 128;

/// Signals within this time are one request: `timeout` and terminals send to the process and to its group.
const ONE_REQUEST: Duration = Duration::from_millis(300);

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    /// The exit status.
    pub(crate) status: u8,
}

/// Where rows go, as far as it matters to what is shown and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Into files or a topic, or nowhere.
    Elsewhere,
    Stdout,
    /// To stdout, which is a terminal.
    Terminal,
}

/// What goes on beside the rows.
#[derive(Debug)]
pub(crate) struct Beside<'a> {
    pub(crate) console: &'a Console,
    pub(crate) rows: Rows,
    /// What becomes of bad records, if there can be any.
    pub(crate) on_error: Option<&'a OnError>,
    /// Who serves metrics, if somebody wants them.
    pub(crate) metrics: Option<MetricsServer>,
}

/// Copies `hybrid` into `sink`, showing progress, until the end or the first signal.
pub(crate) async fn run(
    hybrid: &HybridSource,
    sink: &mut dyn Sink,
    store: Option<&FileCheckpointStore>,
    mut options: CopyOptions,
    beside: Beside<'_>,
) -> Result<Outcome, Failure> {
    let Beside { console, rows, on_error, metrics } = beside;
    if let Some(on_error) = on_error {
        on_error.apply(&mut options)?;
    }
    let progress = Arc::new(Progress::new(hybrid.sources().iter().map(|source| source.name())));
    options.read.progress = Some(Arc::clone(&progress));
    let signals = Signals::listen()?;
    let stdout_gone = if rows == Rows::Stdout { stop_with_stdout(&signals.stop) } else { None };
    let shown = console.show(Arc::clone(&progress), rows == Rows::Terminal);
    let serving = metrics.map(|metrics| metrics.serve(Arc::clone(&progress)));
    let store = store.map(|store| store as &dyn CheckpointStore);
    let stuck = async {
        match rows {
            Rows::Stdout | Rows::Terminal => stuck(&signals.stop, &progress).await,
            _ => std::future::pending().await,
        }
    };
    let copied = tokio::select! {
        copied = pipeline::copy(hybrid, sink, store, options, &signals.stop) => copied,
        () = stuck => {
            // What waits to be printed is in no checkpoint, so that nothing is lost by not waiting for it.
            console.note("stdout takes nothing: ended before the last rows were printed, and no position has moved past them");
            process::exit(signals.status().into());
        }
    };
    drop((shown, serving));
    // Also of a job that has failed.
    if let Some(on_error) = on_error {
        on_error.tell(&progress.rejected(), console);
    }
    let summary = copied?;
    if stdout_gone.is_some_and(|gone| gone.load(Ordering::Relaxed)) {
        return Err(Failure::StdoutClosed);
    }
    // A job without an end was ended in the only way there is.
    let status = if summary.stopped && hybrid.boundedness().has_end() { signals.status() } else { 0 };
    Ok(Outcome { summary, status })
}

/// Returns when it was asked to stop, and nothing has moved since for a while: whoever reads stdout has stopped reading.
async fn stuck(stop: &Stop, progress: &Progress) {
    /// A slow reader takes a batch in that time.
    const PATIENCE: Duration = Duration::from_secs(5);
    stop.requested().await;
    loop {
        let before = progress.snapshot().rows();
        tokio::time::sleep(PATIENCE).await;
        if progress.snapshot().rows() == before {
            return;
        }
    }
}

/// SIGINT and SIGTERM: the first asks to stop, the second ends the process.
struct Signals {
    stop: Stop,
    /// 128 and the number of the signal that came.
    status: Arc<AtomicU8>,
}

impl Signals {
    fn listen() -> Result<Self, Fault> {
        let (stop, status) = (Stop::new(), Arc::new(AtomicU8::new(0)));
        let first = Arc::new(OnceLock::new());
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let mut received = signal(kind)
                .map_err(|source| Fault::from(Error::Io { path: "signals".into(), action: "cannot listen", source }))?;
            let code = SIGNALLED.saturating_add(u8::try_from(kind.as_raw_value()).unwrap_or_default());
            let (stop, status, first) = (stop.clone(), Arc::clone(&status), Arc::clone(&first));
            tokio::spawn(async move {
                while received.recv().await.is_some() {
                    let first = *first.get_or_init(Instant::now);
                    if stop.is_requested() && first.elapsed() >= ONE_REQUEST {
                        process::exit(code.into());
                    }
                    status.store(code, Ordering::Relaxed);
                    stop.request();
                }
            });
        }
        Ok(Self { stop, status })
    }

    fn status(&self) -> u8 {
        self.status.load(Ordering::Relaxed)
    }
}

/// Returns, at the first SIGINT or SIGTERM, the exit status of a command that it ends.
#[cfg(feature = "kafka")]
pub(crate) async fn interrupted() -> Result<u8, Failure> {
    let signals = Signals::listen()?;
    signals.stop.requested().await;
    Ok(signals.status())
}

/// Asks `stop` to stop when nobody reads stdout any more: a follower of a quiet topic would notice it only at its
/// next row. Only a pipe's reader can go; anything else is left alone.
fn stop_with_stdout(stop: &Stop) -> Option<Arc<AtomicBool>> {
    #[expect(deprecated, reason = "what replaces it is unsafe, for files that may be closed; stdout is not")]
    let watched = AsyncFd::with_interest(io::stdout(), Interest::ERROR).ok()?;
    let (stop, is_gone) = (stop.clone(), Arc::new(AtomicBool::new(false)));
    let gone = Arc::clone(&is_gone);
    tokio::spawn(async move {
        if watched.ready(Interest::ERROR).await.is_ok() {
            gone.store(true, Ordering::Relaxed);
            stop.request();
        }
    });
    Some(is_gone)
}

/// Claims the checkpoint of `--checkpoint`, and reads it if it is there.
pub(crate) async fn claim(path: Option<&Path>) -> Result<(Option<FileCheckpointStore>, Option<Stored>), Failure> {
    let Some(path) = path else { return Ok((None, None)) };
    let name = path.display().to_string();
    if name.contains("://") {
        return Err(Fault::later(format!("--checkpoint {name}: a checkpoint in an object store")).into());
    }
    let store = FileCheckpointStore::open(path)?;
    let stored = store.load().await?.map(|checkpoint| Stored { checkpoint });
    Ok((Some(store), stored))
}

/// With what means to read.
pub(crate) fn read_options(means: &MeansArgs, limit: Option<u64>) -> ReadOptions {
    let default = ReadOptions::default();
    ReadOptions {
        batch_rows: means.batch_rows.get(),
        memory_bytes: means.memory,
        num_threads: means.threads.map_or(default.num_threads, usize::from),
        limit,
        ..default
    }
}

/// How to copy, by a command's own policy and what was asked for.
pub(crate) fn copy_options(args: &RunArgs, policy: CommitPolicy) -> CopyOptions {
    let commit = match args.checkpoint_interval {
        None => policy,
        Some(CheckpointInterval::Every(interval)) => policy.with_interval(interval),
        Some(CheckpointInterval::Batch) => CommitPolicy::every_item(),
    };
    CopyOptions { read: read_options(&args.means, args.limit), commit, ..CopyOptions::default() }
}

/// Takes the address of `--metrics-addr`, and tells it: a port may have been left to the system.
pub(crate) async fn metrics(args: &RunArgs, console: &Console) -> Result<Option<MetricsServer>, Failure> {
    let Some(addr) = &args.metrics_addr else { return Ok(None) };
    let server = MetricsServer::bind(addr).await?;
    console.note(format_args!("metrics: {}", server.url()));
    Ok(Some(server))
}

/// What was done, for people: `1234 rows in 1.2 s`, and how it goes on if it was stopped.
pub(crate) fn told(summary: &Summary, has_checkpoint: bool) -> String {
    let rows: u64 = summary.rows.iter().sum();
    let done = format!("{} in {:.1} s", counted(rows, "row"), summary.duration.as_secs_f64());
    match (summary.stopped, has_checkpoint) {
        (false, _) => done,
        (true, true) => format!("stopped after {done}; the same command goes on from there"),
        (true, false) => format!("stopped after {done}; with --checkpoint it could go on from there"),
    }
}
