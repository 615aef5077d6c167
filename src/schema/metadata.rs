//! Columns of provenance: where each row comes from.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use crate::checkpoint::RowPositions;
use crate::error::{Error, Result};

/// A column that says where a row comes from. Null where the source has no such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// `_source` STRING: the name of the source.
    Source,
    /// `_phase` STRING: `bounded` or `unbounded`.
    Phase,
    /// `_split` STRING: the file or topic partition.
    Split,
    /// `_position` BIGINT: where this record starts.
    Position,
    /// `_path` STRING: the file's path or URL.
    Path,
    /// `_topic` STRING.
    Topic,
    /// `_partition` INT.
    Partition,
    /// `_offset` BIGINT.
    Offset,
    /// `_timestamp` TIMESTAMP_LTZ(3): the message's.
    Timestamp,
    /// `_key` BYTES: the message's.
    Key,
    /// `_headers` ARRAY<ROW<key STRING, value BYTES>>: the message's.
    Headers,
}

impl Provenance {
    /// All of them, in their usual order.
    pub const ALL: [Self; 11] = [
        Self::Source,
        Self::Phase,
        Self::Split,
        Self::Position,
        Self::Path,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::Key,
        Self::Headers,
    ];

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "_source",
            Self::Phase => "_phase",
            Self::Split => "_split",
            Self::Position => "_position",
            Self::Path => "_path",
            Self::Topic => "_topic",
            Self::Partition => "_partition",
            Self::Offset => "_offset",
            Self::Timestamp => "_timestamp",
            Self::Key => "_key",
            Self::Headers => "_headers",
        }
    }

    /// The column's name and type.
    pub fn field(self) -> Field {
        let data_type = match self {
            Self::Source | Self::Phase | Self::Split | Self::Path | Self::Topic => DataType::Utf8,
            Self::Position | Self::Offset => DataType::Int64,
            Self::Partition => DataType::Int32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            Self::Key => DataType::Binary,
            Self::Headers => {
                let header = Fields::from(vec![
                    Field::new("key", DataType::Utf8, true),
                    Field::new("value", DataType::Binary, true),
                ]);
                DataType::List(Arc::new(Field::new_list_field(DataType::Struct(header), true)))
            }
        };
        Field::new(self.name(), data_type, true)
    }

    /// Reads a list such as `_source,_position`, or `all`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an unknown column, or one named twice.
    pub fn parse_list(text: &str) -> Result<Vec<Self>> {
        if text.trim() == "all" {
            return Ok(Self::ALL.to_vec());
        }
        let mut columns = Vec::new();
        for name in text.split(',').map(str::trim) {
            let known = Self::ALL.into_iter().find(|column| column.name() == name || &column.name()[1..] == name);
            let column = known.ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|column| column.name()).collect();
                Error::option("metadata", format!("'{name}' is none of {}, all", names.join(", ")))
            })?;
            if columns.contains(&column) {
                return Err(Error::option("metadata", format!("{column} stands there twice")));
            }
            columns.push(column);
        }
        Ok(columns)
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the rows of one batch come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The split, if all rows are of one.
    pub(crate) split: Option<&'a str>,
    /// The file's path or URL.
    pub(crate) path: Option<&'a str>,
    /// Where each row stands.
    pub(crate) rows: &'a RowPositions,
    /// Columns that the source fills itself, such as offsets of a topic.
    pub(crate) own: &'a [(Provenance, ArrayRef)],
}

impl Origin<'_> {
    pub(crate) fn column(&self, column: Provenance, source_name: &str, phase: &str) -> ArrayRef {
        if let Some((_, array)) = self.own.iter().find(|(own, _)| *own == column) {
            return Arc::clone(array);
        }
        let num_rows = self.rows.num_rows();
        let constant = match column {
            Provenance::Source => Some(source_name),
            Provenance::Phase => Some(phase),
            Provenance::Split => self.split,
            Provenance::Path => self.path,
            Provenance::Position => return Arc::new(self.rows.to_array()),
            _ => None,
        };
        match constant {
            Some(text) => Arc::new(StringArray::new_repeated(text, num_rows)),
            None => new_null_array(column.field().data_type(), num_rows),
        }
    }
}
