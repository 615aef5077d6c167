//! The one sequential stage, on a thread of its own: decompresses, decodes charsets, finds headers, cuts into whole
//! records.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::ahead::{Fetched, StoredPieces, StoredRead};
use super::decoding::{DecodedText, Decodings, FileContext, TextChunk, check_encoding, located, no_header};
use super::{CHUNK_BYTES, piece_bytes};
use crate::checkpoint::Advance;
use crate::error::{Error, Result};
use crate::file::FileSource;
use crate::file::fetch::{ListedFile, fill, fill_up_to_fault, read_error, text_of};
use crate::file::piece::{Buffers, Piece};
use crate::file::plan::{Coding, PlannedFile};
#[cfg(feature = "csv")]
use crate::format::csv::{CsvCutter, Header};
use crate::format::{Format, LineCutter, RecordCutter};
use crate::ordered::{DecodePool, OrderedSender};
use crate::source::{Decoded, ReadRequest, Rest, SourceBatch};

/// Decoded bytes per 100 bytes of text before any were seen: short numbers in wide columns.
const FIRST_DECODED_PERCENT: usize = 400;

/// The one sequential stage: makes text, finds headers, cuts.
pub(super) struct Cutter {
    source: FileSource,
    decodings: Decodings,
    chunks: OrderedSender<Decoded>,
    runtime: Handle,
    /// Decoded bytes per 100 bytes of text, as seen last.
    decoded_percent: Arc<AtomicUsize>,
    request: ReadRequest,
    buffers: Arc<Buffers>,
}

/// Why the cutter stops early.
enum Stop {
    /// Nobody listens any more.
    Closed,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Cutter {
    pub(super) fn new(
        source: FileSource,
        request: ReadRequest,
        chunks: OrderedSender<Decoded>,
        runtime: Handle,
        buffers: Arc<Buffers>,
    ) -> Self {
        let decodings = Decodings::new(source.clone(), request.clone());
        let decoded_percent = Arc::new(AtomicUsize::new(FIRST_DECODED_PERCENT));
        Self { source, decodings, chunks, runtime, decoded_percent, request, buffers }
    }

    pub(super) fn run(mut self, mut pieces: mpsc::Receiver<Fetched>) {
        let stop = loop {
            match pieces.blocking_recv() {
                None => return,
                Some(Fetched::Failed(e)) => break Stop::Failed(e),
                Some(Fetched::Piece { .. }) => {
                    break Stop::Failed(Error::Worker { message: "bytes before their file".into() });
                }
                Some(Fetched::File { planned, from, head }) => {
                    if let Err(stop) = self.file(*planned, from, head, &mut pieces) {
                        break stop;
                    }
                }
            }
        };
        if let Stop::Failed(e) = stop {
            // If nobody listens, nobody wants to know.
            let _ = self.chunks.submit_blocking(futures::future::ready(Err(e)).boxed(), None);
        }
    }

    fn file(
        &mut self,
        planned: PlannedFile,
        from: u64,
        head: Option<Bytes>,
        pieces: &mut mpsc::Receiver<Fetched>,
    ) -> Result<(), Stop> {
        let PlannedFile { file, start } = planned;
        let coding = self.source.coding_of(&file);
        let mut stored = StoredPieces::new(pieces);
        let Some(first) = stored.first()? else { return Err(Stop::Closed) };
        if from > 0 || coding.is_plain(first) {
            return self.records(file, coding, start, head, &mut || stored.next());
        }
        let url = Arc::clone(&file.url);
        let failed = |e| read_error(&url, coding.compression, e);
        let chunk_bytes = piece_bytes(self.request.budget.limit_bytes());
        let mut reader = text_of(coding, &url, StoredRead::new(&mut stored)).map_err(failed)?;
        let needs_head = start > 0 && self.source.header == Some(true);
        let mut head = None;
        if start > 0 {
            // What was read before has to become text again, but isn't cut or decoded.
            let mut left = start;
            let mut buffer = vec![0; chunk_bytes];
            while left > 0 {
                let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let len = fill(&mut reader, &mut buffer[..wanted]).map_err(failed)?;
                if len == 0 {
                    let difference = format!("it ends before byte {start} of its text");
                    return Err(Error::Changed { path: url.to_string(), difference }.into());
                }
                if needs_head && head.is_none() {
                    head = Some(Bytes::copy_from_slice(&buffer[..len]));
                }
                left -= len as u64;
            }
        }
        // Whole records before a fault are delivered first, however many of them share a piece with it.
        let mut fault = None;
        let buffers = Arc::clone(&self.buffers);
        let mut next = move || {
            if let Some(fault) = fault.take() {
                return Err(failed(fault));
            }
            let mut buffer = buffers.take(chunk_bytes);
            let len;
            (len, fault) = fill_up_to_fault(&mut reader, buffer.as_mut_slice());
            buffer.truncate(len);
            Ok(Some((Piece::Buffered(buffer), len < chunk_bytes && fault.is_none())))
        };
        self.records(file, coding, start, head, &mut next)
    }

    /// Cuts one file's text, which begins at `start`. `head` are the file's first bytes,
    /// if they are needed and don't come anyway.
    fn records(
        &mut self,
        file: ListedFile,
        coding: Coding,
        start: u64,
        head: Option<Bytes>,
        next_piece: &mut dyn FnMut() -> Result<Option<(Piece, bool)>>,
    ) -> Result<(), Stop> {
        let (is_inferred, bad_records) = (
            self.source.is_inferred,
            self.request.bad_records(self.source.options.ignores_parse_errors(self.source.format)),
        );
        let context_of = |decoding, first_record| {
            Arc::new(FileContext { file: file.clone(), coding, decoding, is_inferred, first_record, bad_records })
        };
        let mut context = None;
        if start > 0 {
            let (first_bytes, at_end) = head.as_deref().map_or((&[][..], true), |head| (head, false));
            let (decoding, _) = self.decodings.of_file(&file, first_bytes, at_end)?.ok_or_else(|| no_header(&file))?;
            context = Some(context_of(decoding, None));
        }
        let mut cutter = self.cutter();
        let mut carry = Bytes::new();
        // Where the next record starts, and where the next item's advance begins: a header belongs to the first item.
        let (mut position, mut from) = (start, start);
        loop {
            let (piece, is_last) = match next_piece()? {
                Some(piece) => piece,
                None => return Err(Stop::Closed),
            };
            let mut data = piece.prepend(&mem::take(&mut carry));
            let context = match &context {
                Some(context) => context,
                None => {
                    check_encoding(&file.url, &data)?;
                    let Some((decoding, header_bytes)) = self.decodings.of_file(&file, &data, is_last)? else {
                        self.check_length(&file, position, data.len())?;
                        carry = data;
                        continue;
                    };
                    data.advance(header_bytes);
                    position += header_bytes as u64;
                    let first_record = self.may_be_header().then_some(position);
                    context.insert(context_of(decoding, first_record))
                }
            };
            let whole = if is_last { data.len() } else { cutter.cut(&data) };
            let chunk = data.split_to(whole);
            if !chunk.is_empty() || is_last {
                let context = Arc::clone(context);
                let to = position + chunk.len() as u64;
                self.submit(context, chunk, position, Advance::new(file.id.clone(), from, to).with_done(is_last))?;
                (position, from) = (to, to);
            }
            if is_last {
                return Ok(());
            }
            self.check_length(&file, position, data.len())?;
            carry = data;
        }
    }

    /// A record that doesn't end must not fill the memory.
    fn check_length(&self, file: &ListedFile, position: u64, len: usize) -> Result<()> {
        let allowed = (self.request.budget.limit_bytes() / 4).max(2 * CHUNK_BYTES);
        if len <= allowed {
            return Ok(());
        }
        let place = format!("{}: the record at byte {position}", file.url);
        Err(Error::Memory { place, needed_bytes: len as u64, allowed_bytes: allowed as u64 })
    }

    fn submit(&mut self, context: Arc<FileContext>, chunk: Bytes, position: u64, advance: Advance) -> Result<(), Stop> {
        if chunk.is_empty() {
            let item = Some(SourceBatch::progress(self.request.schema(), vec![advance]));
            let progress = Decoded { item, fault: None, rest: None };
            return self
                .chunks
                .submit_blocking(futures::future::ready(Ok(progress)).boxed(), None)
                .map_err(|_| Stop::Closed);
        }
        let estimate = chunk.len() + chunk.len() * self.decoded_percent.load(Ordering::Relaxed) / 100;
        let permit = self.runtime.block_on(async {
            tokio::select! {
                permit = self.request.budget.acquire(estimate) => Some(permit),
                () = self.chunks.closed() => None,
            }
        });
        let Some(permit) = permit else { return Err(Stop::Closed) };
        let chunk = TextChunk { context, bytes: chunk, position, advance, at: 0, decoder: None };
        let job = start(self.request.pool.clone(), Arc::clone(&self.decoded_percent), chunk);
        self.chunks.submit_blocking(job, Some(permit)).map_err(|_| Stop::Closed)
    }

    /// Whether the first record could be a header though it was taken for a row.
    fn may_be_header(&self) -> bool {
        #[cfg(feature = "csv")]
        if self.source.options.csv.header == Header::Auto {
            return self.source.header == Some(false);
        }
        false
    }

    fn cutter(&self) -> Box<dyn RecordCutter> {
        match self.source.format {
            #[cfg(feature = "csv")]
            Format::Csv => Box::new(CsvCutter::new(self.source.options.csv.dialect())),
            _ => Box::new(LineCutter),
        }
    }
}

/// Starts to decode a chunk, and what is left of it when that is asked for.
fn start(pool: DecodePool, decoded_percent: Arc<AtomicUsize>, chunk: TextChunk) -> BoxFuture<'static, Result<Decoded>> {
    let (context, num_bytes) = (Arc::clone(&chunk.context), chunk.bytes.len() - chunk.at);
    let percent = Arc::clone(&decoded_percent);
    let job = pool.spawn(move || {
        let decoded = chunk.decode()?;
        if let (Some(item), None) = (&decoded.item, &decoded.rest) {
            let decoded_bytes = item.batch().get_array_memory_size() + item.num_rows() * size_of::<u64>();
            percent.store(decoded_bytes * 100 / num_bytes.max(1), Ordering::Relaxed);
        }
        Ok(decoded)
    });
    let located = async move {
        let DecodedText { item, fault, rest } = job.await?;
        let fault = match fault {
            Some(record) => Some(located(&context, record).await),
            None => None,
        };
        let rest = rest.map(|chunk| Rest::new(move || start(pool, decoded_percent, chunk)));
        Ok(Decoded { item, fault, rest })
    };
    located.boxed()
}
