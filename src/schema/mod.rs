//! Many schemas made one, and each source fitted to it.
//!
//! A chain has one *unified schema*. It is given in words ([`parse_schema`]), or made of the sources' own
//! ([`unify_schemas`]); every source is then fitted to it ([`Mapping`]). Names are case-sensitive and never folded.

mod ddl;
mod mapping;
mod metadata;
mod values;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};

pub use ddl::{PRECISION_KEY, format_schema, parse_schema, precision, type_name};
pub(crate) use ddl::{ticks_per_second, unit_digits};
pub use mapping::{ColumnRule, Mapping, OnExtra, OnMissing};
pub(crate) use mapping::{Fit, FitTarget, RowFault};
pub(crate) use metadata::Origin;
pub use metadata::Provenance;
#[cfg(any(test, fuzzing))]
pub(crate) use values::check_times;
pub use values::{BytesFormat, TimestampFormat};
pub(crate) use values::{ColumnBuilder, ValueFault, ValueOptions, infer_type, timestamp_millis, with_article};

use crate::error::{Error, Result};

/// Makes one schema of several: columns by name, in the order of their first appearance, each with the
/// narrowest type that holds both ([`unify_types`]). A column that some schema lacks is nullable.
///
/// # Errors
/// [`Error::SchemaConflict`] with the column, both types and where they come from.
pub fn unify_schemas<'a>(schemas: impl IntoIterator<Item = (&'a str, &'a Schema)>) -> Result<Schema> {
    let mut columns: Vec<(Field, &str, usize)> = Vec::new();
    let mut num_schemas = 0;
    for (name, schema) in schemas {
        num_schemas += 1;
        for field in schema.fields() {
            let Some((known, known_of, seen)) = columns.iter_mut().find(|(known, ..)| known.name() == field.name())
            else {
                columns.push((field.as_ref().clone(), name, 1));
                continue;
            };
            *known = unify_fields(known, field).ok_or_else(|| Error::SchemaConflict {
                column: field.name().clone(),
                left: type_name(known),
                left_of: (*known_of).to_owned(),
                right: type_name(field),
                right_of: name.to_owned(),
            })?;
            *seen += 1;
        }
    }
    let fields = columns.into_iter().map(|(field, _, seen)| {
        let nullable = field.is_nullable() || seen < num_schemas;
        field.with_nullable(nullable)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

/// A column as SQL knows it: lists and maps by their usual inner names, a dictionary as what it stands for, and
/// without what a writer noted beside it.
pub(crate) fn plain_field(field: &Field) -> Field {
    Field::new(field.name(), plain_type(field.data_type()), field.is_nullable())
}

fn plain_type(data_type: &DataType) -> DataType {
    let item = |field: &Field| Arc::new(plain_field(field).with_name(Field::LIST_FIELD_DEFAULT_NAME));
    match data_type {
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| plain_field(field)).collect()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                ddl::map_type(plain_field(&pair[0]).with_name("key"), plain_field(&pair[1]).with_name("value"))
            }
            other => other.clone(),
        },
        other => other.clone(),
    }
}

fn unify_fields(left: &Field, right: &Field) -> Option<Field> {
    let data_type = unify_types(left.data_type(), right.data_type())?;
    let finer = if precision(left) >= precision(right) { left } else { right };
    let nullable = left.is_nullable() || right.is_nullable();
    Some(Field::new(left.name(), data_type, nullable).with_metadata(finer.metadata().clone()))
}

/// The narrowest type that holds every value of both, or `None`. Every widening rule is in this table:
///
/// | one | other | both |
/// |---|---|---|
/// | null | any type | that type |
/// | integer | wider integer of the same sign | the wider |
/// | unsigned | signed | the next wider signed; `UInt64` DECIMAL(20,0) |
/// | TINYINT, SMALLINT and their unsigned | FLOAT | FLOAT |
/// | other integer | FLOAT, DOUBLE | DOUBLE (as in every engine, beyond 2^53 rounded) |
/// | FLOAT | DOUBLE | DOUBLE |
/// | integer, DECIMAL | DECIMAL | digits enough for both, 76 at most |
/// | DATE | TIMESTAMP | TIMESTAMP |
/// | TIME, TIMESTAMP | the same, finer | the finer; with a zone and without don't mix |
/// | text, bytes | large or view of the same | large, else the plain one |
/// | dictionary of a type | any | as the type |
/// | ARRAY, MAP, ROW | the same | element by element; fields of ROW by name |
pub fn unify_types(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::*;
    if left == right {
        return Some(left.clone());
    }
    let either =
        |a: &dyn Fn(&DataType) -> bool, b: &dyn Fn(&DataType) -> bool| (a(left) && b(right)) || (a(right) && b(left));
    Some(match (left, right) {
        (Null, other) | (other, Null) => other.clone(),
        (Dictionary(_, value), other) | (other, Dictionary(_, value)) => unify_types(value, other)?,
        _ if left.is_integer() && right.is_integer() => wider_integer(left, right)?,
        _ if either(&|t| matches!(t, Int8 | Int16 | UInt8 | UInt16), &|t| *t == Float32) => Float32,
        _ if either(&DataType::is_integer, &|t| matches!(t, Float32 | Float64)) => Float64,
        (Float32, Float64) | (Float64, Float32) => Float64,
        _ if decimal_digits(left).is_some() && decimal_digits(right).is_some() => {
            let ((whole_l, scale_l), (whole_r, scale_r)) = (decimal_digits(left)?, decimal_digits(right)?);
            let scale = scale_l.max(scale_r);
            match whole_l.max(whole_r) + scale {
                digits @ 0..=38 => Decimal128(digits as u8, scale as i8),
                digits @ 39..=76 => Decimal256(digits as u8, scale as i8),
                _ => return None,
            }
        }
        (Date32, stamp @ Timestamp(_, None)) | (stamp @ Timestamp(_, None), Date32) => stamp.clone(),
        (Timestamp(l, zone), Timestamp(r, other)) if zone == other => Timestamp(*l.max(r), zone.clone()),
        (Time32(l) | Time64(l), Time32(r) | Time64(r)) => match l.max(r) {
            TimeUnit::Second => Time32(TimeUnit::Second),
            TimeUnit::Millisecond => Time32(TimeUnit::Millisecond),
            finer => Time64(*finer),
        },
        (LargeUtf8, Utf8 | Utf8View) | (Utf8 | Utf8View, LargeUtf8) => LargeUtf8,
        (Utf8, Utf8View) | (Utf8View, Utf8) => Utf8,
        (LargeBinary, Binary | BinaryView) | (Binary | BinaryView, LargeBinary) => LargeBinary,
        (Binary, BinaryView) | (BinaryView, Binary) => Binary,
        (List(l), List(r)) => List(Arc::new(unify_fields(l, r)?)),
        (LargeList(l), LargeList(r) | List(r)) | (List(l), LargeList(r)) => LargeList(Arc::new(unify_fields(l, r)?)),
        (Map(l, sorted), Map(r, _)) => {
            let (Struct(l), Struct(r)) = (l.data_type(), r.data_type()) else { return None };
            let (2, 2) = (l.len(), r.len()) else { return None };
            let pair = vec![unify_fields(&l[0], &r[0])?, unify_fields(&l[1], &r[1])?];
            Map(Arc::new(Field::new("entries", Struct(pair.into()), false)), *sorted)
        }
        (Struct(l), Struct(r)) => Struct(unify_rows(l, r)?),
        _ => return None,
    })
}

fn unify_rows(left: &Fields, right: &Fields) -> Option<Fields> {
    let mut fields = Vec::new();
    for field in left {
        fields.push(match right.find(field.name()) {
            Some((_, other)) => unify_fields(field, other)?,
            None => field.as_ref().clone().with_nullable(true),
        });
    }
    for field in right.iter().filter(|field| left.find(field.name()).is_none()) {
        fields.push(field.as_ref().clone().with_nullable(true));
    }
    Some(fields.into())
}

fn wider_integer(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::*;
    let signed = |bits| match bits {
        8 => Int8,
        16 => Int16,
        32 => Int32,
        64 => Int64,
        _ => Decimal128(20, 0),
    };
    let (l, r) = (left.primitive_width()? * 8, right.primitive_width()? * 8);
    Some(match (left.is_signed_integer(), right.is_signed_integer()) {
        (true, true) => signed(l.max(r)),
        (true, false) => signed(l.max(2 * r)),
        (false, true) => signed(r.max(2 * l)),
        (false, false) if l >= r => left.clone(),
        (false, false) => right.clone(),
    })
}

/// Digits before and behind the point, of decimals and of integers among decimals.
fn decimal_digits(data_type: &DataType) -> Option<(u32, u32)> {
    use DataType::*;
    Some(match data_type {
        Int8 | UInt8 => (3, 0),
        Int16 | UInt16 => (5, 0),
        Int32 | UInt32 => (10, 0),
        Int64 => (19, 0),
        UInt64 => (20, 0),
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s) => {
            let scale = u32::try_from(*s).ok()?;
            (u32::from(*p).saturating_sub(scale), scale)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(left: &str, right: &str, both: Option<&str>) {
        let field = |text: &str| parse_schema(&format!("c {text}")).unwrap().field(0).clone();
        let (l, r) = (field(left), field(right));
        let expected = both.map(|both| field(both).data_type().clone());
        assert_eq!(unify_types(l.data_type(), r.data_type()), expected, "{left} and {right}");
        assert_eq!(unify_types(r.data_type(), l.data_type()), expected, "{right} and {left}");
    }

    #[test]
    fn the_table_of_widening_rules() {
        check("INT", "BIGINT", Some("BIGINT"));
        check("ARROW('UInt32')", "INT", Some("BIGINT"));
        check("ARROW('UInt64')", "INT", Some("DECIMAL(20,0)"));
        check("SMALLINT", "FLOAT", Some("FLOAT"));
        check("INT", "FLOAT", Some("DOUBLE"));
        check("FLOAT", "DOUBLE", Some("DOUBLE"));
        check("DECIMAL(4,2)", "DECIMAL(5,1)", Some("DECIMAL(6,2)"));
        check("DECIMAL(4,2)", "INT", Some("DECIMAL(12,2)"));
        check("DECIMAL(38,0)", "DECIMAL(38,38)", Some("DECIMAL(76,38)"));
        check("DECIMAL(76,0)", "DECIMAL(2,1)", None);
        check("DECIMAL(4,2)", "DOUBLE", None);
        check("DATE", "TIMESTAMP(3)", Some("TIMESTAMP(3)"));
        check("TIMESTAMP(3)", "TIMESTAMP(9)", Some("TIMESTAMP(9)"));
        check("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", None);
        check("TIME(0)", "TIME(6)", Some("TIME(6)"));
        check("STRING", "ARROW('LargeUtf8')", Some("ARROW('LargeUtf8')"));
        check("STRING", "ARROW('Utf8View')", Some("STRING"));
        check("STRING", "INT", None);
        check("BOOLEAN", "INT", None);
        check("ARRAY<INT>", "ARRAY<BIGINT>", Some("ARRAY<BIGINT>"));
        check("ARRAY<INT>", "ARRAY<STRING>", None);
        check("MAP<STRING, INT>", "MAP<STRING, DOUBLE>", Some("MAP<STRING, DOUBLE>"));
        check("ROW<a INT, b INT>", "ROW<a BIGINT, b INT>", Some("ROW<a BIGINT, b INT>"));
    }

    #[test]
    fn a_column_that_is_missing_somewhere_is_nullable() {
        let (a, b) = (
            parse_schema("id INT NOT NULL, v INT NOT NULL").unwrap(),
            parse_schema("w INT NOT NULL, id BIGINT NOT NULL").unwrap(),
        );
        let unified = unify_schemas([("a", &a), ("b", &b)]).unwrap();
        assert_eq!(format_schema(&unified), "id BIGINT NOT NULL, v INT, w INT");
    }

    #[test]
    fn a_conflict_names_the_column_and_both_types() {
        let (a, b) = (parse_schema("id INT").unwrap(), parse_schema("id STRING").unwrap());
        let error = unify_schemas([("0", &a), ("1", &b)]).unwrap_err();
        assert_eq!(error.to_string(), "column id: INT (0) and STRING (1) can't be unified");
    }

    fn scalar_types() -> impl Strategy<Value = DataType> {
        prop::sample::select(vec![
            DataType::Int8,
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::UInt8,
            DataType::UInt16,
            DataType::UInt32,
            DataType::UInt64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(4, 2),
            DataType::Decimal128(20, 5),
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Millisecond, None),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Boolean,
            DataType::Null,
        ])
    }

    proptest! {
        #[test]
        fn unifying_commutes_and_widening_twice_changes_nothing(a in scalar_types(), b in scalar_types()) {
            let both = unify_types(&a, &b);
            prop_assert_eq!(&both, &unify_types(&b, &a));
            if let Some(both) = both {
                prop_assert_eq!(unify_types(&both, &a), Some(both.clone()));
                prop_assert_eq!(unify_types(&both, &b), Some(both));
            }
        }
    }
}
