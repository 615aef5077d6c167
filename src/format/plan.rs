//! A text format made ready for certain columns: decoders of it for chunk after chunk.

#[cfg(feature = "csv")]
use super::CsvOptions;
#[cfg(feature = "json")]
use super::JsonOptions;
#[cfg(feature = "csv")]
use super::csv::CsvPlan;
#[cfg(feature = "json")]
use super::json::JsonPlan;
use super::raw::RawDecoder;
use super::{Format, RecordDecoder};
use crate::error::Result;

/// The options of every text format; a source uses those of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextOptions {
    #[cfg(feature = "csv")]
    pub(crate) csv: CsvOptions,
    #[cfg(feature = "json")]
    pub(crate) json: JsonOptions,
}

impl TextOptions {
    /// Whether bad records are left out, whatever is asked for otherwise.
    pub(crate) fn ignores_parse_errors(&self, format: Format) -> bool {
        match format {
            #[cfg(feature = "csv")]
            Format::Csv => self.csv.ignore_parse_errors,
            #[cfg(feature = "json")]
            Format::Json => self.json.ignore_parse_errors,
            _ => false,
        }
    }
}

/// What decoders of one source, or of files with one header, are made of.
#[derive(Debug)]
pub(crate) enum DecoderPlan {
    #[cfg(feature = "csv")]
    Csv(CsvPlan),
    #[cfg(feature = "json")]
    Json(JsonPlan),
    Raw,
}

impl DecoderPlan {
    /// A decoder for about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Schema`](crate::Error::Schema) for a column of a type that text can't be.
    pub(crate) fn decoder(&self, rows: usize) -> Result<Box<dyn RecordDecoder>> {
        Ok(match self {
            #[cfg(feature = "csv")]
            Self::Csv(plan) => Box::new(plan.decoder(rows)?),
            #[cfg(feature = "json")]
            Self::Json(plan) => Box::new(plan.decoder(rows)?),
            Self::Raw => {
                let _ = rows;
                Box::new(RawDecoder::default())
            }
        })
    }
}
