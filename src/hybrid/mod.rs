//! A chain of sources read as one.
//!
//! Every source but the last has an end. The chain has one unified schema; each source is fitted to it.
//! Reading is two steps, the same ones for a fresh start and for a restart:
//! [`HybridSource::resolve`] pins everything to numbers, [`HybridSource::open`] reads from there.
//!
//! ```text
//! resolve(None or stored) ──▶ Checkpoint ──▶ open ──▶ Reading(0) ─▶ Reading(1) ─▶ … ─▶ Done
//!                                  ▲                      │ item: rows + advances
//!                                  └── store it with the output ◀── checkpoint() after each item
//! ```

mod stream;
mod tolerance;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};

pub use stream::HybridStream;
pub use tolerance::MaxErrors;

use crate::checkpoint::{Checkpoint, SourceState};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::schema::{Provenance, format_schema, unify_schemas};
use crate::source::{BadRecords, Boundedness, DEFAULT_BATCH_ROWS, DEFAULT_MEMORY_BYTES, Phase, Source};

/// An ordered chain of sources; every one but the last has an end.
#[derive(Debug, Clone)]
pub struct HybridSource {
    sources: Vec<Arc<dyn Source>>,
    schema: SchemaRef,
    provenance: Vec<Provenance>,
    job: String,
}

/// Puts a [`HybridSource`] together.
#[derive(Debug, Default)]
pub struct HybridSourceBuilder {
    sources: Vec<Arc<dyn Source>>,
    schema: Option<SchemaRef>,
    provenance: Vec<Provenance>,
    job: String,
}

/// With what means, and how much, to read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The columns wanted, by name, in this order; all without.
    pub projection: Option<Vec<String>>,
    /// Rows per batch, at most.
    pub batch_rows: usize,
    /// Bytes that may be buffered.
    pub memory_bytes: usize,
    /// Threads that decode.
    pub num_threads: usize,
    /// Rows of this stream, at most: it ends exactly behind the last of them.
    pub limit: Option<u64>,
    /// What becomes of bad records, of sources whose own options don't say otherwise.
    pub bad_records: BadRecords,
    /// How many bad records are allowed over the life of the job; any number without.
    pub max_errors: Option<MaxErrors>,
    /// Where to count, made for as many sources as the chain has.
    pub progress: Option<Arc<Progress>>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            projection: None,
            batch_rows: DEFAULT_BATCH_ROWS,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            num_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            limit: None,
            bad_records: BadRecords::default(),
            max_errors: None,
            progress: None,
        }
    }
}

impl HybridSourceBuilder {
    /// Adds a source at the end of the chain.
    #[must_use]
    pub fn source(self, source: impl Source + 'static) -> Self {
        self.shared(Arc::new(source))
    }

    /// Adds a source that others hold too.
    #[must_use]
    pub fn shared(mut self, source: Arc<dyn Source>) -> Self {
        self.sources.push(source);
        self
    }

    /// Gives the unified schema; without, it is made of the sources' own.
    #[must_use]
    pub fn schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Adds columns of provenance behind the schema's.
    #[must_use]
    pub fn provenance(mut self, columns: impl IntoIterator<Item = Provenance>) -> Self {
        self.provenance.extend(columns);
        self
    }

    /// Names the job: a checkpoint of another one is refused. Without, any job's is taken that fits.
    #[must_use]
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = job.into();
        self
    }

    /// Checks the chain.
    ///
    /// # Errors
    /// [`Error::Chain`] for no source, two of one name, or an endless one before the last;
    /// [`Error::SchemaConflict`] if the sources' schemas can't be unified; [`Error::Schema`] if a
    /// column of provenance has the name of another column.
    pub fn build(self) -> Result<HybridSource> {
        let Some((last, before)) = self.sources.split_last() else {
            return Err(Error::Chain("a chain needs at least one source".into()));
        };
        let mut names = BTreeSet::new();
        for source in &self.sources {
            if !names.insert(source.name()) {
                return Err(Error::Chain(format!("two sources are called '{}'", source.name())));
            }
        }
        if let Some(source) = before.iter().find(|source| !source.boundedness().has_end()) {
            return Err(endless(source.name(), source.unbounded_because().as_deref(), last.name()));
        }
        let schema = match self.schema {
            Some(schema) => schema,
            None => {
                let schemas: Vec<(&str, SchemaRef)> =
                    self.sources.iter().map(|source| (source.name(), source.schema())).collect();
                Arc::new(unify_schemas(schemas.iter().map(|(name, schema)| (*name, schema.as_ref())))?)
            }
        };
        let mut columns: BTreeSet<&str> = BTreeSet::new();
        for name in
            schema.fields().iter().map(|field| field.name().as_str()).chain(self.provenance.iter().map(|c| c.name()))
        {
            if !columns.insert(name) {
                return Err(Error::Schema(format!(
                    "column {name} stands in the schema and in the columns of provenance"
                )));
            }
        }
        Ok(HybridSource { sources: self.sources, schema, provenance: self.provenance, job: self.job })
    }
}

/// The error for a source without an end that others come after.
pub(crate) fn endless(source: &str, because: Option<&str>, last: &str) -> Error {
    let because = because.map_or_else(String::new, |option| format!(": {option}"));
    Error::Chain(format!(
        "source '{source}' has no end{because}; only the last of a chain may be endless, and '{last}' comes after it"
    ))
}

impl HybridSource {
    /// Begins a chain.
    pub fn builder() -> HybridSourceBuilder {
        HybridSourceBuilder::default()
    }

    /// The sources, in order.
    pub fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    /// The unified schema, without provenance.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The schema of the stream's batches: the unified one and the columns of provenance behind it.
    pub fn output_schema(&self) -> SchemaRef {
        let columns = self.schema.fields().iter().map(|field| field.as_ref().clone());
        Arc::new(Schema::new(columns.chain(self.provenance.iter().map(|column| column.field())).collect::<Vec<_>>()))
    }

    /// Whether the chain ends: as its last source does.
    pub fn boundedness(&self) -> Boundedness {
        self.sources.last().map_or(Boundedness::Bounded, |source| source.boundedness())
    }

    /// Pins everything that has to be: from nothing, or from what was stored.
    ///
    /// Fresh, all lists of files and all starts and stops become numbers. With `stored`, the numbers
    /// stay, and unfinished splits are checked. Store the result before the first row is used.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if `stored` is of another job, or of this one with options that give
    /// positions another meaning; and what a source's [`Source::resolve`] says.
    pub async fn resolve(&self, stored: Option<Checkpoint>) -> Result<Checkpoint> {
        let schema = format_schema(&self.schema);
        let mut stored_sources = Vec::new();
        let mut checkpoint = Checkpoint { job: self.job.clone(), schema: schema.clone(), ..Checkpoint::default() };
        if let Some(stored) = stored {
            self.check(&stored, &schema)?;
            if checkpoint.job.is_empty() {
                checkpoint.job = stored.job;
            }
            checkpoint.epoch = stored.epoch;
            checkpoint.written = stored.written;
            stored_sources = stored.sources;
        }
        let mut stored_sources = stored_sources.into_iter();
        for source in &self.sources {
            checkpoint.sources.push(source.resolve(stored_sources.next(), None).await?);
        }
        Ok(checkpoint)
    }

    /// Reads from a checkpoint that [`Self::resolve`] gave, moved by items of this chain.
    ///
    /// # Contract
    /// Called within a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Schema`] for an unknown column in the projection, and what a source's [`Source::open`] says.
    pub fn open(&self, checkpoint: Checkpoint, options: ReadOptions) -> Result<HybridStream> {
        let columns = match &options.projection {
            None => Arc::clone(&self.schema),
            Some(names) => {
                let field = |name: &String| {
                    self.schema
                        .field_with_name(name)
                        .cloned()
                        .map_err(|_| Error::Schema(format!("the schema has no column {name}")))
                };
                Arc::new(Schema::new(names.iter().map(field).collect::<Result<Vec<_>>>()?))
            }
        };
        HybridStream::try_new(self, checkpoint, columns, options)
    }

    /// What rows of source `index` say in `_phase`.
    pub fn phase(&self, index: usize) -> Phase {
        let is_last = index + 1 == self.sources.len();
        match self.sources.get(index) {
            Some(source) if is_last && source.boundedness() != Boundedness::Bounded => Phase::Unbounded,
            _ => Phase::Bounded,
        }
    }

    pub(crate) fn provenance(&self) -> &[Provenance] {
        &self.provenance
    }

    fn check(&self, stored: &Checkpoint, schema: &str) -> Result<()> {
        let differs = |what: String, stored: &str, now: &str| {
            Err(Error::Incompatible { what, stored: stored.to_owned(), now: now.to_owned() })
        };
        if !self.job.is_empty() && !stored.job.is_empty() && stored.job != self.job {
            return differs("the job".into(), &stored.job, &self.job);
        }
        if stored.sources.len() > self.sources.len() {
            let count = |n: usize| format!("{n}");
            return differs("the number of sources".into(), &count(stored.sources.len()), &count(self.sources.len()));
        }
        for (source, state) in self.sources.iter().zip(&stored.sources) {
            if source.name() != state.name {
                return differs("the name of a source".into(), &state.name, source.name());
            }
            self.check_source(source.as_ref(), state)?;
        }
        if stored.schema != schema {
            return differs("the schema".into(), &stored.schema, schema);
        }
        Ok(())
    }

    fn check_source(&self, source: &dyn Source, state: &SourceState) -> Result<()> {
        let differs = |what: &str, stored: Option<&str>, now: Option<&str>| {
            let shown = |value: Option<&str>| value.map_or_else(|| "not set".to_owned(), |value| format!("'{value}'"));
            Err(Error::Incompatible {
                what: format!("source {}: {what}", state.name),
                stored: shown(stored),
                now: shown(now),
            })
        };
        if source.connector() != state.connector {
            return differs("connector", Some(&state.connector), Some(source.connector()));
        }
        let now = source.position_options();
        let keys: BTreeSet<&String> = now.keys().chain(state.options.keys()).collect();
        for key in keys {
            let (was, is) = (state.options.get(key), now.get(key));
            if was != is {
                return differs(key, was.map(String::as_str), is.map(String::as_str));
            }
        }
        Ok(())
    }
}
