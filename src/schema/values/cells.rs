//! What values are collected in: the buffers of arrays to be.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, GenericBinaryBuilder, GenericByteBuilder, GenericStringBuilder, NullBufferBuilder,
    OffsetSizeTrait, PrimitiveArray, StringViewBuilder,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{ArrowPrimitiveType, ByteArrayType, DataType};

use super::bytes::decode_bytes;
use super::{BytesFormat, Outcome};

/// Bytes of a text that there is room for, until a column's own are known.
pub(super) const EXPECTED_TEXT_BYTES: usize = 8;

/// The cells of one column.
pub(super) trait Cells {
    /// Makes room for `rows` more, where that can be done.
    fn reserve(&mut self, _rows: usize) {}

    fn push_null(&mut self);

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

impl<O: OffsetSizeTrait> Cells for GenericStringBuilder<O> {
    fn push_null(&mut self) {
        self.append_null();
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        finish_bytes(self)
    }
}

impl<O: OffsetSizeTrait> Take<&str> for GenericStringBuilder<O> {
    #[inline(always)]
    fn take(&mut self, value: &str) -> Outcome<()> {
        self.append_value(value);
        Ok(())
    }
}

/// Takes the array out, and makes room for one of the same size.
fn finish_bytes<T: ByteArrayType>(builder: &mut GenericByteBuilder<T>) -> ArrayRef {
    let next = GenericByteBuilder::with_capacity(builder.offsets_slice().len() - 1, builder.values_slice().len());
    let array = builder.finish();
    *builder = next;
    Arc::new(array)
}

impl Cells for StringViewBuilder {
    fn push_null(&mut self) {
        self.append_null();
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

/// Bytes behind each other, read from text.
#[derive(Debug)]
pub(super) struct Blobs<O: OffsetSizeTrait> {
    builder: GenericBinaryBuilder<O>,
    format: BytesFormat,
    decoded: Vec<u8>,
}

impl<O: OffsetSizeTrait> Blobs<O> {
    pub(super) fn with_capacity(rows: usize, format: BytesFormat) -> Self {
        let builder = GenericBinaryBuilder::with_capacity(rows, rows * EXPECTED_TEXT_BYTES);
        Self { builder, format, decoded: Vec::new() }
    }
}

impl<O: OffsetSizeTrait> Cells for Blobs<O> {
    fn push_null(&mut self) {
        self.builder.append_null();
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        finish_bytes(&mut self.builder)
    }
}

impl<O: OffsetSizeTrait> Take<&str> for Blobs<O> {
    fn take(&mut self, text: &str) -> Outcome<()> {
        decode_bytes(text.as_bytes(), self.format, &mut self.decoded)?;
        self.builder.append_value(&self.decoded);
        Ok(())
    }
}
