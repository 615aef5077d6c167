//! Text files: fetched ahead, cut into whole records on one thread, decoded on the pool.
//!
//! ```text
//! fetch task ──ranges in order──▶ cutter thread ──chunks──▶ pool ──ordered──▶ items
//! ```
//!
//! The cutter decompresses, decodes the charset, finds each file's header, and cuts. It does nothing else, since it
//! is the one sequential stage. Dropping the stream closes both channels, and task and thread end.

mod ahead;
mod cutter;
mod decoding;

use std::thread;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::ahead::Fetch;
use self::cutter::Cutter;
pub(super) use self::decoding::{bom_bytes, check_encoding};
use super::FileSource;
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::ordered::{Task, ordered, worker_error};
use crate::source::{Decoded, ReadRequest, SourceStream, items};

/// Bytes of text that are decoded as one job. Long enough that the costs of a job vanish, short enough that
/// some fit every cache and the smallest budget.
const CHUNK_BYTES: usize = 1 << 20;

/// The smallest chunk, however small the budget.
const MIN_CHUNK_BYTES: usize = 64 << 10;

/// Ranges that are fetched ahead.
const RANGES_AHEAD: usize = 4;

pub(super) fn open(source: &FileSource, plan: Plan, request: ReadRequest) -> Result<SourceStream> {
    let runtime = Handle::try_current().map_err(|e| Error::Worker { message: e.to_string() })?;
    let (num_threads, batch_rows) = (request.pool.num_threads(), request.batch_rows);
    let (chunks, receiver) = ordered::<Decoded>(2 * num_threads + 2);
    let (fetched, pieces) = mpsc::channel(RANGES_AHEAD);
    let fetcher = Task::spawn(Fetch::new(source, &request).run(plan, fetched));
    let cutter = Cutter::new(source.clone(), request, chunks, runtime);
    let handle = thread::Builder::new()
        .name("segue-cut".into())
        .spawn(move || cutter.run(pieces))
        .map_err(|e| Error::Worker { message: format!("no thread to cut on: {e}") })?;
    // A cutter that ended in a panic has closed the window without an error: that must not look like the end.
    // Its end of the window is closed, so it is about to end, and joining it waits for nothing.
    let end = move || {
        let _ = &fetcher;
        handle.join().err().map(|payload| worker_error(payload.as_ref()))
    };
    Ok(items(receiver, batch_rows, end))
}

/// Bytes that are fetched, and cut, at once: what a budget of `limit_bytes` can have several of.
fn piece_bytes(limit_bytes: usize) -> usize {
    (limit_bytes / (8 * RANGES_AHEAD)).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES)
}
