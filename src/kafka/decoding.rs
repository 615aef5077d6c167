//! Micro-batches become items: one message is one record, and a bad one is bad alone.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Int32Array, Int64Array, ListBuilder, StringArray, StringBuilder, StructBuilder,
    TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};

use super::micro_batch::{EntryKind, Extras, Header, MicroBatch, Wanted};
use super::{KafkaSource, Partition};
use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
#[cfg(feature = "csv")]
use crate::format::csv::{CsvColumn, CsvPlan};
#[cfg(feature = "json")]
use crate::format::json::JsonPlan;
use crate::format::{DecoderPlan, Format};
use crate::schema::{Fit, Origin, Provenance};
use crate::source::{Decoded, ReadRequest, SourceBatch};

/// How the messages of one stream are decoded.
#[derive(Debug)]
pub(super) struct Decoding {
    partitions: Arc<[Partition]>,
    decoder: DecoderPlan,
    fit: Fit,
    schema: SchemaRef,
    provenance: Vec<Provenance>,
}

impl Decoding {
    /// Fits values to what is requested.
    pub(super) fn try_new(source: &KafkaSource, partitions: Arc<[Partition]>, request: &ReadRequest) -> Result<Self> {
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
        Ok(Self { partitions, decoder, fit, schema: request.schema(), provenance: request.provenance.clone() })
    }

    /// What has to be kept of messages besides their values.
    pub(super) fn wanted(&self) -> Wanted {
        let has = |column| self.provenance.contains(&column);
        Wanted { timestamps: has(Provenance::Timestamp), keys: has(Provenance::Key), headers: has(Provenance::Headers) }
    }

    /// Columns of the schema that values don't have and that are null therefore.
    pub(super) fn missing(&self) -> &[String] {
        self.fit.missing()
    }

    /// Decodes a micro-batch up to its first bad message: what is read before it doesn't depend on where
    /// micro-batches happen to end.
    pub(super) fn decode(&self, batch: &MicroBatch) -> Result<Decoded> {
        let (mut end, mut found) = (batch.len(), None);
        loop {
            match self.decode_entries(batch, end)? {
                Ok(item) => return Ok(Decoded { item, fault: found }),
                // Each time it is an earlier message: one may be bad for its schema and a later one for its format.
                Err(Bad { entry, record }) => {
                    found = Some(Error::BadRecord(record));
                    end = entry;
                }
            }
        }
    }

    /// Decodes the first `end` entries; the inner error is the first message that can't be decoded.
    fn decode_entries(&self, batch: &MicroBatch, end: usize) -> Result<Result<Option<SourceBatch>, Bad>> {
        if end == 0 {
            return Ok(Ok(None));
        }
        let advances = self.advances(batch, end);
        if batch.num_rows() == 0 {
            return Ok(Ok(Some(SourceBatch::progress(SchemaRef::clone(&self.schema), advances.list))));
        }
        let mut decoder = self.decoder.decoder(batch.num_rows())?;
        let (mut which, mut offsets) = (Vec::with_capacity(batch.num_rows()), Vec::with_capacity(batch.num_rows()));
        let (mut rows, mut ends) = (Vec::with_capacity(batch.num_rows()), Vec::with_capacity(batch.num_rows()));
        for (index, value_end) in batch.value_ends().take_while(|(index, _)| *index < end) {
            let entry = &batch.entries[index];
            which.push(advances.of_partition(entry.partition));
            offsets.push(entry.next - 1);
            rows.push(index);
            ends.push(value_end);
        }
        if let Err((row, fault)) = decoder.decode_messages(batch.values(), &ends) {
            let entry = rows.get(row).copied().unwrap_or(0);
            let mut record = self.bad_record(batch, entry, fault.message);
            record.column = fault.column;
            record.hint = fault.hint;
            return Ok(Err(Bad { entry, record }));
        }
        let own = self.own_columns(batch, &rows);
        let positions = RowPositions::mixed(which, offsets)?;
        let origin = Origin { split: None, path: None, rows: &positions, own: &own };
        match self.fit.apply(&decoder.finish()?, &origin) {
            Ok(fitted) => SourceBatch::try_new(fitted, positions, advances.list).map(|item| Ok(Some(item))),
            Err(fault) => {
                let entry = rows.get(fault.row).copied().unwrap_or(0);
                let mut record = self.bad_record(batch, entry, fault.message);
                record.column = Some(fault.column);
                Ok(Err(Bad { entry, record }))
            }
        }
    }

    fn bad_record(&self, batch: &MicroBatch, entry: usize, message: String) -> Box<BadRecord> {
        let entry = &batch.entries[entry];
        let split = self.partitions[entry.partition as usize].split.as_str();
        Box::new(BadRecord::new(split, entry.next - 1, PositionUnit::Offset, message))
    }

    /// The moves of the first `end` entries, one for each partition.
    fn advances(&self, batch: &MicroBatch, end: usize) -> Advances {
        let mut advances = Advances { list: Vec::with_capacity(batch.touched.len()), index: Vec::new() };
        for (index, (partition, from)) in batch.touched.iter().enumerate() {
            let partition = *partition as usize;
            if advances.index.len() <= partition {
                advances.index.resize(partition + 1, 0);
            }
            advances.index[partition] = index as u32;
            advances.list.push(Advance::new(self.partitions[partition].split.clone(), *from, *from));
        }
        for entry in &batch.entries[..end] {
            let advance = &mut advances.list[advances.index[entry.partition as usize] as usize];
            advance.to = entry.next;
            advance.done |= entry.kind == EntryKind::Done;
        }
        advances
    }

    /// The columns of provenance that only messages have, for the entries that are rows.
    fn own_columns(&self, batch: &MicroBatch, rows: &[usize]) -> Vec<(Provenance, ArrayRef)> {
        let partition = |row: &usize| &self.partitions[batch.entries[*row].partition as usize];
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
                Provenance::Offset => {
                    Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| (batch.entries[*row].next - 1) as i64)))
                }
                Provenance::Timestamp => {
                    let timestamps = extras.timestamps.iter().take(rows.len()).copied();
                    Arc::new(TimestampMillisecondArray::from_iter(timestamps).with_timezone("UTC"))
                }
                Provenance::Key => {
                    let mut keys = BinaryBuilder::new();
                    extras.keys.iter().take(rows.len()).for_each(|key| keys.append_option(key.as_deref()));
                    Arc::new(keys.finish())
                }
                Provenance::Headers => headers(&extras.headers[..rows.len()]),
                _ => return None,
            };
            Some((*column, array))
        };
        self.provenance.iter().filter_map(own).collect()
    }
}

/// A message that can't be decoded, and the index of its entry.
struct Bad {
    entry: usize,
    record: Box<BadRecord>,
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
fn headers(rows: &[Vec<Header>]) -> ArrayRef {
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
