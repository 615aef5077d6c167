//! Arrow IPC files (`.arrow`): the streaming format with a footer, read at random.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;

use super::arrow_bytes;
use super::part::{CountingFile, Part, failed, slice_rows};
use crate::error::{Error, Result};

/// An Arrow IPC file.
pub(super) struct ArrowPart {
    path: String,
    schema: SchemaRef,
    writer: FileWriter<BufWriter<CountingFile>>,
}

impl ArrowPart {
    pub(super) fn try_new(path: String, file: File, schema: &SchemaRef) -> Result<Self> {
        let schema = Arc::new(without_dictionaries(schema));
        let writer = FileWriter::try_new(BufWriter::new(CountingFile::new(file)), &schema)
            .map_err(|e| arrow_failed(&path, e))?;
        Ok(Self { path, schema, writer })
    }

    fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(column, field)| {
                let is_plain = column.data_type() == field.data_type();
                if is_plain { Ok(Arc::clone(column)) } else { cast(column, field.data_type()) }
            })
            .collect::<Result<_, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

/// A file has one dictionary a column, while every batch brings its own: values stand for themselves here.
fn without_dictionaries(schema: &Schema) -> Schema {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, value) => field.as_ref().clone().with_data_type(value.as_ref().clone()),
        _ => field.as_ref().clone(),
    };
    Schema::new_with_metadata(schema.fields().iter().map(plain).collect::<Vec<_>>(), schema.metadata().clone())
}

impl Part for ArrowPart {
    fn write(&mut self, batch: &RecordBatch, from: usize, full_bytes: u64) -> Result<usize> {
        let batch_bytes = arrow_bytes(batch);
        let mut row = from;
        loop {
            let left_bytes = full_bytes.saturating_sub(self.size_bytes());
            let num_rows = slice_rows(batch, row, left_bytes, batch_bytes);
            let rows = batch.slice(row, num_rows);
            let written = self.plain(&rows).and_then(|rows| self.writer.write(&rows));
            written.map_err(|e| arrow_failed(&self.path, e))?;
            row += num_rows;
            if row == batch.num_rows() || self.size_bytes() >= full_bytes {
                return Ok(row);
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        let buffered = self.writer.get_ref();
        buffered.get_ref().written_bytes() + buffered.buffer().len() as u64
    }

    fn finish(self: Box<Self>) -> Result<File> {
        let Self { path, writer, .. } = *self;
        // Writes the footer, if nobody has.
        let buffered = writer.into_inner().map_err(|e| arrow_failed(&path, e))?;
        let file = buffered.into_inner().map_err(|e| failed(&path, Box::new(e.into_error())))?;
        Ok(file.into_file())
    }
}

fn arrow_failed(path: &str, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, e) => failed(path, Box::new(e)),
        other => failed(path, Box::new(other)),
    }
}
