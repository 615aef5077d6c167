//! What the command line means: sources, their options, and the chain they make.
//!
//! Checks come in the order of their cost, and the first kind that fails ends it with all its faults:
//! [`Described`] holds what is right in syntax, options and chain, before anything was looked at;
//! [`Described::build`] looks at schema and formats, then at files. Brokers are asked when the chain is resolved.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use segue::checkpoint::{Checkpoint, FileCheckpointStore, SplitState};
use segue::error::Error;
use segue::file::FileSource;
use segue::format::Format;
use segue::hybrid::HybridSource;
#[cfg(feature = "kafka")]
use segue::kafka::{KafkaSource, OnDataLoss, OnGap};
use segue::options::{
    Connector, SinkOptions, SourceOptions, assign, check_chain, check_formats, formats_ahead, job_id, topic_format,
};
use segue::schema::{Provenance, format_schema, parse_schema};
use segue::source::Source;

use super::args::{JobArgs, SourceArgs};
use super::console::Console;
use super::fault::{Failure, Fault};
use super::input::{assignments, reach, source};
use super::sink::SinkTarget;

/// More files than anybody types: the shell took a glob apart.
const MANY_FILES: usize = 8;

/// Sources as they were described, with options that they know.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) sources: Vec<SourceOptions>,
    pub(crate) sink: SinkOptions,
    /// The schema of `--schema`.
    schema: Option<SchemaRef>,
    /// Of each source, as far as it is known before anything is looked at.
    formats: Vec<Option<Format>>,
}

/// Sources that were looked at, and the chain that they make.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) hybrid: HybridSource,
    /// The sources again, as what they are.
    pub(crate) sources: Vec<ChainSource>,
}

/// A source of a chain, as what it is.
#[derive(Clone, Debug)]
pub(crate) enum ChainSource {
    Files(Arc<FileSource>),
    #[cfg(feature = "kafka")]
    Topics(Arc<KafkaSource>),
}

impl ChainSource {
    /// As every source is seen.
    pub(crate) fn shared(&self) -> Arc<dyn Source> {
        match self {
            Self::Files(files) => Arc::clone(files) as Arc<dyn Source>,
            #[cfg(feature = "kafka")]
            Self::Topics(topics) => Arc::clone(topics) as Arc<dyn Source>,
        }
    }

    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Files(files) => files.format(),
            #[cfg(feature = "kafka")]
            Self::Topics(topics) => topics.format(),
        }
    }

    /// Whether the first record of each file names its columns; `None` where there can be none that does.
    pub(crate) fn header(&self) -> Option<bool> {
        match self {
            Self::Files(files) => files.header(),
            #[cfg(feature = "kafka")]
            Self::Topics(_) => None,
        }
    }

    /// Whether reading goes on behind offsets of this split that the log no longer has.
    pub(crate) fn passes_over_gap(&self, split: &SplitState) -> bool {
        match self {
            // A file has no gaps.
            Self::Files(_) => {
                let _ = split;
                false
            }
            #[cfg(feature = "kafka")]
            Self::Topics(topics) => topics.on_data_loss_of(split) != OnDataLoss::Fail,
        }
    }
}

/// What a chain is made with besides its sources.
#[derive(Debug, Default)]
pub(crate) struct ChainParts {
    pub(crate) job: String,
    pub(crate) provenance: Vec<Provenance>,
    /// Whether offsets that are gone are told instead of failing: for plans.
    pub(crate) tells_gaps: bool,
    /// Where an earlier run stopped.
    pub(crate) stored: Option<Stored>,
}

/// The checkpoint of an earlier run.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) checkpoint: Checkpoint,
}

impl Stored {
    /// The schema that the job has.
    fn schema(&self) -> Result<SchemaRef, Error> {
        match self.checkpoint.schema.as_str() {
            // What a job of nothing but empty files has.
            "" => Ok(Arc::new(Schema::empty())),
            words => parse_schema(words).map(Arc::new),
        }
    }
}

impl Described {
    /// Checks syntax, options and names.
    pub(crate) fn new(args: &SourceArgs, target: Option<&SinkTarget>, console: &Console) -> Result<Self, Failure> {
        let mut faults = Vec::new();
        let sources = args.sources.iter().enumerate().map(|(index, text)| source(index, text));
        let mut sources: Vec<SourceOptions> =
            sources.filter_map(|source| source.map_err(|fault| faults.push(fault)).ok()).collect();
        let mut assignments = assignments(&args.options, args.format.as_deref(), &mut faults);
        // Whether there are topics is known once every source is understood.
        if sources.len() == args.sources.len() {
            let reach = reach(args, &sources, &assignments, &mut faults);
            assignments.extend(reach);
        }
        if !faults.is_empty() {
            return Err(Failure::Faults(faults));
        }
        let mut sink = SinkOptions::default();
        assign(&mut sources, target.is_some().then_some(&mut sink), &assignments)?;
        if let Some(target) = target {
            target.check(&sink)?;
        }
        check_chain(&sources)?;
        let formats = formats_ahead(&sources, args.schema.is_some())?;
        let schema = args.schema.as_deref().map(schema_of).transpose()?;
        let num_files = args.sources.iter().filter(|source| Path::new(source).is_file()).count();
        if num_files > MANY_FILES {
            console.note(format_args!(
                "hint: {num_files} files are {num_files} sources; quote the glob ('logs/*.csv'), and its files are one source in natural order",
            ));
        }
        Ok(Self { sources, sink, schema, formats })
    }

    /// The job's name: as given, else made of the first source and the sink.
    pub(crate) fn job(&self, args: &JobArgs, target: Option<&SinkTarget>) -> String {
        let sink = target.map_or_else(|| "stdout".to_owned(), ToString::to_string);
        args.job_id.clone().unwrap_or_else(|| match self.sources.first() {
            Some(first) => job_id(first, &sink),
            None => sink,
        })
    }

    /// Looks at schema and formats, then at files, and makes the chain.
    pub(crate) async fn build(&self, parts: ChainParts, console: &Console) -> Result<Chain, Failure> {
        let schema = match (&self.schema, &parts.stored) {
            (Some(given), _) => Some(Arc::clone(given)),
            (None, Some(stored)) => Some(stored.schema()?),
            (None, None) => None,
        };
        let looking = Looking {
            described: self,
            stored: parts.stored.as_ref().map(|stored| &stored.checkpoint),
            tells_gaps: parts.tells_gaps,
        };
        let (schema, note) = match schema {
            Some(schema) => (schema, None),
            None => looking.infer(console).await?,
        };
        self.check_mappings(&schema)?;
        let sources = looking.build_all(&schema).await?;
        if let Some(note) = note {
            console.note(note);
        }
        let formats: Vec<_> =
            self.sources.iter().zip(&sources).map(|(options, source)| (options, source.format())).collect();
        check_formats(&formats)?;
        let mut builder = HybridSource::builder().provenance(parts.provenance).job(parts.job).schema(schema);
        for source in &sources {
            builder = builder.shared(source.shared());
        }
        Ok(Chain { hybrid: builder.build()?, sources })
    }

    fn check_mappings(&self, schema: &SchemaRef) -> Result<(), Failure> {
        let faults: Vec<Error> = self
            .sources
            .iter()
            .filter_map(|source| source.mapping().check(schema).err().map(|error| source.hide_secrets(error)))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.into()) }
    }
}

/// Looks at files as far as needed.
struct Looking<'a> {
    described: &'a Described,
    stored: Option<&'a Checkpoint>,
    tells_gaps: bool,
}

impl Looking<'_> {
    /// Finds the schema, and what is to be told of it: the first source of files with types gives it, else the first
    /// one of text that isn't empty. Topics never do, but for raw text where there is nothing else.
    async fn infer(&self, console: &Console) -> Result<(SchemaRef, Option<String>), Failure> {
        let mut faults = Vec::new();
        let mut text: Option<(usize, SchemaRef)> = None;
        let mut typed: Option<(usize, SchemaRef)> = None;
        let mut no_records: Option<Error> = None;
        for (index, source) in self.described.sources.iter().enumerate() {
            // Text is worth a look only until one source has columns.
            let is_text = source.format_ahead().is_some_and(|format| !format.has_types());
            if source.is_topic() || typed.is_some() || (text.is_some() && is_text) {
                continue;
            }
            match self.files(index, None).await {
                Ok(files) if files.format().has_types() => typed = Some((index, files.schema())),
                Ok(files) => text = text.or_else(|| Some((index, files.schema()))),
                Err(error @ Error::NoRecords { .. }) => no_records = no_records.or(Some(error)),
                Err(error) => faults.push(error.into()),
            }
        }
        if !faults.is_empty() {
            return Err(Failure::of_first_kind(faults));
        }
        let verb = if typed.is_some() { "of" } else { "inferred from" };
        if let Some((giver, schema)) = typed.or(text) {
            let from = place(&self.described.sources[giver]);
            let note = format!("schema {verb} {from}: --schema {}", shell_quoted(&format_schema(&schema)));
            return Ok((schema, Some(note)));
        }
        if let Some(topic) = self.described.sources.iter().position(SourceOptions::is_topic) {
            return self.infer_of_topic(topic, no_records);
        }
        console.note("warning: there are no records, and so no columns; --schema gives them");
        Ok((Arc::new(Schema::empty()), None))
    }

    /// Raw text has its one column. Other messages need columns that are given; `no_records` is of files that had none.
    fn infer_of_topic(&self, index: usize, no_records: Option<Error>) -> Result<(SchemaRef, Option<String>), Failure> {
        let format = self.described.formats[index];
        if let (Some(error), true) = (no_records, format != Some(Format::Raw)) {
            return Err(error.into());
        }
        let topics = self.topics(index, format.unwrap_or(Format::Raw), None).map_err(|error| match error {
            error @ Error::Schema(_) => Fault::from(error).with_hint("--schema 'id INT, price DOUBLE' gives them"),
            error => error.into(),
        })?;
        let schema = topics.shared().schema();
        let from = place(&self.described.sources[index]);
        let note = format!("schema of {from}: -o format=raw --schema {}", shell_quoted(&format_schema(&schema)));
        Ok((schema, Some(note)))
    }

    async fn build_all(&self, schema: &SchemaRef) -> Result<Vec<ChainSource>, Failure> {
        let (mut built, mut faults) = (Vec::<ChainSource>::new(), Vec::new());
        for (index, source) in self.described.sources.iter().enumerate() {
            let schema = Some(Arc::clone(schema));
            let one = if source.is_topic() {
                let format = match (self.described.formats[index], built.last()) {
                    (Some(format), _) => Ok(format),
                    // The source that would tell the format is a fault already.
                    (None, _) if built.len() < index => continue,
                    (None, before) => topic_format(source, before.map(ChainSource::format)),
                };
                format.and_then(|format| self.topics(index, format, schema))
            } else {
                self.files(index, schema).await.map(|files| ChainSource::Files(Arc::new(files)))
            };
            match one {
                Ok(source) => built.push(source),
                Err(error) => faults.push(error.into()),
            }
        }
        if faults.is_empty() { Ok(built) } else { Err(Failure::of_first_kind(faults)) }
    }

    async fn files(&self, index: usize, schema: Option<SchemaRef>) -> Result<FileSource, Error> {
        let source = &self.described.sources[index];
        let built = async {
            let mut builder = source.file_builder()?.inferred(self.described.schema.is_none());
            if let Some(schema) = schema {
                builder = builder.schema(schema);
            }
            if let Some(state) = self.stored.and_then(|stored| stored.sources.get(index)) {
                builder = builder.stored(state.clone());
            }
            builder.build().await
        };
        built.await.map_err(|error| source.hide_secrets(error))
    }

    #[cfg(feature = "kafka")]
    fn topics(&self, index: usize, format: Format, schema: Option<SchemaRef>) -> Result<ChainSource, Error> {
        let source = &self.described.sources[index];
        if let (Format::Raw, Some(schema)) = (format, &schema) {
            check_raw(source, schema)?;
        }
        let built = source.kafka_builder().and_then(|builder| {
            let on_gap = if self.tells_gaps { OnGap::Tell } else { OnGap::Fail };
            let builder = builder.format(format).on_gap(on_gap);
            match schema {
                // Raw text has the one column that it has.
                Some(schema) if format != Format::Raw => builder.schema(schema).build(),
                _ => builder.build(),
            }
        });
        built.map(|topics| ChainSource::Topics(Arc::new(topics))).map_err(|error| source.hide_secrets(error))
    }

    /// Without the feature no source of topics can be described.
    #[cfg(not(feature = "kafka"))]
    fn topics(&self, index: usize, _format: Format, _schema: Option<SchemaRef>) -> Result<ChainSource, Error> {
        let _ = self.tells_gaps;
        Err(Error::Unsupported(format!("source {index}: this segue was built without the feature kafka")))
    }
}

/// Refuses raw text of which the schema takes nothing: every row would be null.
#[cfg(feature = "kafka")]
fn check_raw(source: &SourceOptions, schema: &Schema) -> Result<(), Error> {
    const COLUMN: &str = "value";
    let mapping = source.mapping();
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    if names().any(|name| mapping.input(name) == Some(COLUMN)) {
        return Ok(());
    }
    let (name, columns) = (source.name(), names().collect::<Vec<_>>().join(", "));
    Err(Error::Schema(format!(
        "source {name}: raw messages have the one column {COLUMN}, and the schema has {columns}; set {name}.format, or {name}.column.NAME.from={COLUMN}"
    )))
}

/// What a source is, as it was named.
fn place(source: &SourceOptions) -> String {
    match source.connector() {
        Connector::Filesystem { path } => path.clone(),
        #[cfg(feature = "kafka")]
        Connector::Kafka { address } => address.to_string(),
        Connector::Datagen => source.name().to_owned(),
    }
}

/// Reads the value of `--schema`.
pub(super) fn schema_of(text: &str) -> Result<SchemaRef, Failure> {
    let words = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Fault::usage(format!("--schema {text}: {path} can't be read: {e}")))?,
    };
    Ok(Arc::new(parse_schema(&words)?))
}

/// Reads the value of `--metadata`.
pub(super) fn provenance(text: Option<&str>) -> Result<Vec<Provenance>, Failure> {
    Ok(text.map(Provenance::parse_list).transpose()?.unwrap_or_default())
}

/// Reads the checkpoint of `--checkpoint` without claiming it.
pub(super) fn stored(path: Option<&Path>) -> Result<Option<Stored>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let checkpoint = FileCheckpointStore::read(path)?;
    Ok(checkpoint.map(|checkpoint| Stored { checkpoint }))
}

/// A text as one word of a shell.
pub(super) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What `plan` says of a source's format: `csv, header yes`.
pub(super) fn header_word(format: Format, header: Option<bool>) -> String {
    match header {
        Some(true) => format!("{format}, header yes"),
        Some(false) => format!("{format}, header no"),
        None => format.to_string(),
    }
}
