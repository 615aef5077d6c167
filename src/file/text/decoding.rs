//! How the records of a file are decoded: its header, the columns that are wanted, and what is wrong with a record.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use bytes::Bytes;

use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
use crate::file::FileSource;
use crate::file::fetch::{ListedFile, line_of};
use crate::file::plan::Coding;
#[cfg(feature = "csv")]
use crate::format::csv::{CsvColumn, CsvPlan, FirstRecord};
#[cfg(feature = "json")]
use crate::format::json::JsonPlan;
use crate::format::{DecoderPlan, Format, RecordDecoder, RecordFault, TextOptions, without_line_end};
use crate::schema::{Fit, Origin};
use crate::source::{BadRecords, MAX_REJECT_BYTES, ReadRequest, Reject, SourceBatch, fit_rows};

/// What decoding the chunks of one file needs.
#[derive(Debug)]
pub(super) struct FileContext {
    pub(super) file: ListedFile,
    pub(super) coding: Coding,
    pub(super) decoding: Arc<Decoding>,
    /// Whether nobody gave the schema.
    pub(super) is_inferred: bool,
    /// The first record, if it is data: a bad value there may be a header.
    pub(super) first_record: Option<u64>,
    pub(super) bad_records: BadRecords,
}

/// How the records of files with one header are decoded.
#[derive(Debug)]
pub(super) struct Decoding {
    header: Option<Vec<String>>,
    decoder: DecoderPlan,
    fit: Fit,
}

/// Finds how to decode each file. Files with one header are decoded alike.
pub(super) struct Decodings {
    source: FileSource,
    request: ReadRequest,
    /// How the file before was decoded.
    last: Option<Arc<Decoding>>,
}

impl Decodings {
    pub(super) fn new(source: FileSource, request: ReadRequest) -> Self {
        Self { source, request, last: None }
    }

    /// How to decode a file that begins with `data`, and how many of its bytes come before the first row;
    /// `None` if more is needed to tell.
    pub(super) fn of_file(
        &mut self,
        file: &ListedFile,
        data: &[u8],
        at_end: bool,
    ) -> Result<Option<(Arc<Decoding>, usize)>> {
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
            columns.push((name.to_owned(), self.source.mapping.decoded_field(field)));
            Ok(Some((columns.len() - 1, field.data_type().clone())))
        })?;
        let plan = JsonPlan::try_new(columns, &self.source.options.json)?;
        Ok(Decoding { header: None, decoder: DecoderPlan::Json(plan), fit })
    }

    #[cfg(feature = "csv")]
    fn csv_decoding(&mut self, file: &ListedFile, data: &[u8], at_end: bool) -> Result<Option<(Arc<Decoding>, usize)>> {
        let TextOptions { csv, .. } = &self.source.options;
        let has_header = self.source.header == Some(true);
        let bom = bom_bytes(data);
        let mut before_rows = bom;
        let mut header = None;
        if has_header || (csv.ignore_first_line && !data.is_empty()) {
            let dialect = csv.dialect();
            let at_fault = |fault: RecordFault| {
                let position = (bom + fault.start) as u64;
                let record = BadRecord::new(&*file.url, position, PositionUnit::Byte, fault.reason, fault.message);
                Error::BadRecord(Box::new(BadRecord { hint: fault.hint, ..record }))
            };
            match FirstRecord::find(&dialect, &data[bom..], at_end) {
                // What is dropped anyway needn't be right.
                Err(fault) if !has_header => before_rows += fault.end,
                Err(fault) => return Err(at_fault(fault)),
                Ok(Some(first)) => {
                    before_rows += first.next();
                    header = has_header.then(|| first.fields()).transpose().map_err(at_fault)?;
                }
                Ok(None) if at_end => before_rows = data.len(),
                Ok(None) => return Ok(None),
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
            columns.push(CsvColumn { index, field: self.source.mapping.decoded_field(field) });
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
        find: impl FnMut(&str, &FieldRef) -> Result<Option<(usize, DataType)>>,
    ) -> Result<Fit> {
        let target = self.request.fit_target(&self.source.mapping, &file.url);
        let fit = Fit::try_new(&target, find)?;
        self.source.warn_of_missing(&file.url, fit.missing());
        Ok(fit)
    }
}

/// Whole records of one file.
#[derive(Debug)]
pub(super) struct TextChunk {
    pub(super) context: Arc<FileContext>,
    pub(super) bytes: Bytes,
    /// Where the bytes stand in the file.
    pub(super) position: u64,
    /// The move over what is left of the chunk, and where that begins among the bytes. What comes before the first
    /// record belongs to the move.
    pub(super) advance: Advance,
    pub(super) at: usize,
    /// What decoded the records before, if some were: it knows what it saw of the chunk.
    pub(super) decoder: Option<Box<dyn RecordDecoder>>,
}

/// What a chunk gives: rows, and if it stopped early the bad record at which it did, or what is left.
#[derive(Debug)]
pub(super) struct DecodedText {
    pub(super) item: Option<SourceBatch>,
    pub(super) fault: Option<BadRecord>,
    pub(super) rest: Option<TextChunk>,
}

impl TextChunk {
    /// Decodes it, up to the first bad record if those fail: what is read before an error doesn't depend on where the
    /// chunks happen to begin, and a limit that is reached before it is reached.
    pub(super) fn decode(mut self) -> Result<DecodedText> {
        let Decoding { decoder, fit, .. } = &*self.context.decoding;
        let bad_records = self.context.bad_records;
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => decoder.decoder(self.expected_rows())?,
        };
        let mut starts = Vec::with_capacity(self.expected_rows());
        let (mut rejects, mut reject_bytes, mut fault) = (Vec::new(), 0, None);
        let next = decoder.decode(&self.bytes, self.at, &mut starts, &mut |bad| {
            if bad_records == BadRecords::Fail {
                fault = Some(bad);
                return ControlFlow::Break(());
            }
            let reject = self.reject(bad);
            reject_bytes += reject.num_bytes();
            rejects.push(reject);
            if reject_bytes > MAX_REJECT_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        for start in &mut starts {
            *start += self.position;
        }
        let positions = RowPositions::starts(starts);
        let FileContext { file, .. } = &*self.context;
        let origin = Origin { split: Some(file.id.as_str()), path: Some(&file.url), rows: &positions, own: &[] };
        let fitted = fit_rows(fit, &decoder.finish()?, &origin, bad_records)?;
        for row in fitted.faults {
            let start = (positions.position(row.row).unwrap_or(self.position) - self.position) as usize;
            let bad = RecordFault::new(start..next, row.reason, row.message).in_column(row.column);
            match bad_records {
                BadRecords::Fail => fault = Some(bad),
                // Where the record ends isn't known any more. Values have their types by now, so this hardly comes up.
                _ => rejects.push(Reject { raw: None, ..self.reject(bad) }),
            }
        }
        rejects.sort_by_key(|reject| reject.record.position);
        let end = fault.as_ref().map_or(next, |fault| fault.start);
        let is_whole = end == self.bytes.len() && fault.is_none();
        let Advance { split, from, .. } = &self.advance;
        let advance = match is_whole {
            true => self.advance.clone(),
            false => Advance::new(split.clone(), *from, self.position + end as u64),
        };
        let (from, to) = (advance.to, self.advance.to);
        let item = (end > self.at)
            .then(|| {
                SourceBatch::try_new(fitted.batch, fitted.rows, vec![advance]).map(|item| item.with_rejects(rejects))
            })
            .transpose()?;
        let fault = fault.map(|fault| bad_record(&self.context, self.position, fault));
        let rest = (!is_whole && fault.is_none()).then(|| {
            let advance = Advance { from, to, ..self.advance.clone() };
            TextChunk { advance, at: end, decoder: Some(decoder), ..self }
        });
        Ok(DecodedText { item, fault, rest })
    }

    /// About how many rows there are, by the first lines.
    fn expected_rows(&self) -> usize {
        const SAMPLE_BYTES: usize = 4 << 10;
        let left = &self.bytes[self.at..];
        let sample = &left[..left.len().min(SAMPLE_BYTES)];
        let num_lines = memchr::memchr_iter(b'\n', sample).count() + 1;
        num_lines * left.len().div_ceil(sample.len().max(1))
    }

    fn reject(&self, fault: RecordFault) -> Reject {
        let is_kept = self.context.bad_records == BadRecords::Keep;
        let raw = is_kept.then(|| {
            let raw = without_line_end(&self.bytes[fault.start..fault.end]);
            // A small part shouldn't keep the whole.
            if raw.len() < self.bytes.len() / 8 { Bytes::copy_from_slice(raw) } else { self.bytes.slice_ref(raw) }
        });
        let record = bad_record(&self.context, self.position, fault);
        Reject { split: self.context.file.id.clone(), record, is_kept, raw }
    }
}

fn bad_record(context: &FileContext, position: u64, fault: RecordFault) -> BadRecord {
    let position = position + fault.start as u64;
    let mut record = BadRecord::new(&*context.file.url, position, PositionUnit::Byte, fault.reason, fault.message);
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
    record
}

/// Adds the line to a bad record's place. It is looked for only now, since only an error shows it.
pub(super) async fn located(context: &FileContext, mut record: BadRecord) -> Error {
    // Without the line the place is still exact; the record's own fault counts more than one of counting.
    record.line = line_of(context.file.clone(), context.coding, record.position).await.ok();
    Error::BadRecord(Box::new(record))
}

pub(super) fn no_header(file: &ListedFile) -> Error {
    Error::Changed { path: file.url.to_string(), difference: "its first record isn't a header any more".into() }
}

/// A byte order mark of UTF-8 is no part of the first record.
pub(in crate::file) fn bom_bytes(data: &[u8]) -> usize {
    if data.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }
}

/// Text of other formats than CSV has to be UTF-8.
pub(in crate::file) fn check_encoding(url: &str, data: &[u8]) -> Result<()> {
    if data.starts_with(b"\xff\xfe") || data.starts_with(b"\xfe\xff") {
        let what = "only CSV is read from UTF-16; write it as UTF-8";
        return Err(Error::Unsupported(format!("{url}: {what}")));
    }
    Ok(())
}
