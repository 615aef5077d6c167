//! Encodings that aren't text: an Arrow IPC stream, and nothing at all.

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;

use super::Encoder;
use crate::error::{Error, Result};

/// The Arrow IPC streaming format.
#[derive(Default)]
pub(in crate::sink) struct ArrowStreamEncoder {
    writer: Option<StreamWriter<Vec<u8>>>,
}

impl ArrowStreamEncoder {
    fn writer(&mut self, schema: &Schema) -> Result<&mut StreamWriter<Vec<u8>>> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => StreamWriter::try_new(Vec::new(), schema).map_err(unwritable)?,
        };
        Ok(self.writer.insert(writer))
    }
}

impl Encoder for ArrowStreamEncoder {
    fn begin(&mut self, schema: &SchemaRef, out: &mut Vec<u8>) -> Result<()> {
        out.append(self.writer(schema)?.get_mut());
        Ok(())
    }

    fn rows(&mut self, batch: &RecordBatch, from: usize, _full_bytes: usize, out: &mut Vec<u8>) -> Result<usize> {
        let rows = batch.slice(from, batch.num_rows() - from);
        let writer = self.writer(&batch.schema())?;
        writer.write(&rows).map_err(unwritable)?;
        out.append(writer.get_mut());
        Ok(batch.num_rows())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.finish().map_err(unwritable)?;
            out.append(writer.get_mut());
        }
        Ok(())
    }
}

fn unwritable(error: ArrowError) -> Error {
    Error::Other { context: "the rows can't be written as an Arrow stream".into(), source: Box::new(error) }
}

/// Writes nothing: for those who only want everything decoded.
#[derive(Debug)]
pub(in crate::sink) struct NothingEncoder;

impl Encoder for NothingEncoder {
    fn begin(&mut self, _schema: &SchemaRef, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn rows(&mut self, batch: &RecordBatch, _from: usize, _full_bytes: usize, _out: &mut Vec<u8>) -> Result<usize> {
        Ok(batch.num_rows())
    }

    fn end(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}
