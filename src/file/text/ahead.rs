//! Ranges of files, fetched ahead by a task and handed to the cutter in order.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::{StreamExt, stream};
use tokio::sync::mpsc;

use super::{CHUNK_BYTES, RANGES_AHEAD, piece_bytes};
use crate::budget::{Budget, Permit};
use crate::error::{Error, Result};
use crate::file::FileSource;
use crate::file::fetch::ListedFile;
use crate::file::piece::{Buffers, Piece};
use crate::file::plan::{Compression, Plan, PlannedFile, compression_of};
use crate::source::ReadRequest;

/// What the fetch task hands to the cutter.
pub(super) enum Fetched {
    /// A file begins; `head` are its first bytes, if the cutter needs them and they don't come anyway.
    File {
        planned: Box<PlannedFile>,
        head: Option<Bytes>,
    },
    /// The next bytes of it, as stored.
    Piece {
        piece: Piece,
        _permit: Permit,
        is_last: bool,
    },
    Failed(Error),
}

/// Reads ahead, in order.
pub(super) struct Fetch {
    compression: Option<Compression>,
    needs_head: bool,
    budget: Budget,
    buffers: Arc<Buffers>,
}

/// One range to be fetched.
enum Want {
    Head(PlannedFile),
    Range { file: ListedFile, range: std::ops::Range<u64>, permit: Permit, is_last: bool },
    Failed(Error),
}

impl Fetch {
    pub(super) fn new(source: &FileSource, request: &ReadRequest, buffers: Arc<Buffers>) -> Self {
        let needs_head = source.header == Some(true);
        Self { compression: source.compression, needs_head, budget: request.budget.lane(), buffers }
    }

    pub(super) async fn run(self, plan: Plan, out: mpsc::Sender<Fetched>) -> Result<()> {
        let buffers = &Arc::clone(&self.buffers);
        let wants = stream::unfold((self, plan, None::<(ListedFile, u64)>), |(fetch, mut plan, open)| async move {
            let (want, open) = match open {
                None => match plan.next()? {
                    Err(e) => (Want::Failed(e), None),
                    Ok(planned) => {
                        let is_compressed = compression_of(fetch.compression, &planned.file) != Compression::None;
                        let start = if is_compressed { 0 } else { planned.start };
                        (Want::Head(planned.clone()), Some((planned.file, start)))
                    }
                },
                Some((file, start)) => {
                    let end = file.size().min(start + piece_bytes(fetch.budget.limit_bytes()) as u64);
                    let permit = fetch.budget.acquire((end - start) as usize).await;
                    let is_last = end >= file.size();
                    let want = Want::Range { file: file.clone(), range: start..end, permit, is_last };
                    (want, (!is_last).then_some((file, end)))
                }
            };
            Some(((want, fetch.needs_head, fetch.compression), (fetch, plan, open)))
        });
        let fetched = wants.map(|(want, needs_head, compression)| async move {
            match want {
                Want::Failed(e) => Fetched::Failed(e),
                Want::Head(planned) => {
                    let is_plain = compression_of(compression, &planned.file) == Compression::None;
                    let head = if needs_head && is_plain && planned.start > 0 {
                        // A header longer than this is no header.
                        match planned.file.read(0..planned.file.size().min(CHUNK_BYTES as u64)).await {
                            Ok(head) => Some(head),
                            Err(e) => return Fetched::Failed(e),
                        }
                    } else {
                        None
                    };
                    Fetched::File { planned: Box::new(planned), head }
                }
                Want::Range { file, range, permit, is_last } => match file.read_piece(range, buffers).await {
                    Ok(piece) => Fetched::Piece { piece, _permit: permit, is_last },
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
    ended: bool,
}

impl<'a> StoredPieces<'a> {
    pub(super) fn new(pieces: &'a mut mpsc::Receiver<Fetched>) -> Self {
        Self { pieces, ended: false }
    }

    /// The next bytes, and whether they are the last; `None` if the stream was dropped.
    pub(super) fn next(&mut self) -> Result<Option<(Piece, bool)>> {
        if self.ended {
            return Ok(Some((Piece::Shared(Bytes::new()), true)));
        }
        match self.pieces.blocking_recv() {
            Some(Fetched::Piece { piece, is_last, .. }) => {
                self.ended = is_last;
                Ok(Some((piece, is_last)))
            }
            Some(Fetched::Failed(e)) => Err(e),
            Some(Fetched::File { planned, .. }) => {
                Err(Error::Worker { message: format!("{} began before the file before it ended", planned.file.url) })
            }
            None => Ok(None),
        }
    }
}

/// The same as a reader, for decompression.
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
            if self.pieces.ended {
                return Ok(0);
            }
            match self.pieces.next().map_err(io::Error::other)? {
                Some((piece, _)) => self.buffer = piece.into_bytes(),
                None => return Err(io::Error::other(Error::Worker { message: "the stream was dropped".into() })),
            }
        }
        let len = out.len().min(self.buffer.len());
        self.buffer.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}
