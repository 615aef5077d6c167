//! Ranges of files, fetched ahead by a task and handed to the cutter in order.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use futures::{StreamExt, stream};
use tokio::sync::mpsc;

use super::{CHUNK_BYTES, RANGES_AHEAD, piece_bytes};
use crate::budget::{Budget, Permit};
use crate::error::{Error, Result};
use crate::file::FileSource;
use crate::file::fetch::ListedFile;
use crate::file::plan::{Plan, PlannedFile};
use crate::format::Format;
use crate::source::ReadRequest;

/// What the fetch task hands to the cutter.
pub(super) enum Fetched {
    /// A file begins, of which the bytes from `from` on come; `head` are its first bytes, if the cutter needs them and
    /// they don't come anyway.
    File {
        planned: Box<PlannedFile>,
        from: u64,
        head: Option<Bytes>,
    },
    /// The next bytes of it, as stored.
    Bytes {
        bytes: Bytes,
        _permit: Permit,
        is_last: bool,
    },
    Failed(Error),
}

/// The longest byte order mark that changes how a file is read.
const MARK_BYTES: u64 = 2;

/// Reads ahead, in order.
pub(super) struct Fetch {
    source: FileSource,
    budget: Budget,
}

/// One range to be fetched.
enum Want {
    Head { planned: PlannedFile, from: u64 },
    Range { file: ListedFile, range: std::ops::Range<u64>, permit: Permit, is_last: bool },
    Failed(Error),
}

impl Fetch {
    pub(super) fn new(source: &FileSource, request: &ReadRequest) -> Self {
        Self { source: source.clone(), budget: request.budget.lane() }
    }

    /// From where on the stored bytes of a file are needed: from the place where it is gone on with, unless what
    /// stands there can't be understood without what stands before.
    async fn from(&self, PlannedFile { file, start }: &PlannedFile) -> Result<u64> {
        if *start == 0 {
            return Ok(0);
        }
        let coding = self.source.coding_of(file);
        // Only CSV may begin in a way that changes how it is read.
        let has_marks = self.source.format == Format::Csv && coding.is_plain(&[]);
        let head = if has_marks { file.read(0..file.size().min(MARK_BYTES)).await? } else { Bytes::new() };
        Ok(if coding.is_plain(&head) { *start } else { 0 })
    }

    pub(super) async fn run(self, plan: Plan, out: mpsc::Sender<Fetched>) -> Result<()> {
        let needs_head = self.source.header == Some(true);
        let wants = stream::unfold((self, plan, None::<(ListedFile, u64)>), |(fetch, mut plan, open)| async move {
            let (want, open) = match open {
                None => match plan.next()? {
                    Err(e) => (Want::Failed(e), None),
                    Ok(planned) => match fetch.from(&planned).await {
                        Err(e) => (Want::Failed(e), None),
                        Ok(from) => (Want::Head { planned: planned.clone(), from }, Some((planned.file, from))),
                    },
                },
                Some((file, start)) => {
                    let end = file.size().min(start + piece_bytes(fetch.budget.limit_bytes()) as u64);
                    let permit = fetch.budget.acquire((end - start) as usize).await;
                    let is_last = end >= file.size();
                    let want = Want::Range { file: file.clone(), range: start..end, permit, is_last };
                    (want, (!is_last).then_some((file, end)))
                }
            };
            Some((want, (fetch, plan, open)))
        });
        let fetched = wants.map(|want| async move {
            match want {
                Want::Failed(e) => Fetched::Failed(e),
                Want::Head { planned, from } => {
                    let head = if needs_head && from > 0 {
                        // A header longer than this is no header.
                        match planned.file.read(0..planned.file.size().min(CHUNK_BYTES as u64)).await {
                            Ok(head) => Some(head),
                            Err(e) => return Fetched::Failed(e),
                        }
                    } else {
                        None
                    };
                    Fetched::File { planned: Box::new(planned), from, head }
                }
                Want::Range { file, range, permit, is_last } => match file.read(range).await {
                    Ok(bytes) => Fetched::Bytes { bytes, _permit: permit, is_last },
                    Err(e) => Fetched::Failed(e),
                },
            }
        });
        let mut fetched = std::pin::pin!(fetched.buffered(RANGES_AHEAD));
        while let Some(piece) = fetched.next().await {
            let failed = matches!(piece, Fetched::Failed(_));
            if out.send(piece).await.is_err() || failed {
                break;
            }
        }
        Ok(())
    }
}

/// The stored bytes of one file, as they come from the fetch task.
pub(super) struct StoredPieces<'a> {
    pieces: &'a mut mpsc::Receiver<Fetched>,
    /// Looked at, and not taken.
    first: Option<(Bytes, bool)>,
    ended: bool,
}

impl<'a> StoredPieces<'a> {
    pub(super) fn new(pieces: &'a mut mpsc::Receiver<Fetched>) -> Self {
        Self { pieces, first: None, ended: false }
    }

    /// What the first bytes are, without taking them; `None` if the stream was dropped.
    pub(super) fn first(&mut self) -> Result<Option<&[u8]>> {
        if self.first.is_none() {
            self.first = self.next()?;
        }
        Ok(self.first.as_ref().map(|(bytes, _)| bytes.as_ref()))
    }

    /// Says whether all were taken.
    fn is_empty(&self) -> bool {
        self.ended && self.first.is_none()
    }

    /// The next bytes, and whether they are the last; `None` if the stream was dropped.
    pub(super) fn next(&mut self) -> Result<Option<(Bytes, bool)>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.ended {
            return Ok(Some((Bytes::new(), true)));
        }
        match self.pieces.blocking_recv() {
            Some(Fetched::Bytes { bytes, is_last, .. }) => {
                self.ended = is_last;
                Ok(Some((bytes, is_last)))
            }
            Some(Fetched::Failed(e)) => Err(e),
            Some(Fetched::File { planned, .. }) => {
                Err(Error::Worker { message: format!("{} began before the file before it ended", planned.file.url) })
            }
            None => Ok(None),
        }
    }
}

/// The same as a reader, for those who make text of them.
pub(super) struct StoredRead<'a, 'b> {
    pieces: &'a mut StoredPieces<'b>,
    buffer: Bytes,
}

impl<'a, 'b> StoredRead<'a, 'b> {
    pub(super) fn new(pieces: &'a mut StoredPieces<'b>) -> Self {
        Self { pieces, buffer: Bytes::new() }
    }
}

impl Read for StoredRead<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.buffer.is_empty() {
            if self.pieces.is_empty() {
                return Ok(0);
            }
            match self.pieces.next().map_err(io::Error::other)? {
                Some((bytes, _)) => self.buffer = bytes,
                None => return Err(io::Error::other(Error::Worker { message: "the stream was dropped".into() })),
            }
        }
        let len = out.len().min(self.buffer.len());
        self.buffer.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}
