//! Parquet without I/O: what a file holds, what its columns cost, and where a row group can be cut.
//!
//! ```text
//! row group:   │ page │ page │ page │ page │ page │ page │     cut where pages of the widest column begin,
//! units:       │      unit      │     unit     │  unit  │     so that few pages are decoded twice
//! ```
//!
//! All sizes of decoded columns are estimates, from what the footer says; who decodes corrects them.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection, RowSelector};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataPushDecoder,
    ParquetStatisticsPolicy,
};

use crate::error::Cause;

/// Bytes at the end of a file that are read first: most footers are in them.
pub(crate) const TAIL_BYTES: u64 = 64 << 10;

/// The magic at both ends, and the length of the footer.
const MIN_FILE_BYTES: u64 = 12;

/// What a page may be expected to hold where nothing says it: most writers cut pages at 1 MiB.
const USUAL_PAGE_BYTES: u64 = 1 << 20;

/// Bytes that a text is taken to have where a dictionary hides it and the footer doesn't say.
const USUAL_TEXT_BYTES: u64 = 16;

/// Why a file can't be read.
#[derive(Debug)]
pub(crate) struct FileFault {
    pub(crate) reason: String,
    pub(crate) cause: Option<Cause>,
}

impl FileFault {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause: None }
    }

    pub(crate) fn caused(reason: impl Into<String>, cause: ParquetError) -> Self {
        Self { reason: reason.into(), cause: Some(Box::new(cause)) }
    }
}

/// What a decoder of metadata says next.
#[derive(Debug)]
pub(crate) enum Footer {
    /// Bytes of the file that it must see.
    Needs(Vec<Range<u64>>),
    Whole(ParquetFile),
}

/// Decodes the footer of a file, and its offset index.
#[derive(Debug)]
pub(crate) struct FooterDecoder {
    decoder: ParquetMetaDataPushDecoder,
    file_bytes: u64,
}

impl FooterDecoder {
    /// Begins with the last bytes of a file, at least 12 of them if it has so many.
    ///
    /// # Errors
    /// It isn't Parquet, or isn't all there.
    pub(crate) fn try_new(file_bytes: u64, tail: Bytes) -> Result<Self, FileFault> {
        // The push decoder trusts the length that the footer states, so it is looked at here.
        let footer = tail.last_chunk::<8>().filter(|_| file_bytes >= MIN_FILE_BYTES);
        let Some(&[a, b, c, d, ref magic @ ..]) = footer else {
            return Err(FileFault::new(format!("not a Parquet file: it has {file_bytes} bytes only")));
        };
        match magic {
            b"PAR1" => {}
            b"PARE" => return Err(FileFault::new("its footer is encrypted, which isn't supported")),
            _ => return Err(FileFault::new("not a Parquet file, or truncated: it doesn't end with PAR1")),
        }
        let stated = u64::from(u32::from_le_bytes([a, b, c, d]));
        if stated > file_bytes - MIN_FILE_BYTES {
            let reason = format!("truncated or damaged: its footer claims {stated} bytes of a file of {file_bytes}");
            return Err(FileFault::new(reason));
        }
        let decoder = ParquetMetaDataPushDecoder::try_new(file_bytes).map_err(damaged)?;
        // Statistics of columns and pages aren't used, and are most of what a footer takes in memory.
        let options = ParquetMetaDataOptions::new().with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let mut decoder =
            decoder.with_page_index_policy(PageIndexPolicy::Skip).with_metadata_options(Some(Arc::new(options)));
        let start = file_bytes - tail.len() as u64;
        decoder.push_range(start..file_bytes, tail).map_err(damaged)?;
        Ok(Self { decoder, file_bytes })
    }

    /// Goes on to read where the pages of a file begin, if the file says so.
    pub(crate) fn with_offset_index(file: &ParquetFile, file_bytes: u64) -> Result<Self, FileFault> {
        let metadata = file.metadata().as_ref().clone();
        let decoder = ParquetMetaDataPushDecoder::try_new_with_metadata(file_bytes, metadata).map_err(damaged)?;
        let decoder =
            decoder.with_column_index_policy(PageIndexPolicy::Skip).with_offset_index_policy(PageIndexPolicy::Optional);
        Ok(Self { decoder, file_bytes })
    }

    pub(crate) fn push(&mut self, ranges: Vec<Range<u64>>, data: Vec<Bytes>) -> Result<(), FileFault> {
        self.decoder.push_ranges(ranges, data).map_err(damaged)
    }

    /// Decodes as far as it can.
    ///
    /// # Errors
    /// The footer can't be read, or speaks of bytes that the file doesn't have.
    pub(crate) fn decode(&mut self) -> Result<Footer, FileFault> {
        match self.decoder.try_decode().map_err(damaged)? {
            DecodeResult::NeedsData(ranges) => match ranges.iter().find(|range| range.end > self.file_bytes) {
                Some(range) => Err(beyond("an index", range)),
                None => Ok(Footer::Needs(ranges)),
            },
            DecodeResult::Data(metadata) => ParquetFile::try_new(metadata, self.file_bytes).map(Footer::Whole),
            DecodeResult::Finished => Err(FileFault::new("its footer ended early")),
        }
    }
}

fn damaged(cause: ParquetError) -> FileFault {
    FileFault::caused("its footer can't be read", cause)
}

fn beyond(what: &str, range: &Range<u64>) -> FileFault {
    FileFault::new(format!("truncated or damaged: {what} at bytes {}..{} lies beyond its end", range.start, range.end))
}

/// A file's schema and row groups.
#[derive(Debug, Clone)]
pub(crate) struct ParquetFile {
    metadata: ArrowReaderMetadata,
    /// The first row of each row group, and behind the last.
    first_rows: Vec<u64>,
}

/// The columns of a file that are read.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    mask: ProjectionMask,
    /// The leaf columns, by their place among all of the file.
    leaves: Vec<usize>,
}

/// Rows of one row group, by their place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) group: usize,
    pub(crate) rows: Range<usize>,
}

/// What it takes to decode some rows, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// As they are stored.
    pub(crate) stored: u64,
    /// The pages and dictionaries that are open at one time.
    pub(crate) open: u64,
    /// As columns.
    pub(crate) decoded: u64,
}

impl Cost {
    pub(crate) fn total(self) -> u64 {
        self.stored.saturating_add(self.open).saturating_add(self.decoded)
    }
}

impl ParquetFile {
    fn try_new(metadata: ParquetMetaData, file_bytes: u64) -> Result<Self, FileFault> {
        let mut first_rows = vec![0u64];
        let mut num_rows = 0u64;
        for (index, group) in metadata.row_groups().iter().enumerate() {
            num_rows = u64::try_from(group.num_rows())
                .ok()
                .and_then(|rows| num_rows.checked_add(rows))
                .ok_or_else(|| FileFault::new(format!("damaged: row group {index} has {} rows", group.num_rows())))?;
            first_rows.push(num_rows);
            for column in group.columns() {
                let place = stored_range(column).ok_or_else(|| {
                    let name = column.column_path();
                    FileFault::new(format!(
                        "damaged: row group {index}, column {name}: it lies at no place of the file"
                    ))
                })?;
                if place.end > file_bytes {
                    return Err(beyond(&format!("row group {index}, column {}", column.column_path()), &place));
                }
            }
        }
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(|cause| FileFault::caused("its schema can't be read", cause))?;
        Ok(Self { metadata, first_rows })
    }

    fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.metadata.metadata()
    }

    /// What readers of the parquet library are made of.
    pub(crate) fn reader_metadata(&self) -> &ArrowReaderMetadata {
        &self.metadata
    }

    /// The columns, with the types that the writer had if it said so.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    pub(crate) fn num_rows(&self) -> u64 {
        self.first_rows.last().copied().unwrap_or(0)
    }

    pub(crate) fn num_groups(&self) -> usize {
        self.first_rows.len() - 1
    }

    /// The first row of a row group, as a row of the file.
    pub(crate) fn first_row(&self, group: usize) -> u64 {
        self.first_rows.get(group).copied().unwrap_or_else(|| self.num_rows())
    }

    pub(crate) fn group_rows(&self, group: usize) -> usize {
        (self.first_row(group + 1) - self.first_row(group)) as usize
    }

    /// Says whether the file states where its pages begin.
    pub(crate) fn has_offset_index(&self) -> bool {
        self.metadata().offset_index().is_some()
    }

    /// Chooses columns of the schema, by their index there.
    pub(crate) fn project(&self, columns: &[usize]) -> Projection {
        let descriptor = self.metadata.parquet_schema();
        let mask = ProjectionMask::roots(descriptor, columns.iter().copied());
        let leaves = (0..descriptor.num_columns()).filter(|&leaf| mask.leaf_included(leaf)).collect();
        Projection { mask, leaves }
    }

    fn columns<'a>(&'a self, group: usize, projection: &'a Projection) -> impl Iterator<Item = Chunk<'a>> {
        let num_rows = self.group_rows(group);
        let groups = self.metadata().row_groups().get(group);
        let pages = self.metadata().offset_index().and_then(|index| index.get(group));
        projection.leaves.iter().filter_map(move |&leaf| {
            let meta = groups?.columns().get(leaf)?;
            let pages = pages.and_then(|pages| pages.get(leaf)).map(|pages| pages.page_locations.as_slice());
            Some(Chunk { meta, pages: pages.filter(|pages| !pages.is_empty()), num_rows })
        })
    }

    /// Where the columns of a row group are stored.
    pub(crate) fn stored_ranges(&self, group: usize, projection: &Projection) -> Vec<Range<u64>> {
        self.columns(group, projection).filter_map(|chunk| stored_range(chunk.meta)).collect()
    }

    /// What it takes to decode rows of a row group.
    pub(crate) fn cost(&self, unit: &Unit, projection: &Projection) -> Cost {
        let mut cost = Cost { stored: 0, open: 0, decoded: 0 };
        for chunk in self.columns(unit.group, projection) {
            cost.stored += chunk.stored_bytes(&unit.rows);
            cost.open += chunk.open_bytes();
            cost.decoded += share(chunk.decoded_bytes(), unit.rows.len(), chunk.num_rows);
        }
        cost
    }

    /// How much is decoded if a row group is cut into units of about `unit_rows` rows, in percent of what is
    /// decoded if it isn't: pages may be part of two units or more, and a dictionary is part of each.
    pub(crate) fn repetition_percent(&self, group: usize, projection: &Projection, unit_rows: usize) -> u64 {
        let (mut once, mut repeated) = (0u64, 0u64);
        for chunk in self.columns(group, projection) {
            let bytes = non_negative(chunk.meta.uncompressed_size());
            let num_units = chunk.num_rows.div_ceil(unit_rows.max(1)) as u64;
            // Each cut goes through a page, unless pages of all columns begin together; half of them do.
            let cut_pages = bytes / chunk.num_pages().max(1) / 2;
            let again = cut_pages + chunk.plain_dictionary_bytes();
            once = once.saturating_add(bytes);
            repeated = repeated.saturating_add(bytes.saturating_add(again.saturating_mul(num_units.saturating_sub(1))));
        }
        repeated.saturating_mul(100).checked_div(once).unwrap_or(100)
    }

    /// The rows from `from` on that make one unit of about `unit_rows` rows: up to where a page of the
    /// widest column begins, or the end of the row group. Never none, unless none are left.
    pub(crate) fn cut(&self, group: usize, projection: &Projection, from: usize, unit_rows: usize) -> Unit {
        let end = self.group_rows(group);
        let wanted = from.saturating_add(unit_rows.max(1));
        let widest = self.columns(group, projection).max_by_key(|chunk| chunk.meta.compressed_size());
        let begins = widest.and_then(|chunk| chunk.pages).unwrap_or_default().iter();
        let mut cut = end;
        for begin in
            begins.map(|page| page.first_row_index.max(0) as usize).filter(|&begin| begin > from && begin < end)
        {
            if begin > wanted {
                // The page is longer than what was wanted.
                if cut == end {
                    cut = begin;
                }
                break;
            }
            cut = begin;
        }
        // A short rest isn't worth a unit of its own.
        if wanted.saturating_add(unit_rows / 2) >= end {
            cut = end;
        }
        Unit { group, rows: from..cut }
    }

    /// Begins to decode a unit, in batches of at most `batch_rows` rows.
    ///
    /// # Errors
    /// The file's columns can't be decoded.
    pub(crate) fn decoder(
        &self,
        unit: &Unit,
        projection: &Projection,
        batch_rows: usize,
    ) -> Result<ParquetPushDecoder, ParquetError> {
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(self.metadata.clone())
            .with_row_groups(vec![unit.group])
            .with_projection(projection.mask.clone())
            .with_batch_size(batch_rows);
        if unit.rows != (0..self.group_rows(unit.group)) {
            builder = builder.with_row_selection(self.selection(unit));
        }
        builder.build()
    }

    /// The rows of a unit among those of its row group.
    pub(crate) fn selection(&self, unit: &Unit) -> RowSelection {
        let behind = self.group_rows(unit.group).saturating_sub(unit.rows.end);
        RowSelection::from(vec![
            RowSelector::skip(unit.rows.start),
            RowSelector::select(unit.rows.len()),
            RowSelector::skip(behind),
        ])
    }
}

impl Projection {
    /// What readers of the parquet library take.
    pub(crate) fn mask(&self) -> &ProjectionMask {
        &self.mask
    }
}

/// One column of one row group.
struct Chunk<'a> {
    meta: &'a ColumnChunkMetaData,
    /// Where its pages begin, if the file says so.
    pages: Option<&'a [parquet::file::page_index::offset_index::PageLocation]>,
    num_rows: usize,
}

impl Chunk<'_> {
    fn num_pages(&self) -> u64 {
        match self.pages {
            Some(pages) => pages.len() as u64,
            None => non_negative(self.meta.uncompressed_size()).div_ceil(USUAL_PAGE_BYTES),
        }
    }

    /// Bytes that are read for some rows: whole pages, and the dictionary.
    fn stored_bytes(&self, rows: &Range<usize>) -> u64 {
        let whole = non_negative(self.meta.compressed_size());
        let Some(pages) = self.pages else { return whole };
        let mut bytes = self.dictionary_bytes();
        for (index, page) in pages.iter().enumerate() {
            let first = page.first_row_index.max(0) as usize;
            let next = pages.get(index + 1).map_or(self.num_rows, |next| next.first_row_index.max(0) as usize);
            if first < rows.end && next > rows.start {
                bytes += non_negative(page.compressed_page_size.into());
            }
        }
        bytes.min(whole)
    }

    /// The dictionary, as stored.
    fn dictionary_bytes(&self) -> u64 {
        let Some(dictionary) = self.meta.dictionary_page_offset() else { return 0 };
        let data = self.pages.and_then(|pages| pages.first()).map_or(self.meta.data_page_offset(), |page| page.offset);
        non_negative(data.saturating_sub(dictionary))
    }

    /// One page and the dictionary, decompressed, and the dictionary once more as values.
    fn open_bytes(&self) -> u64 {
        2 * self.plain_dictionary_bytes() + non_negative(self.meta.uncompressed_size()) / self.num_pages().max(1)
    }

    /// The dictionary, decompressed as well as the whole column is.
    fn plain_dictionary_bytes(&self) -> u64 {
        let (stored, plain) = (non_negative(self.meta.compressed_size()), non_negative(self.meta.uncompressed_size()));
        scaled(self.dictionary_bytes(), plain, stored).min(plain)
    }

    fn decoded_bytes(&self) -> u64 {
        let values = non_negative(self.meta.num_values());
        let descriptor = self.meta.column_descr();
        let is_decimal = matches!(descriptor.logical_type_ref(), Some(LogicalType::Decimal(..)))
            || descriptor.converted_type() == ConvertedType::DECIMAL;
        let width = match descriptor.physical_type() {
            _ if is_decimal => 16,
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE | Type::INT96 => 8,
            Type::FIXED_LEN_BYTE_ARRAY => non_negative(descriptor.type_length().into()),
            Type::BYTE_ARRAY => return self.text_bytes() + 4 * values + self.level_bytes(),
        };
        width.saturating_mul(values) + self.level_bytes()
    }

    fn text_bytes(&self) -> u64 {
        let plain = non_negative(self.meta.uncompressed_size());
        match self.meta.unencoded_byte_array_data_bytes() {
            Some(bytes) => non_negative(bytes),
            None if self.meta.dictionary_page_offset().is_some() => {
                plain.max(non_negative(self.meta.num_values()).saturating_mul(USUAL_TEXT_BYTES))
            }
            None => plain,
        }
    }

    /// Nulls, and ends of lists.
    fn level_bytes(&self) -> u64 {
        let values = non_negative(self.meta.num_values());
        let descriptor = self.meta.column_descr();
        let nulls = if descriptor.max_def_level() > 0 { values / 8 } else { 0 };
        nulls + 4 * u64::try_from(descriptor.max_rep_level()).unwrap_or(0) * values
    }
}

/// Where a column is stored; `None` if what the footer says makes no sense.
fn stored_range(column: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let first = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let (start, len) = (u64::try_from(first).ok()?, u64::try_from(column.compressed_size()).ok()?);
    (column.uncompressed_size() >= 0 && column.num_values() >= 0).then_some(())?;
    Some(start..start.checked_add(len)?)
}

fn non_negative(bytes: i64) -> u64 {
    bytes.max(0) as u64
}

fn scaled(bytes: u64, up: u64, down: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(up) / u128::from(down.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The part of `bytes` that `rows` of `all` rows have.
fn share(bytes: u64, rows: usize, all: usize) -> u64 {
    scaled(bytes, rows as u64, all as u64)
}
