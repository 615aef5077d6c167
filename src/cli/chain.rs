//! What the command line means: sources, their options, and the chain they make.
//!
//! Checks come in the order of their cost, and the first kind that fails ends it with all its faults:
//! [`Described`] holds what is right in syntax, options and chain, before any file was looked at;
//! [`Described::build`] looks at schema and formats, then at files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use segue::checkpoint::{Checkpoint, FileCheckpointStore};
use segue::error::Error;
use segue::file::FileSource;
use segue::format::Format;
use segue::hybrid::HybridSource;
use segue::options::{Assignment, Connector, SinkOptions, SourceOptions, assign, check_formats, job_id};
use segue::schema::{Provenance, format_schema, parse_schema};
use segue::source::Source;

use super::args::{JobArgs, SourceArgs};
use super::console::Console;
use super::fault::{Failure, Fault};
use super::sink::SinkTarget;

/// The words that may stand in front of a source, before a colon.
const FORMATS: [&str; 7] = ["csv", "json", "parquet", "raw", "avro", "arrow", "delta"];

/// More files than anybody types: the shell took a glob apart.
const MANY_FILES: usize = 8;

/// Sources as they were described, with options that they know.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) sources: Vec<SourceOptions>,
    pub(crate) sink: SinkOptions,
    /// The schema of `--schema`.
    schema: Option<SchemaRef>,
}

/// Sources that were looked at, and the chain that they make.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) hybrid: HybridSource,
    /// The sources again, as what they are.
    pub(crate) files: Vec<Arc<FileSource>>,
}

/// What a chain is made with besides its sources.
#[derive(Debug, Default)]
pub(crate) struct ChainParts {
    pub(crate) job: String,
    pub(crate) provenance: Vec<Provenance>,
    /// Where an earlier run stopped.
    pub(crate) stored: Option<Stored>,
}

/// A checkpoint and where it was found.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) path: String,
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
        let assignments = assignments(&args.options, args.format.as_deref(), &mut faults);
        if let Some(flag) = kafka_flag(args) {
            faults.push(Fault::usage(format!("{flag} is for Kafka sources, and there is none here")));
        }
        if !faults.is_empty() {
            return Err(Failure::Faults(faults));
        }
        let mut sink = SinkOptions::default();
        assign(&mut sources, target.is_some().then_some(&mut sink), &assignments)?;
        if let Some(target) = target {
            target.check(&sink)?;
        }
        check_names(&sources)?;
        let schema = args.schema.as_deref().map(schema_of).transpose()?;
        let num_files = args.sources.iter().filter(|source| Path::new(source).is_file()).count();
        if num_files > MANY_FILES {
            console.note(format_args!(
                "hint: {num_files} files are {num_files} sources; quote the glob ('logs/*.csv'), and its files are one source in natural order",
            ));
        }
        Ok(Self { sources, sink, schema })
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
            (None, Some(stored)) => {
                console
                    .note(format_args!("{}: the checkpoint is there, so its schema and positions count", stored.path));
                Some(stored.schema()?)
            }
            (None, None) => None,
        };
        if let Some(schema) = &schema {
            self.check_mappings(schema)?;
        }
        let mut looking = Looking { described: self, stored: parts.stored.as_ref().map(|stored| &stored.checkpoint) };
        let files = match schema.clone() {
            Some(schema) => looking.build_all(&schema).await?,
            None => looking.infer(console).await?,
        };
        let formats: Vec<_> = self.sources.iter().zip(&files).map(|(source, file)| (source, file.format())).collect();
        check_formats(&formats)?;
        let files: Vec<Arc<FileSource>> = files.into_iter().map(Arc::new).collect();
        let mut builder = HybridSource::builder().provenance(parts.provenance).job(parts.job);
        for file in &files {
            builder = builder.shared(Arc::clone(file) as Arc<dyn Source>);
        }
        if let Some(schema) = schema.or_else(|| files.first().map(|file| file.schema())) {
            builder = builder.schema(schema);
        }
        Ok(Chain { hybrid: builder.build()?, files })
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
}

impl Looking<'_> {
    async fn build_one(&mut self, index: usize, schema: Option<SchemaRef>) -> Result<FileSource, Error> {
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

    async fn build_all(&mut self, schema: &SchemaRef) -> Result<Vec<FileSource>, Failure> {
        let (mut files, mut faults) = (Vec::new(), Vec::new());
        for index in 0..self.described.sources.len() {
            match self.build_one(index, Some(Arc::clone(schema))).await {
                Ok(file) => files.push(file),
                Err(error) => faults.push(error.into()),
            }
        }
        if faults.is_empty() { Ok(files) } else { Err(Failure::of_first_kind(faults)) }
    }

    /// Finds the schema: the first source with types gives it, else the first text source that isn't empty.
    async fn infer(&mut self, console: &Console) -> Result<Vec<FileSource>, Failure> {
        let mut faults = Vec::new();
        let mut text: Option<(usize, SchemaRef)> = None;
        let mut typed: Option<(usize, SchemaRef)> = None;
        for (index, source) in self.described.sources.iter().enumerate() {
            // Text is worth a look only until one source has columns.
            let is_text = source.format_ahead().is_some_and(|format| !format.has_types());
            if typed.is_some() || (text.is_some() && is_text) {
                continue;
            }
            match self.build_one(index, None).await {
                Ok(file) if file.format().has_types() => typed = Some((index, file.schema())),
                Ok(file) => text = text.or_else(|| Some((index, file.schema()))),
                Err(Error::NoRecords { .. }) => {}
                Err(error) => faults.push(error.into()),
            }
        }
        if !faults.is_empty() {
            return Err(Failure::of_first_kind(faults));
        }
        let Some((giver, schema)) = typed.or(text) else {
            console.note("warning: there are no records, and so no columns; --schema gives them");
            return self.build_all(&Arc::new(Schema::empty())).await;
        };
        self.described.check_mappings(&schema)?;
        let files = self.build_all(&schema).await?;
        let from = match self.described.sources[giver].connector() {
            Connector::Filesystem { path } => path,
            Connector::Datagen => self.described.sources[giver].name(),
        };
        let verb = if files[giver].format().has_types() { "of" } else { "inferred from" };
        console.note(format_args!("schema {verb} {from}: --schema {}", shell_quoted(&format_schema(&schema))));
        Ok(files)
    }
}

/// Understands one SOURCE.
fn source(index: usize, text: &str) -> Result<SourceOptions, Fault> {
    if text == "-" {
        return Err(stdin(text));
    }
    if text.starts_with("kafka:") {
        return Err(Fault::later(format!("{text}: kafka")));
    }
    if text.split_once(':').is_some_and(|(format, path)| FORMATS.contains(&format) && path == "-") {
        return Err(stdin(text));
    }
    let (format, path) = match text.split_once(':') {
        Some((format, path)) if FORMATS.contains(&format) && !path.starts_with("//") => (Some(format), path),
        _ => (None, text),
    };
    let mut source = SourceOptions::new(Connector::Filesystem { path: path.to_owned() }, index.to_string());
    if let Some(format) = format {
        source.set("format", &format.into())?;
    }
    Ok(source)
}

fn stdin(text: &str) -> Fault {
    let what = "stdin can't be read, since nothing that was read from it can be read again";
    Fault::usage(format!("source '{text}': {what}")).with_hint("write it into a file first")
}

/// Reads every `-o`, and `--format` as what it is short for.
pub(super) fn assignments(options: &[String], format: Option<&str>, faults: &mut Vec<Fault>) -> Vec<Assignment> {
    let mut assignments: Vec<Assignment> = format.map(|format| Assignment::new("format", format)).into_iter().collect();
    for option in options {
        if let Some(path) = option.strip_prefix('@') {
            match Assignment::read_file(path) {
                Ok(read) => assignments.extend(read),
                Err(errors) => faults.extend(errors.into_iter().map(Fault::from)),
            }
            continue;
        }
        match Assignment::parse(option) {
            Ok(assignment) => assignments.push(assignment),
            Err(e) if option.contains('=') => faults.push(e.into()),
            Err(e) => faults.push(Fault::from(e).with_hint(format!(
                "-o sets an option; rows go to stdout (`> {option}`), or into a folder with `copy --to csv:FOLDER`"
            ))),
        }
    }
    assignments
}

fn kafka_flag(args: &SourceArgs) -> Option<&'static str> {
    let given = [("--from", args.from.is_some()), ("--until", args.until.is_some()), ("--bounded", args.bounded)];
    given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
}

fn check_names(sources: &[SourceOptions]) -> Result<(), Failure> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for (index, source) in sources.iter().enumerate() {
        let name = source.name();
        if !names.insert(name) {
            faults.push(Error::Chain(format!("two sources are called '{name}'")));
        }
        if name.parse::<usize>().is_ok_and(|number| number != index) {
            faults.push(Error::Chain(format!(
                "source {index} can't be called '{name}': that number is another source's"
            )));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.into()) }
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
    Ok(checkpoint.map(|checkpoint| Stored { path: path.display().to_string(), checkpoint }))
}

/// A text as one word of a shell.
fn shell_quoted(text: &str) -> String {
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
