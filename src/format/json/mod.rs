//! Newline-delimited JSON: one object a line.
//!
//! ```text
//! chunk ─▶ scan (strict, no copies) ─▶ one slot per wanted key ─▶ columns (typed, by the rules of all text)
//! ```
//!
//! Every byte of a record is held against RFC 8259, also under keys that nobody wants. Values of a record
//! are only places in its text until the record is whole: of a key that stands twice the last value counts.

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod beside_arrow;
mod column;
mod decoder;
#[cfg(test)]
#[cfg(feature = "csv")]
mod differential;
mod infer;
mod keys;
mod scan;
mod shape;
mod skip;
mod strict;
#[cfg(any(test, fuzzing))]
pub(crate) mod twins;

pub(crate) use decoder::JsonPlan;
pub(crate) use infer::Inference;

/// How JSON is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonOptions {
    /// Whether bad records are left out and counted, whatever is asked for otherwise: `json.ignore-parse-errors`, off
    /// by default.
    pub ignore_parse_errors: bool,
    /// Whether a record without the key of a column is bad, instead of having null there:
    /// `json.fail-on-missing-field`, off by default.
    pub fail_on_missing_field: bool,
    /// Whether a key is also a column's if only the case of letters differs, where no column has its exact
    /// name: `json.case-insensitive-names`, off by default. Of keys that are one column's the last value counts.
    pub case_insensitive_names: bool,
    /// Whether text columns take numbers and booleans, and columns of numbers and booleans take strings:
    /// `json.coerce`, off by default.
    pub coerce: bool,
    /// How deep arrays and objects may be nested, the record itself counted: `json.max-depth`, 64 by default.
    pub max_depth: usize,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            ignore_parse_errors: false,
            fail_on_missing_field: false,
            case_insensitive_names: false,
            coerce: false,
            max_depth: 64,
        }
    }
}
