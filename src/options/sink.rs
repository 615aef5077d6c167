//! The options of a sink.

use std::collections::BTreeMap;
#[cfg(feature = "kafka")]
use std::num::NonZeroU16;
use std::time::Duration;

use super::value::{OptionValue, parse_boolean, parse_duration, parse_size};
use super::{AppliesTo, check_value};
use crate::error::{Error, Result};
#[cfg(feature = "kafka")]
use crate::kafka::KafkaAddress;
#[cfg(feature = "parquet")]
use crate::sink::ParquetOptions;
#[cfg(feature = "kafka")]
use crate::sink::{KafkaSink, KafkaSinkBuilder};

/// The options of a sink, each checked as it is set.
#[derive(Clone, Debug, Default)]
pub struct SinkOptions {
    values: BTreeMap<String, OptionValue>,
}

impl SinkOptions {
    /// Sets an option by its whole key: `sink.csv.header`.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::Unsupported`] for one of a later version, [`Error::InvalidOption`]
    /// for a value that it can't have, an option of something else, or one that is set already.
    pub fn set(&mut self, key: &str, value: &OptionValue) -> Result<()> {
        let option = check_value(key, value)?;
        if option.applies_to != AppliesTo::Sink {
            return Err(Error::option(
                key,
                format!("it is an option of {}, not of a sink", option.applies_to.as_str()),
            ));
        }
        match self.values.insert(key.to_owned(), value.clone()) {
            None => Ok(()),
            Some(_) => Err(Error::option(key, "it is given twice")),
        }
    }

    /// The keys that are set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Bytes after which a file is closed; `None` if nothing is said of it.
    pub fn file_size_bytes(&self) -> Option<u64> {
        parse_size(self.text("sink.rolling-policy.file-size")?).ok()
    }

    /// Time after which a file is closed; `None` if nothing is said of it.
    pub fn rollover_interval(&self) -> Option<Duration> {
        parse_duration(self.text("sink.rolling-policy.rollover-interval")?).ok()
    }

    /// Whether CSV begins with the names of the columns; `None` if nothing is said of it.
    pub fn csv_header(&self) -> Option<bool> {
        parse_boolean(self.text("sink.csv.header")?).ok()
    }

    /// How Parquet files are written; the defaults where nothing is said of it.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a value that can't stand.
    #[cfg(feature = "parquet")]
    pub fn parquet(&self) -> Result<ParquetOptions> {
        let mut parquet = ParquetOptions::default();
        if let Some(text) = self.text("sink.parquet.compression") {
            parquet.compression = text.parse()?;
        }
        if let Some(text) = self.text("sink.parquet.row-group-rows") {
            let rows = super::value::parse_count(text)
                .ok()
                .and_then(|rows| usize::try_from(rows).ok())
                .filter(|rows| *rows > 0);
            parquet.row_group_rows =
                rows.ok_or_else(|| Error::option("sink.parquet.row-group-rows", "it must be at least 1"))?;
        }
        Ok(parquet)
    }

    /// A sink into the topic at `address`, with the options set.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a value that can't stand.
    #[cfg(feature = "kafka")]
    pub fn kafka_builder(&self, address: &KafkaAddress) -> Result<KafkaSinkBuilder> {
        let mut builder = KafkaSink::builder(address);
        if let Some(text) = self.text("sink.format") {
            builder = builder.format(text.parse()?);
        }
        if let Some(text) = self.text("sink.partitions") {
            let partitions = text.trim().parse::<NonZeroU16>();
            let wrong = |_| Error::option("sink.partitions", format!("it must be from 1 to {}", u16::MAX));
            builder = builder.partitions(partitions.map_err(wrong)?);
        }
        for (key, value) in &self.values {
            let Some(property) = key.strip_prefix("sink.properties.") else { continue };
            builder = if value.is_secret() {
                builder.secret_property(property, value.as_str())
            } else {
                builder.property(property, value.as_str())
            };
        }
        Ok(builder)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(OptionValue::as_str)
    }
}
