//! What values are collected in: the buffers of arrays to be.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BooleanBuilder, GenericByteArray, NullBufferBuilder, OffsetSizeTrait, PrimitiveArray,
    StringViewBuilder, new_empty_array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowPrimitiveType, ByteArrayType, DataType, GenericBinaryType, GenericStringType};

use super::bytes::decode_bytes;
use super::{BytesFormat, Outcome, ValueFault};

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

/// Bytes of different lengths behind each other.
#[derive(Debug)]
struct Runs<O> {
    values: Vec<u8>,
    /// Where each run starts, and at last where all end.
    offsets: Vec<O>,
    /// Lags behind, as those of [`Numbers`].
    nulls: NullBufferBuilder,
}

impl<O: OffsetSizeTrait> Runs<O> {
    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(O::zero());
        Self { values: Vec::with_capacity(bytes), offsets, nulls: NullBufferBuilder::new(rows) }
    }

    /// Ends a run where the values end now.
    #[inline(always)]
    fn end_run(&mut self) -> Outcome<()> {
        match O::from_usize(self.values.len()) {
            Some(end) => self.offsets.push(end),
            None => {
                self.values.truncate(self.end());
                return Err(ValueFault::OutOfRange);
            }
        }
        Ok(())
    }

    fn end(&self) -> usize {
        self.offsets.last().map_or(0, |end| end.as_usize())
    }

    fn num_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn push_null(&mut self) {
        self.nulls.append_n_non_nulls(self.num_rows() - self.nulls.len());
        self.nulls.append_null();
        self.offsets.extend(self.offsets.last().copied());
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.values.truncate(self.end());
        if rows < self.nulls.len() {
            self.nulls.truncate(rows);
        }
    }

    /// Takes the array out, and makes room for one of the same size.
    fn finish<T: ByteArrayType<Offset = O>>(&mut self) -> ArrayRef {
        self.nulls.append_n_non_nulls(self.num_rows() - self.nulls.len());
        let next = Self::with_capacity(self.num_rows(), self.values.len());
        let Self { values, offsets, mut nulls } = std::mem::replace(self, next);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        match GenericByteArray::<T>::try_new(offsets, Buffer::from(values), nulls.finish()) {
            Ok(array) => Arc::new(array),
            // Only text is taken, and only whole. Were it otherwise, the batch would say that its rows are missing.
            Err(_) => new_empty_array(&T::DATA_TYPE),
        }
    }
}

/// Texts.
#[derive(Debug)]
pub(super) struct Texts<O>(Runs<O>);

impl<O: OffsetSizeTrait> Texts<O> {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self(Runs::with_capacity(rows, rows * EXPECTED_TEXT_BYTES))
    }
}

impl<O: OffsetSizeTrait> Cells for Texts<O> {
    fn reserve(&mut self, rows: usize) {
        self.0.offsets.reserve(rows);
    }

    fn push_null(&mut self) {
        self.0.push_null();
    }

    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        self.0.finish::<GenericStringType<O>>()
    }
}

impl<O: OffsetSizeTrait> Take<&str> for Texts<O> {
    #[inline(always)]
    fn take(&mut self, value: &str) -> Outcome<()> {
        self.0.values.extend_from_slice(value.as_bytes());
        self.0.end_run()
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
pub(super) struct Blobs<O> {
    runs: Runs<O>,
    format: BytesFormat,
    decoded: Vec<u8>,
}

impl<O: OffsetSizeTrait> Blobs<O> {
    pub(super) fn with_capacity(rows: usize, format: BytesFormat) -> Self {
        Self { runs: Runs::with_capacity(rows, rows * EXPECTED_TEXT_BYTES), format, decoded: Vec::new() }
    }
}

impl<O: OffsetSizeTrait> Cells for Blobs<O> {
    fn push_null(&mut self) {
        self.runs.push_null();
    }

    fn num_rows(&self) -> usize {
        self.runs.num_rows()
    }

    fn truncate(&mut self, rows: usize) {
        self.runs.truncate(rows);
    }

    fn finish_as(&mut self, _data_type: &DataType) -> ArrayRef {
        self.runs.finish::<GenericBinaryType<O>>()
    }
}

impl<O: OffsetSizeTrait> Take<&str> for Blobs<O> {
    fn take(&mut self, text: &str) -> Outcome<()> {
        decode_bytes(text.as_bytes(), self.format, &mut self.decoded)?;
        self.runs.values.extend_from_slice(&self.decoded);
        self.runs.end_run()
    }
}
