//! What values are collected in: the buffers of arrays to be.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, BooleanBuilder, GenericByteBuilder, NullBufferBuilder, OffsetSizeTrait,
    PrimitiveArray, StringViewBuilder, new_empty_array,
};
use arrow::buffer::ScalarBuffer;
use arrow::compute::concat;
use arrow::datatypes::{ArrowPrimitiveType, ByteArrayType, DataType, GenericBinaryType, GenericStringType};

use super::bytes::decode_bytes;
use super::{BytesFormat, Outcome};

/// Bytes of a text that there is room for, until a column's own are known.
const EXPECTED_TEXT_BYTES: usize = 8;

/// The cells of one column.
pub(super) trait Cells {
    /// Makes room for `rows` more, where that can be done.
    fn reserve(&mut self, _rows: usize) {}

    fn push_null(&mut self);

    /// How many there are.
    fn num_rows(&self) -> usize;

    /// Drops all behind the first `rows`.
    fn truncate(&mut self, rows: usize);

    /// Takes the cells out, and begins the next ones.
    fn finish_as(&mut self, data_type: &DataType) -> ArrayRef;
}

/// Cells that take values of `V`.
pub(super) trait Take<V>: Cells {
    fn take(&mut self, value: V) -> Outcome<()>;
}

/// Values that are all of one size.
#[derive(Debug)]
pub(super) struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    /// Lags behind the values: those that it doesn't know yet aren't null. So a value costs nothing here.
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self { values: Vec::with_capacity(rows), nulls: NullBufferBuilder::new(rows) }
    }

    fn catch_up(&mut self) {
        self.nulls.append_n_non_nulls(self.values.len() - self.nulls.len());
    }
}

impl<T: ArrowPrimitiveType> Cells for Numbers<T> {
    fn reserve(&mut self, rows: usize) {
        self.values.reserve(rows);
    }

    fn push_null(&mut self) {
        self.catch_up();
        self.nulls.append_null();
        self.values.push(T::Native::default());
    }

    fn num_rows(&self) -> usize {
        self.values.len()
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        if rows < self.nulls.len() {
            self.nulls.truncate(rows);
        }
    }

    fn finish_as(&mut self, data_type: &DataType) -> ArrayRef {
        self.catch_up();
        let rows = self.values.len();
        let values = ScalarBuffer::from(std::mem::replace(&mut self.values, Vec::with_capacity(rows)));
        Arc::new(PrimitiveArray::<T>::new(values, self.nulls.finish()).with_data_type(data_type.clone()))
    }
}

impl<T: ArrowPrimitiveType> Take<T::Native> for Numbers<T> {
    #[inline(always)]
    fn take(&mut self, value: T::Native) -> Outcome<()> {
        self.values.push(value);
        Ok(())
    }
}

impl Cells for BooleanBuilder {
    fn push_null(&mut self) {
        self.append_null();
    }

    fn num_rows(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, rows: usize) {
        if rows < self.len() {
            let kept = self.finish().slice(0, rows);
            self.append_array(&kept);
        }
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        Arc::new(self.finish())
    }
}

impl Take<bool> for BooleanBuilder {
    #[inline(always)]
    fn take(&mut self, value: bool) -> Outcome<()> {
        self.append_value(value);
        Ok(())
    }
}

/// Values of different lengths behind each other.
struct Runs<T: ByteArrayType> {
    builder: GenericByteBuilder<T>,
    /// What stands before those of the builder, which can't be cut: what was kept when values were dropped.
    kept: Vec<ArrayRef>,
    num_kept: usize,
}

impl<T: ByteArrayType> fmt::Debug for Runs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runs({} rows)", self.num_rows())
    }
}

impl<T: ByteArrayType> Runs<T> {
    fn with_capacity(rows: usize) -> Self {
        let builder = GenericByteBuilder::with_capacity(rows, rows * EXPECTED_TEXT_BYTES);
        Self { builder, kept: Vec::new(), num_kept: 0 }
    }

    fn num_rows(&self) -> usize {
        self.num_kept + self.builder.len()
    }

    fn truncate(&mut self, rows: usize) {
        if rows >= self.num_rows() {
            return;
        }
        if rows > self.num_kept {
            let kept = self.builder.finish().slice(0, rows - self.num_kept);
            self.kept.push(Arc::new(kept));
        } else {
            self.builder.finish();
            while let Some(last) = self.kept.pop() {
                let before = self.num_kept - last.len();
                if before < rows {
                    self.kept.push(last.slice(0, rows - before));
                    break;
                }
                self.num_kept = before;
            }
        }
        self.num_kept = rows;
    }

    /// Takes the array out, and makes room for one of the same size.
    fn finish(&mut self) -> ArrayRef {
        let values = self.builder.values_slice().len();
        let next = GenericByteBuilder::with_capacity(self.num_rows(), values);
        let last: ArrayRef = Arc::new(std::mem::replace(&mut self.builder, next).finish());
        self.num_kept = 0;
        let mut parts = std::mem::take(&mut self.kept);
        if parts.is_empty() {
            return last;
        }
        parts.push(last);
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        // Of one type, and no longer than the text they are of. Were it otherwise, the batch would say that rows are missing.
        concat(&parts).unwrap_or_else(|_| new_empty_array(&T::DATA_TYPE))
    }
}

/// Texts.
#[derive(Debug)]
pub(super) struct Texts<O: OffsetSizeTrait>(Runs<GenericStringType<O>>);

impl<O: OffsetSizeTrait> Texts<O> {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self(Runs::with_capacity(rows))
    }
}

impl<O: OffsetSizeTrait> Cells for Texts<O> {
    fn push_null(&mut self) {
        self.0.builder.append_null();
    }

    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        self.0.finish()
    }
}

impl<O: OffsetSizeTrait> Take<&str> for Texts<O> {
    #[inline(always)]
    fn take(&mut self, value: &str) -> Outcome<()> {
        self.0.builder.append_value(value);
        Ok(())
    }
}

impl Cells for StringViewBuilder {
    fn push_null(&mut self) {
        self.append_null();
    }

    fn num_rows(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, rows: usize) {
        if rows < self.len() {
            let kept = self.finish().slice(0, rows);
            self.append_array(&kept);
        }
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        Arc::new(self.finish())
    }
}

impl Take<&str> for StringViewBuilder {
    #[inline(always)]
    fn take(&mut self, value: &str) -> Outcome<()> {
        self.append_value(value);
        Ok(())
    }
}

/// Bytes, read from text.
#[derive(Debug)]
pub(super) struct Blobs<O: OffsetSizeTrait> {
    runs: Runs<GenericBinaryType<O>>,
    format: BytesFormat,
    decoded: Vec<u8>,
}

impl<O: OffsetSizeTrait> Blobs<O> {
    pub(super) fn with_capacity(rows: usize, format: BytesFormat) -> Self {
        Self { runs: Runs::with_capacity(rows), format, decoded: Vec::new() }
    }
}

impl<O: OffsetSizeTrait> Cells for Blobs<O> {
    fn push_null(&mut self) {
        self.runs.builder.append_null();
    }

    fn num_rows(&self) -> usize {
        self.runs.num_rows()
    }

    fn truncate(&mut self, rows: usize) {
        self.runs.truncate(rows);
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        self.runs.finish()
    }
}

impl<O: OffsetSizeTrait> Take<&str> for Blobs<O> {
    fn take(&mut self, text: &str) -> Outcome<()> {
        decode_bytes(text.as_bytes(), self.format, &mut self.decoded)?;
        self.runs.builder.append_value(&self.decoded);
        Ok(())
    }
}
