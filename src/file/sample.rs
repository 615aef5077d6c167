//! A look at the files before anything is read: format, header, schema.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use arrow::datatypes::DataType;
use arrow::datatypes::SchemaRef;
use tokio::runtime::Handle;
#[cfg(feature = "csv")]
use tracing::warn;

use super::discover::{FileMeta, Location};
use super::fetch::{ListedFile, SequentialRead, fill, read_error, text_of};
use super::plan::{self, Coding, Compression};
use super::text::{bom_bytes, check_encoding};
use super::{FileSource, FileSourceBuilder};
use crate::error::{BadRecord, Error, PositionUnit, Result};
#[cfg(feature = "csv")]
use crate::format::csv::{CsvSample, FirstRecord, Header, Inference, has_header};
#[cfg(feature = "csv")]
use crate::format::without_compression;
use crate::format::{Format, RecordFault, TextOptions};

/// Records from which a schema is inferred.
const SAMPLE_RECORDS: usize = 20_480;

/// Bytes from which a schema is inferred, at most, however long the records are.
const SAMPLE_BYTES: usize = 16 << 20;

/// Files that are looked into, at most.
const SAMPLE_FILES: usize = 64;

/// The start of the text of one of a source's first files.
struct Sample {
    url: Arc<str>,
    bytes: Vec<u8>,
    at_end: bool,
    /// What stands before: a byte order mark, blank lines.
    skipped_bytes: usize,
    skipped_lines: usize,
}

pub(super) async fn build(builder: FileSourceBuilder) -> Result<FileSource> {
    let FileSourceBuilder {
        path,
        store,
        name,
        format,
        compression,
        schema,
        mapping,
        #[cfg_attr(not(feature = "csv"), expect(unused_mut, reason = "only CSV has an option that files decide"))]
        mut options,
        on_new_files,
        allow_empty,
        stored,
        is_inferred,
    } = builder;
    let is_inferred = is_inferred || schema.is_none();
    #[cfg(feature = "csv")]
    options.csv.check()?;
    let is_done = stored.as_ref().is_some_and(|state| state.is_done());
    let location = match store {
        Some(store) => Location::in_store(store, &path)?,
        // A finished source may be gone.
        None if is_done => Location::parse(&path).or_else(|_| Location::gone(&path))?,
        None => Location::parse(&path)?,
    };
    let given_format = format;
    let stored_format =
        stored.as_ref().and_then(|state| state.options.get("format")).map(|format| format.parse()).transpose()?;
    let given = format.or(stored_format);
    let mut listed = None;
    let format = match (given, &stored) {
        (Some(format), Some(_)) => Some(format),
        _ => {
            let found = plan::of_format(location.list().await?, given, location.text())?;
            plan::not_empty(&found.files, found.num_skipped, &location, allow_empty)?;
            listed = Some(found.files);
            found.format
        }
    };
    let Some(format) = format.or_else(|| allow_empty.then_some(Format::Raw)) else {
        return Err(Error::NotFound { what: format!("{}: no matching files", location.text()) });
    };
    built_in(format)?;
    #[cfg(feature = "csv")]
    if format == Format::Csv && options.csv.delimiter.is_none() {
        let stored_delimiter = stored.as_ref().and_then(|state| state.options.get("csv.field-delimiter"));
        options.csv.delimiter = match stored_delimiter {
            Some(stored) => stored.chars().next(),
            None => delimiter_of(listed.as_deref().unwrap_or_default(), location.text())?,
        };
    }
    let looker = Looker {
        location: &location,
        compression,
        format,
        options: &options,
        files: listed.as_deref().unwrap_or_default(),
    };
    let (schema, header) = match format {
        #[cfg(feature = "csv")]
        Format::Csv => {
            let stored_header =
                stored.as_ref().and_then(|state| state.notes.get("header")).and_then(serde_json::Value::as_bool);
            csv_shape(&looker, &options.csv, &mapping, schema, stored_header).await?
        }
        _ => {
            let schema = match schema {
                Some(schema) => schema,
                None => looker.schema().await?,
            };
            (schema, None)
        }
    };
    mapping.check(&schema)?;
    Ok(FileSource {
        name: name.unwrap_or_else(|| location.text().to_owned()),
        location,
        format,
        given_format,
        compression,
        schema,
        mapping,
        options,
        header,
        on_new_files,
        listed: Arc::new(Mutex::new(listed)),
        warned: Arc::new(Mutex::new(BTreeSet::new())),
        is_inferred,
        allow_empty,
    })
}

/// A tab for `.tsv` files, and nothing in particular for others.
///
/// # Errors
/// [`Error::Schema`] for a mix of both.
#[cfg(feature = "csv")]
fn delimiter_of(files: &[FileMeta], place: &str) -> Result<Option<char>> {
    let is_tab_separated = |file: &&FileMeta| without_compression(file.id.as_str()).ends_with(".tsv");
    match files.iter().filter(is_tab_separated).count() {
        0 => Ok(None),
        n if n == files.len() => Ok(Some('\t')),
        n => Err(Error::Schema(format!(
            "{place}: {n} of {} files are tab-separated by their suffix; take one kind by a glob, or set csv.field-delimiter",
            files.len()
        ))),
    }
}

fn built_in(format: Format) -> Result<()> {
    let has = match format {
        Format::Csv => cfg!(feature = "csv"),
        Format::Json => cfg!(feature = "json"),
        Format::Parquet => cfg!(feature = "parquet"),
        Format::Raw => true,
    };
    if has {
        Ok(())
    } else {
        Err(Error::Unsupported(format!("this build reads no {format}: build with --features {format}")))
    }
}

#[cfg(feature = "csv")]
async fn csv_shape(
    looker: &Looker<'_>,
    options: &crate::format::CsvOptions,
    mapping: &crate::schema::Mapping,
    schema: Option<SchemaRef>,
    stored_header: Option<bool>,
) -> Result<(SchemaRef, Option<bool>)> {
    let chosen = match options.header {
        _ if options.ignore_first_line => Some(false),
        Header::Yes => Some(true),
        Header::No => Some(false),
        Header::Auto => stored_header,
    };
    let dialect = options.dialect();
    let Some(schema) = schema else {
        let samples = looker.samples().await?;
        let Some((first, more)) = samples.split_first() else { return Err(no_records(looker.location)) };
        if chosen != Some(false) {
            // It may be a header, which must be understood.
            let record = FirstRecord::find(&dialect, &first.bytes, first.at_end);
            record
                .and_then(|record| record.map(|record| record.fields()).transpose())
                .map_err(|fault| first.fault(fault))?;
        }
        let of_rows = |bytes, sample: &Sample, max_records| {
            let bytes = if options.ignore_first_line { after_first(&dialect, bytes) } else { bytes };
            CsvSample { bytes, at_end: sample.at_end, max_records }
        };
        let url = &first.url;
        let mut inference = Inference::begin(options, of_rows(&first.bytes, first, SAMPLE_RECORDS), chosen, url)?;
        for sample in more {
            let missing = SAMPLE_RECORDS.saturating_sub(inference.num_records());
            inference.add(options, of_rows(&sample.bytes, sample, missing));
        }
        let header = inference.header();
        let schema = inference.schema(options);
        if schema.fields().is_empty() {
            return Err(no_records(looker.location));
        }
        if chosen.is_none() && header && !has_two_lines(&first.bytes) {
            warn!("{url}: its one line is taken as a header without rows; csv.header=false makes it a row");
        }
        if chosen.is_none() && !header && schema.fields().iter().all(|field| *field.data_type() == DataType::Utf8) {
            warn!(
                "{url}: its first line is taken as a row, since nothing but text comes behind it; csv.header=true makes it a header"
            );
        }
        if let Some(format) = &options.timestamp_format
            && !schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Timestamp(..)))
        {
            warn!(
                "{url}: in no column all values are written as csv.timestamp-format has it ({format}), so none is a TIMESTAMP; \
                 a schema says which is"
            );
        }
        return Ok((Arc::new(schema), Some(header)));
    };
    if let Some(header) = chosen {
        return Ok((schema, Some(header)));
    }
    let Some(sample) = looker.first_record().await? else { return Ok((schema, Some(false))) };
    let first = FirstRecord::find(&dialect, &sample.bytes, sample.at_end)
        .and_then(|record| record.map(|record| record.fields()).transpose())
        .map_err(|fault| sample.fault(fault))?;
    let header = match first {
        Some(first) => {
            let wanted: Vec<&str> = schema.fields().iter().filter_map(|field| mapping.input(field.name())).collect();
            has_header(&first, &wanted, &sample.url)?
        }
        None => false,
    };
    Ok((schema, Some(header)))
}

#[cfg(feature = "csv")]
fn after_first<'a>(dialect: &crate::format::csv::Dialect, bytes: &'a [u8]) -> &'a [u8] {
    match FirstRecord::find(dialect, bytes, true) {
        Ok(Some(record)) => &bytes[record.next()..],
        _ => bytes,
    }
}

fn no_records(location: &Location) -> Error {
    Error::NoRecords { path: location.text().to_owned() }
}

/// Looks into the first files.
struct Looker<'a> {
    location: &'a Location,
    compression: Option<Compression>,
    format: Format,
    options: &'a TextOptions,
    files: &'a [FileMeta],
}

impl Looker<'_> {
    async fn schema(&self) -> Result<SchemaRef> {
        match self.format {
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let Some(first) = self.files.first() else { return Err(no_records(self.location)) };
                super::parquet::schema_of(&ListedFile::try_new(self.location, &first.id, &first.identity)?).await
            }
            #[cfg(feature = "json")]
            Format::Json => {
                let max_depth = self.options.json.max_depth;
                let samples = self.samples().await?;
                let mut inference = crate::format::json::Inference::default();
                for sample in &samples {
                    let whole = match sample.at_end {
                        true => sample.bytes.len(),
                        false => memchr::memrchr(b'\n', &sample.bytes).map_or(0, |end| end + 1),
                    };
                    let looked_at = inference.add(&sample.bytes[..whole], SAMPLE_RECORDS, max_depth);
                    looked_at.map_err(|fault| sample.fault(fault))?;
                    if inference.num_records() >= SAMPLE_RECORDS {
                        break;
                    }
                }
                let schema = inference.schema();
                if schema.fields().is_empty() {
                    return Err(no_records(self.location));
                }
                Ok(Arc::new(schema))
            }
            _ => Ok(crate::format::raw::schema()),
        }
    }

    /// The starts of the first files, together long enough for [`SAMPLE_RECORDS`] records. The first one has more than one
    /// line if any of them has: a file with one line may be a mere header, and one with more tells more.
    async fn samples(&self) -> Result<Vec<Sample>> {
        let (mut samples, mut num_lines, mut num_bytes): (Vec<Sample>, _, _) = (Vec::new(), 0, 0);
        for meta in self.with_content() {
            let sample = self.look(meta, SAMPLE_RECORDS.saturating_sub(num_lines)).await?;
            if sample.bytes.is_empty() {
                continue;
            }
            if samples.len() == 1 && !has_two_lines(&samples[0].bytes) {
                samples.clear();
            }
            num_lines += memchr::memchr_iter(b'\n', &sample.bytes).count();
            num_bytes += sample.bytes.len();
            samples.push(sample);
            if num_lines >= SAMPLE_RECORDS || num_bytes >= SAMPLE_BYTES {
                break;
            }
        }
        Ok(samples)
    }

    /// The start of the first file that isn't empty, with a record; `None` if all are empty.
    #[cfg(feature = "csv")]
    async fn first_record(&self) -> Result<Option<Sample>> {
        for meta in self.with_content() {
            let sample = self.look(meta, 1).await?;
            if !sample.bytes.is_empty() {
                return Ok(Some(sample));
            }
        }
        Ok(None)
    }

    fn with_content(&self) -> impl Iterator<Item = &FileMeta> {
        self.files.iter().filter(|meta| meta.identity.size != Some(0)).take(SAMPLE_FILES)
    }

    async fn look(&self, meta: &FileMeta, num_records: usize) -> Result<Sample> {
        let file = ListedFile::try_new(self.location, &meta.id, &meta.identity)?;
        let coding = Coding::of_file(self.compression, self.format, self.options, &file);
        let runtime = Handle::current();
        let look = tokio::task::spawn_blocking(move || read_start(file, coding, runtime, num_records));
        look.await.map_err(|e| Error::Worker { message: e.to_string() })?
    }
}

impl Sample {
    /// Says where in the file a fault is.
    fn fault(&self, fault: RecordFault) -> Error {
        let position = self.skipped_bytes + fault.start;
        let lines = memchr::memchr_iter(b'\n', &self.bytes[..fault.start]).count();
        let mut record = BadRecord::new(&*self.url, position as u64, PositionUnit::Byte, fault.reason, fault.message);
        record.line = Some((self.skipped_lines + lines) as u64 + 1);
        record.column = fault.column;
        record.hint = fault.hint;
        Error::BadRecord(Box::new(record))
    }
}

fn has_two_lines(bytes: &[u8]) -> bool {
    memchr::memchr(b'\n', bytes).is_some_and(|end| !bytes[end..].trim_ascii().is_empty())
}

/// Reads from the first line with something in it until there are more line ends than `num_records`, or so many bytes that it has to do.
fn read_start(file: ListedFile, coding: Coding, runtime: Handle, num_records: usize) -> Result<Sample> {
    let url = Arc::clone(&file.url);
    let failed = |e| read_error(&url, coding.compression, e);
    let mut reader = text_of(coding, &url, SequentialRead::new(file, runtime)).map_err(failed)?;
    let mut bytes: Vec<u8> = Vec::new();
    let step = if num_records > 1 { 1 << 20 } else { 64 << 10 };
    let (mut num_lines, mut at_end) = (0, false);
    let (mut skipped_bytes, mut skipped_lines) = (0, 0);
    while !at_end && num_lines <= num_records && bytes.len() < SAMPLE_BYTES {
        let start = bytes.len();
        bytes.resize(start + step, 0);
        let len = fill(&mut reader, &mut bytes[start..]).map_err(failed)?;
        bytes.truncate(start + len);
        at_end = len < step;
        check_encoding(&url, &bytes)?;
        let mut blank = bom_bytes(&bytes);
        blank += bytes[blank..].iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        if blank > 0 && num_lines == 0 {
            skipped_bytes += blank;
            skipped_lines += memchr::memchr_iter(b'\n', &bytes[..blank]).count();
            bytes.drain(..blank);
        }
        num_lines = memchr::memchr_iter(b'\n', &bytes).count();
    }
    if num_lines == 0 && !at_end {
        let reason = format!(
            "its first record is longer than {} MiB: give a schema, and csv.header for CSV",
            SAMPLE_BYTES >> 20
        );
        return Err(Error::Schema(format!("{url}: {reason}")));
    }
    Ok(Sample { url, bytes, at_end, skipped_bytes, skipped_lines })
}
