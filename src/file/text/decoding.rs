//! How the records of a file are decoded: its header, the columns that are wanted, and what is wrong with a record.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};

use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
use crate::file::FileSource;
use crate::file::fetch::{ListedFile, line_of};
use crate::file::plan::Coding;
#[cfg(feature = "csv")]
use crate::format::csv::{CsvColumn, CsvPlan, first_record};
#[cfg(feature = "json")]
use crate::format::json::JsonPlan;
use crate::format::{DecoderPlan, Format, RecordFault, TextOptions};
use crate::schema::{Fit, Origin};
use crate::source::{ReadRequest, SourceBatch};

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

/// Decodes one chunk up to its first bad record, so that what is read before an error doesn't depend on
/// where the chunks happen to begin, and a limit that is reached before it is reached.
pub(super) fn decode_up_to_fault(
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
