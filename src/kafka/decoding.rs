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
use super::micro_batch::{Advances, Extras, Header, MicroBatch, Wanted};
use super::tombstones::{Messages, OnTombstone};
use crate::checkpoint::RowPositions;
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
    on_tombstone: OnTombstone,
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
            on_tombstone: OnTombstone::new(source.tombstones, &source.mapping, request.columns.fields()),
        })
    }

    /// What has to be kept of messages besides their values.
    pub(super) fn wanted(&self) -> Wanted {
        let has = |column| self.provenance.contains(&column);
        Wanted { timestamps: has(Provenance::Timestamp), keys: has(Provenance::Key), headers: has(Provenance::Headers) }
    }

    /// Whether messages without a value are rows, be they bad ones.
    pub(super) fn tombstones_are_rows(&self) -> bool {
        self.on_tombstone.is_row()
    }

    /// The schema of every batch.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Columns of the schema that values don't have and that are null therefore.
    pub(super) fn missing(&self) -> &[String] {
        self.fit.missing()
    }

    /// Decodes a micro-batch from row `first` on, up to the first bad message if those fail: what is read before it
    /// doesn't depend on where micro-batches happen to end.
    pub(super) fn decode(&self, batch: &MicroBatch, first: usize) -> Result<DecodedMessages> {
        let ends = batch.value_ends();
        if ends.is_empty() {
            let item = SourceBatch::progress(SchemaRef::clone(&self.schema), batch.advances(&(0..0)).list);
            return Ok(DecodedMessages { item: Some(item), fault: None, rest: None });
        }
        let mut decoder = self.decoder.decoder(ends.len() - first)?;
        let (mut rejects, mut reject_bytes, mut fault) = (Vec::new(), 0, None);
        let mut bad_rows = Vec::new();
        let messages = Messages { values: batch.values(), ends, tombstones: batch.tombstones() };
        let next_row = self.on_tombstone.decode_messages(&mut *decoder, &messages, first, &mut |row, bad| {
            if self.bad_records == BadRecords::Fail {
                fault = Some((row, bad));
                return ControlFlow::Break(());
            }
            bad_rows.push(row);
            let reject = self.reject(batch, row, bad);
            reject_bytes += reject.num_bytes();
            rejects.push(reject);
            if reject_bytes > MAX_REJECT_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Behind the last message that was looked at; what follows without a value belongs to it.
        let looked_at = fault.as_ref().map_or(next_row, |(row, _)| *row);
        let rows = GoodRows { looked_at: first..looked_at, bad: &bad_rows };
        let decoded = self.on_tombstone.with_null_rows(decoder.finish()?, rows.iter(), messages.tombstones)?;
        let moves = batch.advances(&rows.looked_at);
        let fitted = {
            let positions = positions(batch, &rows, &moves)?;
            let own = self.own_columns(batch, &rows);
            fit_rows(
                &self.fit,
                &decoded,
                &Origin { split: None, path: None, rows: &positions, own: &own },
                self.bad_records,
            )?
        };
        if !fitted.faults.is_empty() {
            let rows: Vec<usize> = rows.iter().collect();
            for bad in fitted.faults {
                let row = rows[bad.row];
                let of_row = RecordFault::new(0..message_range(ends, row).len(), bad.reason, bad.message);
                let of_row = of_row.in_column(bad.column);
                match self.bad_records {
                    BadRecords::Fail => fault = Some((row, of_row)),
                    _ => rejects.push(self.reject(batch, row, of_row)),
                }
            }
        }
        let end = fault.as_ref().map_or(looked_at, |(row, _)| *row);
        let fault = fault.map(|(row, fault)| Error::BadRecord(Box::new(self.bad_record(batch, row, fault))));
        let rest = (end < ends.len() && fault.is_none()).then_some(end);
        let moves = if end == looked_at { moves } else { batch.advances(&(first..end)) };
        if moves.list.is_empty() {
            return Ok(DecodedMessages { item: None, fault, rest });
        }
        let item = SourceBatch::try_new(fitted.batch, fitted.rows, moves.list)?.with_rejects(rejects);
        Ok(DecodedMessages { item: Some(item), fault, rest })
    }

    /// The bad message of a row.
    fn reject(&self, batch: &MicroBatch, row: usize, fault: RecordFault) -> Reject {
        let is_kept = self.bad_records == BadRecords::Keep;
        let value = message_range(batch.value_ends(), row);
        let has_value = batch.tombstones().binary_search(&row).is_err();
        let raw = (is_kept && has_value).then(|| Bytes::copy_from_slice(without_line_end(&batch.values()[value])));
        let record = self.bad_record(batch, row, fault);
        Reject { split: batch.place(row).0.split.clone(), record, is_kept, raw }
    }

    fn bad_record(&self, batch: &MicroBatch, row: usize, fault: RecordFault) -> BadRecord {
        let (partition, offset) = batch.place(row);
        let split = partition.split.as_str();
        let record = BadRecord::new(split, offset, PositionUnit::Offset, fault.reason, fault.message);
        BadRecord { column: fault.column, hint: fault.hint, ..record }
    }

    /// The columns of provenance that only messages have.
    fn own_columns(&self, batch: &MicroBatch, rows: &GoodRows<'_>) -> Vec<(Provenance, ArrayRef)> {
        let none = Extras::default();
        let extras = batch.extras.as_ref().unwrap_or(&none);
        let places = || {
            let all = batch.places(rows.looked_at.clone()).flat_map(|(partition, first, num_rows)| {
                let partition = &batch.partitions[partition as usize];
                (first..first + num_rows as u64).map(move |offset| (partition, offset))
            });
            rows.looked_at.clone().zip(all).filter(|(row, _)| rows.is_good(*row)).map(|(_, place)| place)
        };
        let own = |column: &Provenance| -> Option<(Provenance, ArrayRef)> {
            let array: ArrayRef = match column {
                Provenance::Split => {
                    Arc::new(StringArray::from_iter_values(places().map(|(partition, _)| partition.split.as_str())))
                }
                Provenance::Topic => {
                    Arc::new(StringArray::from_iter_values(places().map(|(partition, _)| &*partition.topic_name)))
                }
                Provenance::Partition => {
                    Arc::new(Int32Array::from_iter_values(places().map(|(partition, _)| partition.id)))
                }
                Provenance::Offset => Arc::new(Int64Array::from_iter_values(places().map(|(_, offset)| offset as i64))),
                Provenance::Timestamp => {
                    let timestamps = rows.iter().map(|row| extras.timestamps.get(row).copied().flatten());
                    Arc::new(TimestampMillisecondArray::from_iter(timestamps).with_timezone("UTC"))
                }
                Provenance::Key => {
                    let mut keys = BinaryBuilder::new();
                    let key = |row: usize| extras.keys.get(row).and_then(Option::as_deref);
                    rows.iter().for_each(|row| keys.append_option(key(row)));
                    Arc::new(keys.finish())
                }
                Provenance::Headers => {
                    headers(rows.iter().map(|row| extras.headers.get(row).map_or(&[][..], Vec::as_slice)))
                }
                _ => return None,
            };
            Some((*column, array))
        };
        self.provenance.iter().filter_map(own).collect()
    }
}

/// What a micro-batch gives: rows, and if it stopped early the bad message at which it did, or the row at which the
/// rest begins.
pub(super) struct DecodedMessages {
    pub(super) item: Option<SourceBatch>,
    pub(super) fault: Option<Error>,
    pub(super) rest: Option<usize>,
}

/// The rows that were looked at, but for the bad ones.
struct GoodRows<'a> {
    looked_at: Range<usize>,
    /// In their order.
    bad: &'a [usize],
}

impl GoodRows<'_> {
    fn is_good(&self, row: usize) -> bool {
        self.bad.binary_search(&row).is_err()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.looked_at.clone().filter(|row| self.is_good(*row))
    }
}

/// Where rows stand, and which of the moves each belongs to.
fn positions(batch: &MicroBatch, rows: &GoodRows<'_>, moves: &Advances) -> Result<RowPositions> {
    let num_rows = rows.looked_at.len();
    let mut places = batch.places(rows.looked_at.clone());
    // Mostly a micro-batch is a part of one long run.
    let positions = match (places.next(), places.next(), moves.list.len()) {
        (Some((_, first, num_rows)), None, 1) => RowPositions::consecutive(first, num_rows),
        _ => {
            let (mut which, mut offsets) = (Vec::with_capacity(num_rows), Vec::with_capacity(num_rows));
            for (partition, first, num_rows) in batch.places(rows.looked_at.clone()) {
                which.resize(which.len() + num_rows, moves.index_of(partition));
                offsets.extend(first..first + num_rows as u64);
            }
            RowPositions::mixed(which, offsets)?
        }
    };
    if rows.bad.is_empty() {
        return Ok(positions);
    }
    positions.pick(&rows.iter().map(|row| row - rows.looked_at.start).collect::<Vec<_>>())
}

/// The column `_headers`: names may repeat, values may be null.
fn headers<'a>(rows: impl Iterator<Item = &'a [Header]>) -> ArrayRef {
    let rows: Vec<&[Header]> = rows.collect();
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
