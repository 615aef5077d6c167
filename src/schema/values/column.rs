//! One column of values.
//!
//! The type is looked at once a column, not once a value: behind each arm of [`ColumnBuilder::extend`] stands a loop
//! of its own, which ends in the array's buffers.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBuilder, StringViewBuilder};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Field, FieldRef, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::bytes::boolean;
use super::cells::{Blobs, Cells, Numbers, Take, Texts};
use super::decimal::{DecimalShape, decimal128, decimal256};
use super::float::{float32, float64};
use super::int::{int, uint64};
use super::time::{LastDay, date, time_of_day, timestamp};
use super::{Outcome, TimestampFormat, ValueFault, ValueOptions};
use crate::error::{Error, Result};
use crate::schema::{precision, type_name};

/// Collects the values of one column out of text.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    field: FieldRef,
    /// Digits behind the second that are kept.
    precision: u8,
    /// How timestamps are written, if not as ISO 8601 has it.
    timestamp_format: Option<TimestampFormat>,
    last_day: LastDay,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Int8(Numbers<Int8Type>),
    Int16(Numbers<Int16Type>),
    Int32(Numbers<Int32Type>),
    Int64(Numbers<Int64Type>),
    UInt8(Numbers<UInt8Type>),
    UInt16(Numbers<UInt16Type>),
    UInt32(Numbers<UInt32Type>),
    UInt64(Numbers<UInt64Type>),
    Float32(Numbers<Float32Type>),
    Float64(Numbers<Float64Type>),
    Decimal128(Numbers<Decimal128Type>, DecimalShape),
    Decimal256(Numbers<Decimal256Type>, DecimalShape),
    Date32(Numbers<Date32Type>),
    TimeSecond(Numbers<Time32SecondType>),
    TimeMilli(Numbers<Time32MillisecondType>),
    TimeMicro(Numbers<Time64MicrosecondType>),
    TimeNano(Numbers<Time64NanosecondType>),
    StampSecond(Numbers<TimestampSecondType>),
    StampMilli(Numbers<TimestampMillisecondType>),
    StampMicro(Numbers<TimestampMicrosecondType>),
    StampNano(Numbers<TimestampNanosecondType>),
    Boolean(BooleanBuilder),
    Utf8(Texts<i32>),
    LargeUtf8(Texts<i64>),
    Utf8View(StringViewBuilder),
    Binary(Blobs<i32>),
    LargeBinary(Blobs<i64>),
}

impl ColumnBuilder {
    /// Prepares a column for about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type that text can't become.
    pub(crate) fn try_new(field: &Field, options: ValueOptions<'_>, rows: usize) -> Result<Self> {
        use TimeUnit::*;
        let shape = |precision, scale| DecimalShape { precision, scale, rounding: options.decimal_rounding };
        let values = match *field.data_type() {
            DataType::Int8 => Values::Int8(Numbers::with_capacity(rows)),
            DataType::Int16 => Values::Int16(Numbers::with_capacity(rows)),
            DataType::Int32 => Values::Int32(Numbers::with_capacity(rows)),
            DataType::Int64 => Values::Int64(Numbers::with_capacity(rows)),
            DataType::UInt8 => Values::UInt8(Numbers::with_capacity(rows)),
            DataType::UInt16 => Values::UInt16(Numbers::with_capacity(rows)),
            DataType::UInt32 => Values::UInt32(Numbers::with_capacity(rows)),
            DataType::UInt64 => Values::UInt64(Numbers::with_capacity(rows)),
            DataType::Float32 => Values::Float32(Numbers::with_capacity(rows)),
            DataType::Float64 => Values::Float64(Numbers::with_capacity(rows)),
            DataType::Decimal128(precision, scale) => {
                Values::Decimal128(Numbers::with_capacity(rows), shape(precision, scale))
            }
            DataType::Decimal256(precision, scale) => {
                Values::Decimal256(Numbers::with_capacity(rows), shape(precision, scale))
            }
            DataType::Date32 => Values::Date32(Numbers::with_capacity(rows)),
            DataType::Time32(Second) => Values::TimeSecond(Numbers::with_capacity(rows)),
            DataType::Time32(Millisecond) => Values::TimeMilli(Numbers::with_capacity(rows)),
            DataType::Time64(Microsecond) => Values::TimeMicro(Numbers::with_capacity(rows)),
            DataType::Time64(Nanosecond) => Values::TimeNano(Numbers::with_capacity(rows)),
            DataType::Timestamp(Second, _) => Values::StampSecond(Numbers::with_capacity(rows)),
            DataType::Timestamp(Millisecond, _) => Values::StampMilli(Numbers::with_capacity(rows)),
            DataType::Timestamp(Microsecond, _) => Values::StampMicro(Numbers::with_capacity(rows)),
            DataType::Timestamp(Nanosecond, _) => Values::StampNano(Numbers::with_capacity(rows)),
            DataType::Boolean => Values::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::Utf8 => Values::Utf8(Texts::with_capacity(rows)),
            DataType::LargeUtf8 => Values::LargeUtf8(Texts::with_capacity(rows)),
            DataType::Utf8View => Values::Utf8View(StringViewBuilder::with_capacity(rows)),
            DataType::Binary => Values::Binary(Blobs::with_capacity(rows, options.bytes_format)),
            DataType::LargeBinary => Values::LargeBinary(Blobs::with_capacity(rows, options.bytes_format)),
            _ => {
                let reason = format!("column {}: {} can't be read from text", field.name(), type_name(field));
                return Err(Error::Schema(reason));
            }
        };
        let precision = precision(field).unwrap_or(9);
        let timestamp_format = options.timestamp_format.cloned();
        Ok(Self { field: Arc::new(field.clone()), precision, timestamp_format, last_day: LastDay::default(), values })
    }

    /// The column's name and type.
    pub(crate) fn field(&self) -> &Field {
        &self.field
    }

    /// Says whether an empty text is a value (text) or nothing (everything else).
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.values, Values::Utf8(_) | Values::LargeUtf8(_) | Values::Utf8View(_))
    }

    /// Reads `text` as the next value. After a fault the column is as it was.
    pub(crate) fn push(&mut self, text: &str) -> Outcome<()> {
        self.push_option(Some(text))
    }

    /// Adds a null. In a NOT NULL column that is a fault, and nothing is added.
    pub(crate) fn push_null(&mut self) -> Outcome<()> {
        self.push_option(None)
    }

    /// One loop of one round a type serves both.
    fn push_option(&mut self, value: Option<&str>) -> Outcome<()> {
        self.extend(std::iter::once(value))
    }

    /// Reads the next values; `None` is a null, and a fault in a NOT NULL column.
    ///
    /// After a fault the values before it are in the column, and those behind it aren't.
    pub(crate) fn extend<'a>(&mut self, values: impl Iterator<Item = Option<&'a str>>) -> Outcome<()> {
        let Self { field, precision, timestamp_format, last_day, values: column } = self;
        let format = timestamp_format.as_ref();
        let (precision, feed) = (*precision, Feed { values, nullable: field.is_nullable() });
        match column {
            Values::Int8(v) => feed.fill(v, int),
            Values::Int16(v) => feed.fill(v, int),
            Values::Int32(v) => feed.fill(v, int),
            Values::Int64(v) => feed.fill(v, int),
            Values::UInt8(v) => feed.fill(v, int),
            Values::UInt16(v) => feed.fill(v, int),
            Values::UInt32(v) => feed.fill(v, int),
            Values::UInt64(v) => feed.fill(v, uint64),
            Values::Float32(v) => feed.fill(v, float32),
            Values::Float64(v) => feed.fill(v, float64),
            Values::Decimal128(v, shape) => feed.fill(v, |text| decimal128(text, *shape)),
            Values::Decimal256(v, shape) => feed.fill(v, |text| decimal256(text, *shape)),
            Values::Date32(v) => feed.fill(v, date),
            // A day has fewer than 2^31 milliseconds.
            Values::TimeSecond(v) => feed.fill(v, |text| Ok(time_of_day::<0>(text, precision)? as i32)),
            Values::TimeMilli(v) => feed.fill(v, |text| Ok(time_of_day::<3>(text, precision)? as i32)),
            Values::TimeMicro(v) => feed.fill(v, |text| time_of_day::<6>(text, precision)),
            Values::TimeNano(v) => feed.fill(v, |text| time_of_day::<9>(text, precision)),
            Values::StampSecond(v) => feed.stamps::<0, _>(v, precision, format, last_day),
            Values::StampMilli(v) => feed.stamps::<3, _>(v, precision, format, last_day),
            Values::StampMicro(v) => feed.stamps::<6, _>(v, precision, format, last_day),
            Values::StampNano(v) => feed.stamps::<9, _>(v, precision, format, last_day),
            Values::Boolean(v) => feed.fill(v, boolean),
            Values::Utf8(v) => feed.fill(v, Ok),
            Values::LargeUtf8(v) => feed.fill(v, Ok),
            Values::Utf8View(v) => feed.fill(v, Ok),
            Values::Binary(v) => feed.fill(v, Ok),
            Values::LargeBinary(v) => feed.fill(v, Ok),
        }
    }

    /// The number of values.
    pub(crate) fn num_rows(&mut self) -> usize {
        self.values.cells().num_rows()
    }

    /// Drops all values behind the first `rows`.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.values.cells().truncate(rows);
    }

    /// Takes the column out, and begins the next one.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        let Self { field, values, .. } = self;
        values.cells().finish_as(field.data_type())
    }
}

impl Values {
    fn cells(&mut self) -> &mut dyn Cells {
        match self {
            Values::Int8(v) => v,
            Values::Int16(v) => v,
            Values::Int32(v) => v,
            Values::Int64(v) => v,
            Values::UInt8(v) => v,
            Values::UInt16(v) => v,
            Values::UInt32(v) => v,
            Values::UInt64(v) => v,
            Values::Float32(v) => v,
            Values::Float64(v) => v,
            Values::Decimal128(v, _) => v,
            Values::Decimal256(v, _) => v,
            Values::Date32(v) => v,
            Values::TimeSecond(v) => v,
            Values::TimeMilli(v) => v,
            Values::TimeMicro(v) => v,
            Values::TimeNano(v) => v,
            Values::StampSecond(v) => v,
            Values::StampMilli(v) => v,
            Values::StampMicro(v) => v,
            Values::StampNano(v) => v,
            Values::Boolean(v) => v,
            Values::Utf8(v) => v,
            Values::LargeUtf8(v) => v,
            Values::Utf8View(v) => v,
            Values::Binary(v) => v,
            Values::LargeBinary(v) => v,
        }
    }
}

/// Values on their way into a column.
struct Feed<I> {
    values: I,
    nullable: bool,
}

impl<'a, I: Iterator<Item = Option<&'a str>>> Feed<I> {
    /// The loop that each type has for itself.
    #[inline(always)]
    fn fill<V, C: Take<V>>(self, cells: &mut C, mut read: impl FnMut(&'a str) -> Outcome<V>) -> Outcome<()> {
        cells.reserve(self.values.size_hint().0);
        for value in self.values {
            match value {
                Some(text) => cells.take(read(text)?)?,
                None if self.nullable => cells.push_null(),
                None => return Err(ValueFault::NotNull),
            }
        }
        Ok(())
    }

    /// The loop of timestamps: by a format if there is one.
    #[inline(always)]
    fn stamps<const UNIT: usize, C: Take<i64>>(
        self,
        cells: &mut C,
        precision: u8,
        format: Option<&TimestampFormat>,
        last_day: &mut LastDay,
    ) -> Outcome<()> {
        match format {
            None => self.fill(cells, |text| timestamp::<UNIT>(text, precision, last_day)),
            Some(format) => self.fill(cells, |text| format.read::<UNIT>(text, precision)),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use proptest::prelude::*;

    use super::super::oracle::field;
    use super::ValueFault::*;
    use super::*;

    /// A type for each kind of values, with texts of which the last one is a fault, if there is any.
    const TYPES: [(&str, [&str; 4]); 31] = [
        ("TINYINT", ["1", "-128", "+7", "128"]),
        ("SMALLINT", ["1", "-32768", "07", "x"]),
        ("INT", ["1", "-2147483648", "12345678", "1.0"]),
        ("BIGINT", ["1", "-9223372036854775808", "1234567890123", ""]),
        ("ARROW('UInt8')", ["1", "255", "0", "-1"]),
        ("ARROW('UInt16')", ["1", "65535", "0", "-1"]),
        ("ARROW('UInt32')", ["1", "4294967295", "0", "-1"]),
        ("ARROW('UInt64')", ["1", "18446744073709551615", "0", "-1"]),
        ("FLOAT", ["0.1", "-1e9", "16777217", "0,1"]),
        ("DOUBLE", ["0.1", "-1e300", "0.12345678901234567", "0,1"]),
        ("DECIMAL(6,2)", ["0.1", "-1e3", "9999.99", "99999.99"]),
        ("DECIMAL(40,2)", ["0.1", "-1e30", "9999.99", "0.001"]),
        ("DATE", ["2024-02-29", "0001-01-01", "9999-12-31", "2023-02-29"]),
        ("TIME(0)", ["00:00", "23:59:59", "12:00:00.5", "24:00:00"]),
        ("TIME(3)", ["00:00", "23:59:59.999", "12:00:00.5", "24:00:00"]),
        ("TIME(6)", ["00:00", "23:59:59.999999", "12:00:00.5", "24:00:00"]),
        ("TIME(9)", ["00:00", "23:59:59.999999999", "12:00:00.5", "24:00:00"]),
        ("TIMESTAMP(0)", ["2024-02-29", "2024-02-29 12:00:00", "2024-02-29T12:00:01Z", "x"]),
        ("TIMESTAMP(3)", ["2024-02-29", "2024-02-29 12:00:00.5", "2024-03-01T12:00:01Z", "2024-02-30"]),
        ("TIMESTAMP(6)", ["2024-02-29", "2024-02-29 12:00:00.5", "2024-02-29T12:00:01+01:00", "x"]),
        ("TIMESTAMP(9)", ["2024-02-29", "2024-02-29 12:00:00.5", "2024-02-29T12:00:01Z", "9999-01-01"]),
        ("ARROW('Time32(s)')", ["00:00", "23:59:59", "12:00:00.5", "24:00:00"]),
        ("ARROW('Timestamp(s)')", ["2024-02-29", "2024-02-29 12:00:00.5", "2024-02-29T12:00:01-01:00", "x"]),
        ("TIMESTAMP_LTZ(3)", ["2024-02-29", "2024-02-29 12:00:00.5", "2024-02-29T12:00:01Z", "x"]),
        ("BOOLEAN", ["true", "F", "1", "yes"]),
        ("STRING", ["a", "", "ä longer one", "b"]),
        ("ARROW('LargeUtf8')", ["a", "", "ä longer one", "b"]),
        ("ARROW('Utf8View')", ["a", "", "longer than fits a view", "b"]),
        ("BYTES", ["AQL/", "", "AQ==", "*"]),
        ("ARROW('LargeBinary')", ["AQL/", "", "AQ==", "*"]),
        ("VARCHAR(3)", ["a", "", "abc", "b"]),
    ];

    fn builder(sql: &str) -> ColumnBuilder {
        ColumnBuilder::try_new(&field(sql), ValueOptions::default(), 4).unwrap()
    }

    /// One by one, which looks at the type for each value.
    fn pushed(sql: &str, values: &[Option<&str>]) -> ArrayRef {
        let mut column = builder(sql);
        for value in values {
            match value {
                Some(text) => column.push(text).unwrap(),
                None => column.push_null().unwrap(),
            }
        }
        column.finish()
    }

    fn extended(sql: &str, values: &[Option<&str>]) -> ArrayRef {
        let mut column = builder(sql);
        column.extend(values.iter().copied()).unwrap();
        column.finish()
    }

    #[test]
    fn every_type_takes_values_and_nulls() {
        for (sql, [a, b, c, _]) in TYPES {
            let values = [Some(a), None, Some(b), Some(c), None, None, Some(a)];
            let array = extended(sql, &values);
            assert_eq!(array.data_type(), field(sql).data_type());
            let nulls: Vec<bool> = (0..array.len()).map(|row| array.is_null(row)).collect();
            assert_eq!(nulls, values.map(|value| value.is_none()), "{sql}");
            assert_eq!(&array, &pushed(sql, &values), "{sql}");
            // What a null stands on makes no difference to its neighbours.
            let alone = extended(sql, &[Some(c)]);
            assert_eq!(&array.slice(3, 1), &alone, "{sql}");
        }
    }

    #[test]
    fn a_column_without_nulls_has_no_null_buffer() {
        for (sql, [a, b, c, _]) in TYPES {
            assert!(extended(sql, &[Some(a), Some(b), Some(c)]).nulls().is_none(), "{sql}");
            assert_eq!(extended(sql, &[None; 3]).null_count(), 3, "{sql}");
            assert_eq!(extended(sql, &[]).len(), 0, "{sql}");
        }
    }

    #[test]
    fn a_fault_leaves_the_column_as_it_was() {
        for (sql, [a, b, _, bad]) in TYPES {
            let mut column = builder(sql);
            column.push(a).unwrap();
            let outcome = column.push(bad);
            assert_eq!(outcome.is_ok(), column.is_text(), "{sql}");
            column.push_null().unwrap();
            column.push(b).unwrap();
            assert_eq!(column.finish().len(), if column.is_text() { 4 } else { 3 }, "{sql}");
        }
    }

    #[test]
    fn a_fault_ends_the_extension_with_its_reason() {
        let mut column = builder("TINYINT");
        assert_eq!(column.extend([Some("1"), Some("x"), Some("2")].into_iter()), Err(NotA));
        assert_eq!(column.extend([Some("128")].into_iter()), Err(OutOfRange));
        assert_eq!(builder("DECIMAL(4,2)").extend([Some("0.001")].into_iter()), Err(ExcessDigits));
        assert_eq!(builder("INT NOT NULL").extend([Some("1"), None].into_iter()), Err(NotNull));
    }

    #[test]
    fn a_null_in_a_not_null_column_is_a_fault_that_adds_nothing() {
        let mut column = builder("INT NOT NULL");
        column.push("1").unwrap();
        assert_eq!(column.push_null(), Err(NotNull));
        column.push("2").unwrap();
        assert_eq!(column.finish().len(), 2);
    }

    #[test]
    fn values_follow_those_that_were_there_and_each_column_begins_anew() {
        for (sql, [a, b, c, _]) in TYPES {
            let mut column = builder(sql);
            column.push(a).unwrap();
            column.extend([Some(b), None].into_iter()).unwrap();
            column.push(c).unwrap();
            column.extend([Some(a)].into_iter()).unwrap();
            assert_eq!(&column.finish(), &pushed(sql, &[Some(a), Some(b), None, Some(c), Some(a)]), "{sql}");
            column.push(b).unwrap();
            assert_eq!(&column.finish(), &pushed(sql, &[Some(b)]), "{sql}");
            assert_eq!(column.finish().len(), 0, "{sql}");
        }
    }

    #[test]
    fn what_is_dropped_leaves_nothing_behind() {
        for (sql, [a, b, c, _]) in TYPES {
            for kept in 0..=12 {
                let mut column = builder(sql);
                let values =
                    [Some(a), None, Some(b), Some(a), None, Some(c), None, Some(a), Some(c), None, None, Some(a)];
                column.extend(values.into_iter()).unwrap();
                column.truncate(kept);
                assert_eq!(column.num_rows(), kept);
                column.truncate(12);
                let behind = [Some(c), Some(b), None, Some(c), Some(b), Some(b), Some(b)];
                column.extend(behind.into_iter()).unwrap();
                assert_eq!(&column.finish(), &pushed(sql, &[&values[..kept], &behind].concat()), "{sql}, {kept}");
            }
        }
    }

    #[test]
    fn a_nested_type_is_refused() {
        assert!(ColumnBuilder::try_new(&field("ARRAY<INT>"), ValueOptions::default(), 1).is_err());
    }

    proptest! {
        #[test]
        fn an_extension_is_what_pushes_are(
            kind in 0..TYPES.len(),
            picks in prop::collection::vec(prop::option::of(0usize..3), 0..200),
            cut in 0usize..200,
        ) {
            let (sql, texts) = TYPES[kind];
            let values: Vec<Option<&str>> = picks.iter().map(|pick| pick.map(|pick| texts[pick])).collect();
            let (first, second) = values.split_at(cut.min(values.len()));
            let mut column = builder(sql);
            column.extend(first.iter().copied()).unwrap();
            column.extend(second.iter().copied()).unwrap();
            prop_assert_eq!(&column.finish(), &pushed(sql, &values), "{}", sql);
        }
    }
}
