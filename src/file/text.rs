//! Text files: fetched ahead, cut into whole records on one thread, decoded on the pool.
//!
//! ```text
//! fetch task ──ranges in order──▶ cutter thread ──chunks──▶ pool ──ordered──▶ items
//! ```
//!
//! The cutter decompresses, finds each file's header, and cuts. It does nothing else, since it is the one
//! sequential stage. Dropping the stream closes both channels, and task and thread end.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use arrow::datatypes::{FieldRef, SchemaRef};
use bytes::{Buf, Bytes};
use futures::{FutureExt, StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::warn;

use super::fetch::{ListedFile, decompressed, fill, line_of, read_error};
use super::plan::{Compression, Plan, PlannedFile};
use super::{FileSource, FormatOptions};
use crate::budget::{Budget, Permit};
use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
#[cfg(feature = "csv")]
use crate::format::csv::{CsvColumn, CsvCutter, CsvPlan, first_record};
#[cfg(feature = "json")]
use crate::format::json::JsonPlan;
use crate::format::raw::RawDecoder;
use crate::format::{Format, LineCutter, RecordCutter, RecordDecoder, RecordFault};
use crate::ordered::{OrderedReceiver, OrderedSender, Task, ordered, worker_error};
use crate::schema::{Fit, Origin};
use crate::source::{ReadRequest, SourceBatch, SourceStream};

/// Bytes of text that are decoded as one job. Long enough that the costs of a job vanish, short enough that
/// some fit every cache and the smallest budget.
const CHUNK_BYTES: usize = 1 << 20;

/// The smallest chunk, however small the budget.
const MIN_CHUNK_BYTES: usize = 64 << 10;

/// Decoded bytes per 100 bytes of text before any were seen: short numbers in wide columns.
const FIRST_DECODED_PERCENT: usize = 400;

/// Ranges that are fetched ahead.
const RANGES_AHEAD: usize = 4;

pub(super) fn open(source: &FileSource, plan: Plan, request: ReadRequest) -> Result<SourceStream> {
    let runtime = Handle::try_current().map_err(|e| Error::Worker { message: e.to_string() })?;
    let (num_threads, batch_rows) = (request.pool.num_threads(), request.batch_rows);
    let (chunks, receiver) = ordered::<Decoded>(2 * num_threads + 2);
    let (fetched, pieces) = mpsc::channel(RANGES_AHEAD);
    let fetch = Fetch {
        compression: source.compression,
        needs_head: source.header == Some(true),
        budget: request.budget.lane(),
        limit: request.budget.clone(),
    };
    let fetcher = Task::spawn(fetch.run(plan, fetched));
    let cutter = Cutter {
        source: source.clone(),
        last: None,
        budget: request.budget.clone(),
        chunks,
        runtime,
        decoded_percent: Arc::new(AtomicUsize::new(FIRST_DECODED_PERCENT)),
        schema: request.schema(),
        request,
    };
    let handle = thread::Builder::new()
        .name("segue-cut".into())
        .spawn(move || cutter.run(pieces))
        .map_err(|e| Error::Worker { message: format!("no thread to cut on: {e}") })?;
    Ok(items(receiver, fetcher, handle, batch_rows))
}

/// The items one by one; a chunk's permit is held until its last item is taken.
fn items(
    receiver: OrderedReceiver<Decoded>,
    fetcher: Task<()>,
    cutter: thread::JoinHandle<()>,
    batch_rows: usize,
) -> SourceStream {
    let batches = receiver.flat_map(move |held| match held {
        Err(e) => stream::iter([Err(e)]).boxed(),
        Ok(held) => {
            let Decoded { item, fault } = held.value;
            // Cut one by one as they are taken: a batch has costs of its own, however few its rows.
            let items = stream::unfold((item, held.permit), move |(item, permit)| {
                let next = item.map(|item| match item.num_rows() > batch_rows {
                    true => {
                        let (first, rest) = item.split_at(batch_rows);
                        (Ok(first), (Some(rest), permit))
                    }
                    false => (Ok(item), (None, None)),
                });
                futures::future::ready(next)
            });
            items.chain(stream::iter(fault.map(Err))).boxed()
        }
    });
    // A cutter that ended in a panic has closed the window without an error: that must not look like the end.
    // Its end of the window is closed, so it is about to end, and joining it waits for nothing.
    let mut workers = Some((fetcher, cutter));
    let end = stream::poll_fn(move |_| {
        let panicked = workers.take().and_then(|(_, cutter)| cutter.join().err());
        std::task::Poll::Ready(panicked.map(|payload| Err(worker_error(payload.as_ref()))))
    });
    let mut failed = false;
    batches
        .chain(end)
        .take_while(move |item| {
            let go_on = !failed;
            failed |= item.is_err();
            futures::future::ready(go_on)
        })
        .boxed()
}

/// The rows of one chunk, and the bad record behind them, with which reading ends.
struct Decoded {
    item: Option<SourceBatch>,
    fault: Option<Error>,
}

/// What the fetch task hands to the cutter.
enum Fetched {
    /// A file begins; `head` are its first bytes, if the cutter needs them and they don't come anyway.
    File {
        planned: Box<PlannedFile>,
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

/// Reads ahead, in order.
struct Fetch {
    compression: Option<Compression>,
    needs_head: bool,
    budget: Budget,
    /// The same bytes, for their limit.
    limit: Budget,
}

/// One range to be fetched.
enum Want {
    Head(PlannedFile),
    Range { file: ListedFile, range: std::ops::Range<u64>, permit: Permit, is_last: bool },
    Failed(Error),
}

impl Fetch {
    async fn run(self, plan: Plan, out: mpsc::Sender<Fetched>) -> Result<()> {
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
                    let end = file.size().min(start + fetch.range_bytes());
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

    fn range_bytes(&self) -> u64 {
        (self.limit.limit_bytes() / (8 * RANGES_AHEAD)).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES) as u64
    }
}

/// What decoding the chunks of one file needs.
#[derive(Debug)]
struct FileContext {
    file: ListedFile,
    compression: Compression,
    decoding: Arc<Decoding>,
    /// Whether nobody gave the schema.
    is_inferred: bool,
    /// The first record, if it is data: a bad value there may be a header.
    first_record: Option<u64>,
}

/// How the records of files with one header are decoded.
#[derive(Debug)]
struct Decoding {
    header: Option<Vec<String>>,
    decoder: DecoderPlan,
    fit: Fit,
}

#[derive(Debug)]
enum DecoderPlan {
    #[cfg(feature = "csv")]
    Csv(CsvPlan),
    #[cfg(feature = "json")]
    Json(JsonPlan),
    Raw,
}

impl DecoderPlan {
    fn decoder(&self, rows: usize) -> Result<Box<dyn RecordDecoder>> {
        Ok(match self {
            #[cfg(feature = "csv")]
            Self::Csv(plan) => Box::new(plan.decoder(rows)?),
            #[cfg(feature = "json")]
            Self::Json(plan) => Box::new(plan.decoder(rows)?),
            Self::Raw => {
                let _ = rows;
                Box::new(RawDecoder::default())
            }
        })
    }
}

/// The one sequential stage: decompresses, finds headers, cuts.
struct Cutter {
    source: FileSource,
    /// How the file before was decoded.
    last: Option<Arc<Decoding>>,
    budget: Budget,
    chunks: OrderedSender<Decoded>,
    runtime: Handle,
    /// Decoded bytes per 100 bytes of text, as seen last.
    decoded_percent: Arc<AtomicUsize>,
    schema: SchemaRef,
    request: ReadRequest,
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
    fn run(mut self, mut pieces: mpsc::Receiver<Fetched>) {
        let stop = loop {
            match pieces.blocking_recv() {
                None => return,
                Some(Fetched::Failed(e)) => break Stop::Failed(e),
                Some(Fetched::Bytes { .. }) => {
                    break Stop::Failed(Error::Worker { message: "bytes before their file".into() });
                }
                Some(Fetched::File { planned, head }) => {
                    if let Err(stop) = self.file(*planned, head, &mut pieces) {
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
        head: Option<Bytes>,
        pieces: &mut mpsc::Receiver<Fetched>,
    ) -> Result<(), Stop> {
        let PlannedFile { file, start } = planned;
        let compression = compression_of(self.source.compression, &file);
        let mut stored = StoredPieces { pieces, ended: false };
        if compression == Compression::None {
            return self.records(file, compression, start, head, &mut || stored.next());
        }
        let url = Arc::clone(&file.url);
        let failed = |e| read_error(&url, compression, e);
        let chunk_bytes = self.chunk_bytes();
        let mut reader =
            decompressed(compression, StoredRead { pieces: &mut stored, buffer: Bytes::new() }).map_err(failed)?;
        let needs_head = start > 0 && self.source.header == Some(true);
        let mut head = None;
        if start > 0 {
            // What was read before has to be decompressed again, but isn't cut or decoded.
            let mut left = start;
            let mut buffer = vec![0; chunk_bytes];
            while left > 0 {
                let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let len = fill(&mut reader, &mut buffer[..wanted]).map_err(failed)?;
                if len == 0 {
                    let difference = format!("it ends before byte {start} of its decompressed data");
                    return Err(Error::Changed { path: url.to_string(), difference }.into());
                }
                if needs_head && head.is_none() {
                    head = Some(Bytes::copy_from_slice(&buffer[..len]));
                }
                left -= len as u64;
            }
        }
        let mut next = move || {
            let mut buffer = vec![0; chunk_bytes];
            let len = fill(&mut reader, &mut buffer).map_err(failed)?;
            buffer.truncate(len);
            Ok(Some((Bytes::from(buffer), len < chunk_bytes)))
        };
        self.records(file, compression, start, head, &mut next)
    }

    /// Cuts one file's bytes, which begin at `start` of the decompressed file. `head` are the file's first bytes,
    /// if they are needed and don't come anyway.
    fn records(
        &mut self,
        file: ListedFile,
        compression: Compression,
        start: u64,
        head: Option<Bytes>,
        next_piece: &mut dyn FnMut() -> Result<Option<(Bytes, bool)>>,
    ) -> Result<(), Stop> {
        let is_inferred = self.source.is_inferred;
        let context_of = |decoding, first_record| {
            Arc::new(FileContext { file: file.clone(), compression, decoding, is_inferred, first_record })
        };
        let mut context = None;
        if start > 0 {
            let (first_bytes, at_end) = head.as_deref().map_or((&[][..], true), |head| (head, false));
            let (decoding, _) = self.decoding(&file, first_bytes, at_end)?.ok_or_else(|| no_header(&file))?;
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
            let mut data = joined(carry, piece);
            let context = match &context {
                Some(context) => context,
                None => {
                    check_encoding(&file.url, &data)?;
                    let Some((decoding, header_bytes)) = self.decoding(&file, &data, is_last)? else {
                        self.check_length(&file, position, data.len())?;
                        carry = data;
                        continue;
                    };
                    data.advance(header_bytes);
                    position += header_bytes as u64;
                    let first_record = (self.source.header == Some(false)).then_some(position);
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
        let allowed = (self.budget.limit_bytes() / 4).max(2 * CHUNK_BYTES);
        if len <= allowed {
            return Ok(());
        }
        let place = format!("{}: the record at byte {position}", file.url);
        Err(Error::Memory { place, needed_bytes: len as u64, allowed_bytes: allowed as u64 })
    }

    fn submit(&mut self, context: Arc<FileContext>, chunk: Bytes, position: u64, advance: Advance) -> Result<(), Stop> {
        if chunk.is_empty() {
            let item = Some(SourceBatch::progress(Arc::clone(&self.schema), vec![advance]));
            let progress = Decoded { item, fault: None };
            return self
                .chunks
                .submit_blocking(futures::future::ready(Ok(progress)).boxed(), None)
                .map_err(|_| Stop::Closed);
        }
        let estimate = chunk.len() + chunk.len() * self.decoded_percent.load(Ordering::Relaxed) / 100;
        let permit = self.runtime.block_on(async {
            tokio::select! {
                permit = self.budget.acquire(estimate) => Some(permit),
                () = self.chunks.closed() => None,
            }
        });
        let Some(permit) = permit else { return Err(Stop::Closed) };
        let job_context = Arc::clone(&context);
        let decoded_percent = Arc::clone(&self.decoded_percent);
        let job = self.request.pool.spawn(move || {
            let (item, fault) = decode_up_to_fault(&job_context, &chunk, position, advance)?;
            if let Some(item) = &item {
                let decoded_bytes = item.batch().get_array_memory_size() + item.num_rows() * size_of::<u64>();
                decoded_percent.store(decoded_bytes * 100 / chunk.len(), Ordering::Relaxed);
            }
            Ok(Decoded { item, fault })
        });
        let located = async move {
            let mut decoded = job.await?;
            if let Some(Error::BadRecord(record)) = decoded.fault {
                decoded.fault = Some(located(&context, *record).await);
            }
            Ok(decoded)
        };
        self.chunks.submit_blocking(located.boxed(), Some(permit)).map_err(|_| Stop::Closed)
    }

    fn chunk_bytes(&self) -> usize {
        (self.budget.limit_bytes() / (8 * RANGES_AHEAD)).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES)
    }

    fn cutter(&self) -> Box<dyn RecordCutter> {
        match self.source.format {
            #[cfg(feature = "csv")]
            Format::Csv => Box::new(CsvCutter::new(self.source.options.csv.dialect())),
            _ => Box::new(LineCutter),
        }
    }

    /// How to decode a file that begins with `data`, and how many of its bytes come before the first row;
    /// `None` if more is needed to tell.
    fn decoding(&mut self, file: &ListedFile, data: &[u8], at_end: bool) -> Result<Option<(Arc<Decoding>, usize)>> {
        #[cfg(feature = "csv")]
        if self.source.format == Format::Csv {
            return self.csv_decoding(file, data, at_end);
        }
        let _ = at_end;
        if let Some(last) = &self.last {
            return Ok(Some((Arc::clone(last), bom_bytes(data))));
        }
        let decoding = Arc::new(match self.source.format {
            #[cfg(feature = "json")]
            Format::Json => self.json_decoding(file)?,
            _ => self.raw_decoding(file)?,
        });
        self.last = Some(Arc::clone(&decoding));
        Ok(Some((decoding, bom_bytes(data))))
    }

    fn raw_decoding(&self, file: &ListedFile) -> Result<Decoding> {
        let value = crate::format::raw::schema();
        let fit = self.fit(file, |name, _| {
            Ok(value.column_with_name(name).map(|(index, field)| (index, field.data_type().clone())))
        })?;
        Ok(Decoding { header: None, decoder: DecoderPlan::Raw, fit })
    }

    #[cfg(feature = "json")]
    fn json_decoding(&self, file: &ListedFile) -> Result<Decoding> {
        let mut columns: Vec<(String, FieldRef)> = Vec::new();
        let fit = self.fit(file, |name, field| {
            columns.push((name.to_owned(), self.decoded_field(field)));
            Ok(Some((columns.len() - 1, field.data_type().clone())))
        })?;
        let plan = JsonPlan::try_new(columns, &self.source.options.json)?;
        Ok(Decoding { header: None, decoder: DecoderPlan::Json(plan), fit })
    }

    #[cfg(feature = "csv")]
    fn csv_decoding(&mut self, file: &ListedFile, data: &[u8], at_end: bool) -> Result<Option<(Arc<Decoding>, usize)>> {
        let FormatOptions { csv, .. } = &self.source.options;
        let has_header = self.source.header == Some(true);
        let bom = bom_bytes(data);
        let mut before_rows = bom;
        let mut header = None;
        if has_header || (csv.ignore_first_line && !data.is_empty()) {
            let first = first_record(&csv.dialect(), &data[bom..], at_end).map_err(|why| {
                let message = format!("the first record has broken quotes ({why:?})");
                Error::BadRecord(Box::new(BadRecord::new(&*file.url, 0, PositionUnit::Byte, message)))
            })?;
            match first {
                Some((fields, next)) => {
                    before_rows += next;
                    header = has_header.then_some(fields);
                }
                None if at_end => before_rows = data.len(),
                None => return Ok(None),
            }
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.header == header) {
            return Ok(Some((Arc::clone(last), before_rows)));
        }
        let mapping = &self.source.mapping;
        let schema = &self.source.schema;
        if let Some(header) = &header {
            let inputs: Vec<&str> = schema.fields().iter().filter_map(|field| mapping.input(field.name())).collect();
            let names_any = inputs.iter().any(|input| header.iter().any(|name| name == input));
            if !names_any && !inputs.is_empty() {
                let names = inputs.join(", ");
                return Err(Error::Schema(format!("{}: its header names none of the columns {names}", file.url)));
            }
            let extra = || header.iter().map(String::as_str).filter(|name| !inputs.contains(name));
            self.source.warn_of_extra(&file.url, extra());
            if let (crate::schema::OnExtra::Fail, Some(extra)) = (mapping.on_extra, extra().next()) {
                return Err(Error::Schema(format!(
                    "{}: column {extra} isn't in the schema, and schema.extra-column is fail",
                    file.url
                )));
            }
        }
        let mut columns: Vec<CsvColumn> = Vec::new();
        let fit = self.fit(file, |name, field| {
            let index = match &header {
                // Columns go by their place in the schema, among those that are read at all.
                None => schema
                    .fields()
                    .iter()
                    .filter_map(|field| mapping.input(field.name()))
                    .position(|input| input == name),
                Some(header) => {
                    let mut places =
                        header.iter().enumerate().filter(|(_, known)| *known == name).map(|(index, _)| index);
                    let first = places.next();
                    if places.next().is_some() {
                        return Err(Error::Schema(format!("{}: its header names column {name} twice", file.url)));
                    }
                    first
                }
            };
            let Some(index) = index else { return Ok(None) };
            columns.push(CsvColumn { index, field: self.decoded_field(field) });
            Ok(Some((columns.len() - 1, field.data_type().clone())))
        })?;
        let num_fields = match &header {
            Some(header) => header.len(),
            None => schema.fields().iter().filter(|field| mapping.input(field.name()).is_some()).count(),
        };
        let decoder = DecoderPlan::Csv(CsvPlan::new(csv, columns, num_fields));
        let decoding = Arc::new(Decoding { header, decoder, fit });
        self.last = Some(Arc::clone(&decoding));
        Ok(Some((decoding, before_rows)))
    }

    fn fit(
        &self,
        file: &ListedFile,
        find: impl FnMut(&str, &FieldRef) -> Result<Option<(usize, arrow::datatypes::DataType)>>,
    ) -> Result<Fit> {
        let target = self.request.fit_target(&self.source.mapping, &file.url);
        let fit = Fit::try_new(&target, find)?;
        self.source.warn_of_missing(&file.url, fit.missing());
        Ok(fit)
    }

    /// A column with a default may be null until the default is put in its place.
    fn decoded_field(&self, field: &FieldRef) -> FieldRef {
        match self.source.mapping.columns.get(field.name()) {
            Some(rule) if rule.default.is_some() => Arc::new(field.as_ref().clone().with_nullable(true)),
            _ => Arc::clone(field),
        }
    }
}

/// The chosen compression, or the one of the suffix. A file without a byte holds nothing to decompress.
fn compression_of(chosen: Option<Compression>, file: &ListedFile) -> Compression {
    if file.size() == 0 {
        return Compression::None;
    }
    chosen.unwrap_or_else(|| Compression::of_file(file.id.as_str()))
}

impl FileSource {
    /// Warns once of columns that some file lacks.
    pub(super) fn warn_of_missing(&self, place: &str, missing: &[String]) {
        let new = self.newly_warned(missing.iter().map(String::as_str));
        if !new.is_empty() {
            let (plural, verb) = if new.len() == 1 { ("", "is") } else { ("s", "are") };
            warn!("{place}: column{plural} {} {verb} missing and null there (said once)", new.join(", "));
        }
    }

    /// Warns once of columns that an inferred schema lacks: nobody chose to leave them out.
    pub(super) fn warn_of_extra<'a>(&self, place: &str, extra: impl Iterator<Item = &'a str>) {
        if !self.is_inferred {
            return;
        }
        let new = self.newly_warned(extra);
        if !new.is_empty() {
            let (plural, verb) = if new.len() == 1 { ("", "isn't") } else { ("s", "aren't") };
            let names = new.join(", ");
            warn!(
                "{place}: column{plural} {names} {verb} in the inferred schema and {verb} read (said once); --schema can name more"
            );
        }
    }

    fn newly_warned<'a>(&self, columns: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let mut warned = self.warned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        columns.filter(|column| warned.insert((*column).to_owned())).collect()
    }
}

/// Decodes one chunk up to its first bad record, so that what is read before an error doesn't depend on
/// where the chunks happen to begin, and a limit that is reached before it is reached.
fn decode_up_to_fault(
    context: &FileContext,
    chunk: &[u8],
    position: u64,
    advance: Advance,
) -> Result<(Option<SourceBatch>, Option<Error>)> {
    let (mut end, mut found) = (chunk.len(), None);
    loop {
        let is_whole = end == chunk.len();
        let advance = if is_whole {
            advance.clone()
        } else {
            Advance::new(advance.split.clone(), advance.from, position + end as u64)
        };
        match decode(context, &chunk[..end], position, advance) {
            Ok(item) => return Ok((Some(item), found)),
            // Each time it is an earlier record: one may be bad for its schema and a later one for its format.
            Err(Error::BadRecord(record)) => {
                end = (record.position - position) as usize;
                found = Some(Error::BadRecord(record));
                if end == 0 {
                    return Ok((None, found));
                }
            }
            Err(e) => return Err(e),
        }
    }
}

/// Decodes one chunk: whole records that start at `position` of their file.
fn decode(context: &FileContext, chunk: &[u8], position: u64, advance: Advance) -> Result<SourceBatch> {
    let decoding = &context.decoding;
    let rows = memchr::memchr_iter(b'\n', chunk).count() + 1;
    let mut decoder = decoding.decoder.decoder(rows)?;
    let mut starts = Vec::with_capacity(rows);
    decoder.decode(chunk, &mut starts).map_err(|fault| bad_record(context, position, fault))?;
    for start in &mut starts {
        *start += position;
    }
    let batch = decoder.finish()?;
    let positions = RowPositions::starts(starts);
    let origin =
        Origin { split: Some(context.file.id.as_str()), path: Some(&context.file.url), rows: &positions, own: &[] };
    let batch = decoding.fit.apply(&batch, &origin).map_err(|fault| {
        let start = positions.position(fault.row).unwrap_or(position);
        let place = RecordFault::new((start - position) as usize, fault.message).in_column(fault.column);
        bad_record(context, position, place)
    })?;
    SourceBatch::try_new(batch, positions, vec![advance])
}

fn bad_record(context: &FileContext, position: u64, fault: RecordFault) -> Error {
    let position = position + fault.start as u64;
    let mut record = BadRecord::new(&*context.file.url, position, PositionUnit::Byte, fault.message);
    let is_first = context.first_record == Some(position) && fault.column.is_some();
    let hint = if is_first {
        Some("it looks like a header: set csv.header=true")
    } else if context.is_inferred && fault.column.is_some() {
        Some("the schema was inferred from the first records; --schema says what it really is")
    } else {
        None
    };
    record.hint = fault.hint.or_else(|| hint.map(Into::into));
    record.column = fault.column;
    Error::BadRecord(Box::new(record))
}

/// Adds the line to a bad record's place. It is looked for only now, since only an error shows it.
async fn located(context: &FileContext, mut record: BadRecord) -> Error {
    // Without the line the place is still exact; the record's own fault counts more than one of counting.
    record.line = line_of(context.file.clone(), context.compression, record.position).await.ok();
    Error::BadRecord(Box::new(record))
}

fn no_header(file: &ListedFile) -> Error {
    Error::Changed { path: file.url.to_string(), difference: "its first record isn't a header any more".into() }
}

/// A byte order mark of UTF-8 is no part of the first record.
pub(super) fn bom_bytes(data: &[u8]) -> usize {
    if data.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }
}

pub(super) fn check_encoding(url: &str, data: &[u8]) -> Result<()> {
    if data.starts_with(b"\xff\xfe") || data.starts_with(b"\xfe\xff") {
        return Err(Error::Unsupported(format!("{url}: text in UTF-16 is not in this version")));
    }
    Ok(())
}

fn joined(carry: Bytes, piece: Bytes) -> Bytes {
    if carry.is_empty() {
        return piece;
    }
    let mut data = Vec::with_capacity(carry.len() + piece.len());
    data.extend_from_slice(&carry);
    data.extend_from_slice(&piece);
    data.into()
}

/// The stored bytes of one file, as they come from the fetch task.
struct StoredPieces<'a> {
    pieces: &'a mut mpsc::Receiver<Fetched>,
    ended: bool,
}

impl StoredPieces<'_> {
    /// The next bytes, and whether they are the last; `None` if the stream was dropped.
    fn next(&mut self) -> Result<Option<(Bytes, bool)>> {
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

/// The same as a reader, for decompression.
struct StoredRead<'a, 'b> {
    pieces: &'a mut StoredPieces<'b>,
    buffer: Bytes,
}

impl Read for StoredRead<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.buffer.is_empty() {
            if self.pieces.ended {
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
