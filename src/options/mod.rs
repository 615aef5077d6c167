//! String options become builders: the one vocabulary of command line, SQL and Python.
//!
//! A table ([`OPTION_KEYS`]) says which keys there are, what their values may be, and where they belong.
//! Options are set on [`SourceOptions`] and [`SinkOptions`], one by one or for a whole chain ([`assign`]),
//! each checked as it comes; from there they go into the builders. Nothing here opens a file of a source.
//!
//! ```text
//! "0.csv.header=true" ─▶ Assignment ─▶ assign ─▶ SourceOptions ─▶ FileSource::builder, KafkaSource::builder
//!                                            └▶ SinkOptions
//! ```

mod assign;
mod chain;
#[cfg(feature = "csv")]
mod csv;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "kafka")]
mod kafka;
mod keys;
mod sink;
mod source;
mod value;

pub use assign::{Assignment, assign};
pub use chain::{check_chain, check_formats, formats_ahead, topic_format};
pub use keys::{AppliesTo, OPTION_KEYS, OptionKey, ValueType, options_of};
pub use sink::SinkOptions;
pub use source::{Connector, SourceOptions};
pub use value::{OptionValue, parse_duration, parse_size, parse_time};

use self::keys::{recognise, unknown};
use crate::checkpoint::hash_of;
use crate::error::{Error, Result};

/// The name of a job that was given none: made of the first source's connector and path or topics, and of the
/// sink. Brokers come and go, so they don't count.
pub fn job_id(first: &SourceOptions, sink: &str) -> String {
    const ID_DIGITS: usize = 16;
    let what = match first.connector() {
        Connector::Filesystem { path } => path.trim_end_matches('/').to_owned(),
        #[cfg(feature = "kafka")]
        Connector::Kafka { .. } => first.topics_text(),
        Connector::Datagen => first.name().to_owned(),
    };
    // A NUL can be in none of the three.
    let mut id = hash_of([first.connector().as_str(), &what, sink].join("\0").as_bytes());
    id.truncate(ID_DIGITS);
    id
}

/// Checks key and value by the table, and returns the option.
///
/// An option of a later version is refused, unless it is set to what holds anyway.
fn check_value(key: &str, value: &OptionValue) -> Result<&'static OptionKey> {
    let option = recognise(key).ok_or_else(|| unknown(key))?.option;
    if !option.in_this_version {
        let is_default = !option.default.is_empty() && value.as_str().eq_ignore_ascii_case(option.default);
        if !is_default {
            return Err(Error::Unsupported(format!("option '{key}' is not in this version")));
        }
    }
    value.check(option).map_err(|reason| Error::option(key, reason))?;
    if let Some(later) = option.later_values.iter().find(|later| **later == value.as_str()) {
        return Err(Error::Unsupported(format!("option '{key}': {later} is not in this version")));
    }
    Ok(option)
}
