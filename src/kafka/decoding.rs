//! Micro-batches become items: one message is one record, and a bad one is bad alone.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Int32Array, Int64Array, ListBuilder, StringArray, StringBuilder, StructBuilder,
    TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use bytes::Bytes;

use super::KafkaSource;
use super::micro_batch::{EntryKind, Extras, Header, MicroBatch, Wanted};
use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
#[cfg(feature = "csv")]
use crate::format::csv::{CsvColumn, CsvPlan};
#[cfg(feature = "json")]
use crate::format::json::JsonPlan;
use crate::format::{DecoderPlan, Format, RecordFault, message_range, without_line_end};
use crate::schema::{Fit, Origin, Provenance};
use crate::source::{BadRecords, MAX_REJECT_BYTES, ReadRequest, Reject, SourceBatch, fit_rows};

/// How the messages of one stream are decoded.
#[derive(Debug)]
pub(super) struct Decoding {
    decoder: DecoderPlan,
    fit: Fit,
    schema: SchemaRef,
    provenance: Vec<Provenance>,
    bad_records: BadRecords,
}

impl Decoding {
    /// Fits values to what is requested.
    pub(super) fn try_new(source: &KafkaSource, request: &ReadRequest) -> Result<Self> {
        let target = request.fit_target(&source.mapping, &source.name);
        let (decoder, fit) = match source.format {
            #[cfg(feature = "csv")]
            Format::Csv => {
                // A value has no header: fields are the columns of the schema that aren't constant, in order.
                let inputs: Vec<&str> =
                    source.schema.fields().iter().filter_map(|field| source.mapping.input(field.name())).collect();
                let mut columns: Vec<CsvColumn> = Vec::new();
                let fit = Fit::try_new(&target, |name, field| {
                    let Some(index) = inputs.iter().position(|input| *input == name) else { return Ok(None) };
                    columns.push(CsvColumn { index, field: source.mapping.decoded_field(field) });
                    Ok(Some((columns.len() - 1, field.data_type().clone())))
                })?;
                (DecoderPlan::Csv(CsvPlan::new(&source.options.csv, columns, inputs.len())), fit)
            }
            #[cfg(feature = "json")]
            Format::Json => {
                let mut columns: Vec<(String, FieldRef)> = Vec::new();
                let fit = Fit::try_new(&target, |name, field| {
                    columns.push((name.to_owned(), source.mapping.decoded_field(field)));
                    Ok(Some((columns.len() - 1, field.data_type().clone())))
                })?;
                (DecoderPlan::Json(JsonPlan::try_new(columns, &source.options.json)?), fit)
            }
            _ => {
                let value = crate::format::raw::schema();
                let fit = Fit::try_new(&target, |name, _| {
                    Ok(value.column_with_name(name).map(|(index, field)| (index, field.data_type().clone())))
                })?;
                (DecoderPlan::Raw, fit)
            }
        };
        Ok(Self {
            decoder,
            fit,
            schema: request.schema(),
            provenance: request.provenance.clone(),
            bad_records: request.bad_records(source.options.ignores_parse_errors(source.format)),
        })
    }

    /// What has to be kept of messages besides their values.
    pub(super) fn wanted(&self) -> Wanted {
        let has = |column| self.provenance.contains(&column);
        Wanted { timestamps: has(Provenance::Timestamp), keys: has(Provenance::Key), headers: has(Provenance::Headers) }
    }

    /// The schema of every batch.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Columns of the schema that values don't have and that are null therefore.
    pub(super) fn missing(&self) -> &[String] {
        self.fit.missing()
    }

    /// Decodes a micro-batch from entry `first` on, up to the first bad message if those fail: what is read before it
    /// doesn't depend on where micro-batches happen to end.
    pub(super) fn decode(&self, batch: &MicroBatch, first: usize) -> Result<DecodedMessages> {
        if batch.num_rows() == 0 {
            let advances = self.advances(batch, first, batch.len(), batch.len());
            let item = SourceBatch::progress(SchemaRef::clone(&self.schema), advances.list);
            return Ok(DecodedMessages { item: Some(item), fault: None, rest: None });
        }
        let (entries, ends): (Vec<usize>, Vec<usize>) = batch.value_ends().unzip();
        let first_row = entries.partition_point(|entry| *entry < first);
        let mut decoder = self.decoder.decoder(entries.len() - first_row)?;
        let (mut rejects, mut reject_bytes, mut fault) = (Vec::new(), 0, None);
        let mut bad_rows = Vec::new();
        let next_row = decoder.decode_messages(batch.values(), &ends, first_row, &mut |row, bad| {
            if self.bad_records == BadRecords::Fail {
                fault = Some((row, bad));
                return ControlFlow::Break(());
            }
            bad_rows.push(row);
            let reject = self.reject(batch, (entries[row], message_range(&ends, row)), bad);
            reject_bytes += reject.num_bytes();
            rejects.push(reject);
            if reject_bytes > MAX_REJECT_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let stop_row = fault.as_ref().map_or(next_row, |(row, _)| *row);
        let is_good = |row: &usize| bad_rows.binary_search(row).is_err();
        let rows: Vec<Row> =
            (first_row..stop_row).filter(is_good).map(|row| Row { row, entry: entries[row] }).collect();
        let decoded = decoder.finish()?;
        // Behind the last message that was looked at; what follows without a value belongs to it.
        let looked_at = entries.get(stop_row).copied().unwrap_or(batch.len());
        let moves = self.advances(batch, first, looked_at, looked_at);
        let fitted = {
            let positions = self.positions(batch, &rows, &moves)?;
            let own = self.own_columns(batch, &rows);
            fit_rows(
                &self.fit,
                &decoded,
                &Origin { split: None, path: None, rows: &positions, own: &own },
                self.bad_records,
            )?
        };
        for bad in fitted.faults {
            let Row { row, entry } = rows[bad.row];
            let range = message_range(&ends, row);
            let of_row = RecordFault::new(0..range.len(), bad.reason, bad.message).in_column(bad.column);
            match self.bad_records {
                BadRecords::Fail => fault = Some((row, of_row)),
                _ => rejects.push(self.reject(batch, (entry, range), of_row)),
            }
        }
        let end = match &fault {
            Some((row, _)) => entries[*row],
            None => looked_at,
        };
        let fault = fault.map(|(row, fault)| Error::BadRecord(Box::new(self.bad_record(batch, entries[row], fault))));
        let rest = (end < batch.len() && fault.is_none()).then_some(end);
        if end == first {
            return Ok(DecodedMessages { item: None, fault, rest });
        }
        let moves = if end == looked_at { moves } else { self.advances(batch, first, looked_at, end) };
        let item = SourceBatch::try_new(fitted.batch, fitted.rows, moves.list)?.with_rejects(rejects);
        Ok(DecodedMessages { item: Some(item), fault, rest })
    }

    /// Where rows stand, and which of the moves each belongs to.
    fn positions(&self, batch: &MicroBatch, rows: &[Row], advances: &Advances) -> Result<RowPositions> {
        let entry = |row: &Row| &batch.entries[row.entry];
        let which: Vec<u32> = rows.iter().map(|row| advances.of_partition(entry(row).partition)).collect();
        let offsets: Vec<u64> = rows.iter().map(|row| entry(row).next - 1).collect();
        RowPositions::mixed(which, offsets)
    }

    /// A bad message: its entry, and where its value stands.
    fn reject(&self, batch: &MicroBatch, (entry, value): (usize, Range<usize>), fault: RecordFault) -> Reject {
        let is_kept = self.bad_records == BadRecords::Keep;
        let raw = is_kept.then(|| Bytes::copy_from_slice(without_line_end(&batch.values()[value])));
        let split = batch.partitions[batch.entries[entry].partition as usize].split.clone();
        Reject { split, record: self.bad_record(batch, entry, fault), is_kept, raw }
    }

    fn bad_record(&self, batch: &MicroBatch, entry: usize, fault: RecordFault) -> BadRecord {
        let entry = &batch.entries[entry];
        let split = batch.partitions[entry.partition as usize].split.as_str();
        let record = BadRecord::new(split, entry.next - 1, PositionUnit::Offset, fault.reason, fault.message);
        BadRecord { column: fault.column, hint: fault.hint, ..record }
    }

    /// The moves of the entries `first..end`, one for each partition of those in `first..looked_at`: a partition that
    /// doesn't come up there may be done.
    fn advances(&self, batch: &MicroBatch, first: usize, looked_at: usize, end: usize) -> Advances {
        const NONE: u32 = u32::MAX;
        let mut advances = Advances { list: Vec::with_capacity(batch.touched.len()), index: Vec::new() };
        // Where each partition stood before.
        let mut stood: Vec<(u32, u64)> = batch.touched.clone();
        for entry in &batch.entries[..first] {
            if let Some((_, from)) = stood.iter_mut().find(|(partition, _)| *partition == entry.partition) {
                *from = entry.next;
            }
        }
        for (index, entry) in batch.entries[..looked_at].iter().enumerate().skip(first) {
            let partition = entry.partition as usize;
            if advances.index.len() <= partition {
                advances.index.resize(partition + 1, NONE);
            }
            if advances.index[partition] == NONE {
                let from = stood.iter().find(|(known, _)| *known == entry.partition).map_or(0, |(_, from)| *from);
                advances.index[partition] = advances.list.len() as u32;
                advances.list.push(Advance::new(batch.partitions[partition].split.clone(), from, from));
            }
            if index < end {
                let advance = &mut advances.list[advances.index[partition] as usize];
                advance.to = entry.next;
                advance.done |= entry.kind == EntryKind::Done;
            }
        }
        advances
    }

    /// The columns of provenance that only messages have.
    fn own_columns(&self, batch: &MicroBatch, rows: &[Row]) -> Vec<(Provenance, ArrayRef)> {
        let partition = |row: &Row| &batch.partitions[batch.entries[row.entry].partition as usize];
        let none = Extras::default();
        let extras = batch.extras.as_ref().unwrap_or(&none);
        let own = |column: &Provenance| -> Option<(Provenance, ArrayRef)> {
            let array: ArrayRef = match column {
                Provenance::Split => {
                    Arc::new(StringArray::from_iter_values(rows.iter().map(|row| partition(row).split.as_str())))
                }
                Provenance::Topic => {
                    Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &*partition(row).topic_name)))
                }
                Provenance::Partition => {
                    Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| partition(row).id)))
                }
                Provenance::Offset => Arc::new(Int64Array::from_iter_values(
                    rows.iter().map(|row| (batch.entries[row.entry].next - 1) as i64),
                )),
                Provenance::Timestamp => {
                    let timestamps = rows.iter().map(|row| extras.timestamps.get(row.row).copied().flatten());
                    Arc::new(TimestampMillisecondArray::from_iter(timestamps).with_timezone("UTC"))
                }
                Provenance::Key => {
                    let mut keys = BinaryBuilder::new();
                    let key = |row: &Row| extras.keys.get(row.row).and_then(Option::as_deref);
                    rows.iter().for_each(|row| keys.append_option(key(row)));
                    Arc::new(keys.finish())
                }
                Provenance::Headers => {
                    headers(rows.iter().map(|row| extras.headers.get(row.row).map_or(&[][..], Vec::as_slice)))
                }
                _ => return None,
            };
            Some((*column, array))
        };
        self.provenance.iter().filter_map(own).collect()
    }
}

/// What a micro-batch gives: rows, and if it stopped early the bad message at which it did, or the entry at which the
/// rest begins.
pub(super) struct DecodedMessages {
    pub(super) item: Option<SourceBatch>,
    pub(super) fault: Option<Error>,
    pub(super) rest: Option<usize>,
}

/// A message: its place among those with a value, and among all entries.
#[derive(Debug, Clone, Copy)]
struct Row {
    row: usize,
    entry: usize,
}

/// One advance for each partition that moved.
struct Advances {
    list: Vec<Advance>,
    /// The place of each partition's advance.
    index: Vec<u32>,
}

impl Advances {
    fn of_partition(&self, partition: u32) -> u32 {
        self.index[partition as usize]
    }
}

/// The column `_headers`: names may repeat, values may be null.
fn headers<'a>(rows: impl ExactSizeIterator<Item = &'a [Header]>) -> ArrayRef {
    let DataType::List(item) = Provenance::Headers.field().data_type().clone() else {
        return arrow::array::new_null_array(Provenance::Headers.field().data_type(), rows.len());
    };
    let DataType::Struct(fields) = item.data_type().clone() else {
        return arrow::array::new_null_array(Provenance::Headers.field().data_type(), rows.len());
    };
    let header = StructBuilder::new(fields, vec![Box::new(StringBuilder::new()), Box::new(BinaryBuilder::new())]);
    let mut list = ListBuilder::new(header).with_field(item);
    for row in rows {
        for (name, value) in row {
            let header = list.values();
            if let Some(names) = header.field_builder::<StringBuilder>(0) {
                names.append_value(name);
            }
            if let Some(values) = header.field_builder::<BinaryBuilder>(1) {
                values.append_option(value.as_deref());
            }
            header.append(true);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}
