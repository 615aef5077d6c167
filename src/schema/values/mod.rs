//! How text becomes typed values: one set of rules for CSV fields, JSON scalars, constants and defaults.
//!
//! Strict: what isn't wholly a value of the type is a fault, and never a null.
//!
//! Each type has a *general* path, which reads all that is allowed and names what is wrong with the rest, and in
//! front of it a fast one for the shapes that files are full of. The fast one either knows the value, which is
//! then the same, or asks the general one; so it never decides what the language is.
//!
//! ```text
//! ColumnBuilder ──► int ──► word (eight digits at a time)
//!  (one loop        float
//!   per type)       decimal
//!                   time
//!                   bytes
//! ```

mod bytes;
mod cells;
mod column;
mod decimal;
mod float;
mod infer;
mod int;
#[cfg(test)]
mod oracle;
#[cfg(any(test, fuzzing))]
mod slow_time;
mod time;
mod timestamp_format;
mod word;

use arrow::datatypes::Field;

pub(crate) use column::ColumnBuilder;
pub(crate) use infer::infer_type;
#[cfg(any(test, fuzzing))]
pub(crate) use slow_time::check_times;
pub(crate) use time::timestamp_millis;
pub use timestamp_format::TimestampFormat;

use super::type_name;
use crate::error::{Reason, quoted};

/// How BYTES are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BytesFormat {
    /// RFC 4648 base64 with padding.
    #[default]
    Base64,
    /// Two hexadecimal digits a byte.
    Hex,
}

/// What decides how text is read, apart from the type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueOptions<'a> {
    /// How BYTES are written.
    pub(crate) bytes_format: BytesFormat,
    /// Whether digits beyond a DECIMAL's scale are rounded (half away from zero) instead of refused.
    pub(crate) decimal_rounding: bool,
    /// How timestamps are written, if not as ISO 8601 has it.
    pub(crate) timestamp_format: Option<&'a TimestampFormat>,
}

/// Why a text isn't a value of a column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueFault {
    NotA,
    OutOfRange,
    ExcessDigits,
    NotNull,
}

impl ValueFault {
    /// By what records with such a value are counted.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::NotA => Reason::Type,
            Self::OutOfRange => Reason::Range,
            Self::ExcessDigits => Reason::Digits,
            Self::NotNull => Reason::Null,
        }
    }

    /// In words, with the value cut and escaped.
    pub(crate) fn describe(self, value: &[u8], field: &Field) -> String {
        let (value, name) = (quoted(value), type_name(field));
        match self {
            Self::NotA => format!("{value} is not {}", with_article(&name)),
            Self::OutOfRange => format!("{value} is out of range for {name}"),
            Self::ExcessDigits => format!("{value} has more digits than {name} holds"),
            Self::NotNull => format!("null in a NOT NULL column ({name})"),
        }
    }
}

/// `a DOUBLE`, `an INT`.
pub(crate) fn with_article(type_name: &str) -> String {
    let article = if type_name.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {type_name}")
}

pub(crate) type Outcome<T> = std::result::Result<T, ValueFault>;
