//! Files: local or in an object store, in their stated order, decoded in parallel.
//!
//! ```text
//! discover ─▶ list of files ─▶ fetch (async, ahead) ─▶ cut (one thread) ─▶ decode (pool) ─▶ ordered items
//!  paths, globs, URLs           ranges, in order        whole records        chunks
//! ```
//!
//! Parquet needs no cutting: its row groups, or parts of them, are fetched and decoded side by side.

#[cfg(feature = "csv")]
mod charset;
mod discover;
mod fetch;
#[cfg(feature = "parquet")]
mod parquet;
mod plan;
mod sample;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use serde_json::Value;
use tracing::warn;

use self::discover::{FileMeta, Location};
use self::fetch::ListedFile;
pub use self::plan::Compression;
use self::plan::{Coding, Plan};
use crate::checkpoint::{SourceState, SplitList, Splits};
use crate::error::{Error, Result};
#[cfg(feature = "csv")]
use crate::format::CsvOptions;
#[cfg(feature = "json")]
use crate::format::JsonOptions;
use crate::format::{Format, TextOptions};
use crate::schema::Mapping;
use crate::source::{Boundedness, History, ReadRequest, Source, SourceStream};

/// What to do about files that appear after the list was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnNewFiles {
    /// They aren't read; a warning counts them.
    #[default]
    Ignore,
    /// They are an error at the next start.
    Error,
}

/// A source of files.
#[derive(Debug, Clone)]
pub struct FileSource {
    name: String,
    location: Location,
    format: Format,
    /// The format that was asked for; files of other suffixes are of this source too then.
    given_format: Option<Format>,
    compression: Option<Compression>,
    schema: SchemaRef,
    mapping: Mapping,
    options: TextOptions,
    /// Whether the first record of each CSV file names its columns; decided once.
    header: Option<bool>,
    on_new_files: OnNewFiles,
    /// The list that was made to look at the files; the first fresh start takes it.
    listed: Arc<Mutex<Option<Vec<FileMeta>>>>,
    /// Columns that a warning named already.
    warned: Arc<Mutex<BTreeSet<String>>>,
    /// Whether the schema was found out, here or of another source, instead of given.
    is_inferred: bool,
    allow_empty: bool,
}

/// Describes a [`FileSource`].
#[derive(Debug, Clone)]
pub struct FileSourceBuilder {
    path: String,
    store: Option<Arc<dyn ObjectStore>>,
    name: Option<String>,
    format: Option<Format>,
    compression: Option<Compression>,
    schema: Option<SchemaRef>,
    mapping: Mapping,
    options: TextOptions,
    on_new_files: OnNewFiles,
    allow_empty: bool,
    stored: Option<SourceState>,
    is_inferred: bool,
}

impl FileSourceBuilder {
    fn new(path: String) -> Self {
        Self {
            path,
            store: None,
            name: None,
            format: None,
            compression: None,
            schema: None,
            mapping: Mapping::default(),
            options: TextOptions::default(),
            on_new_files: OnNewFiles::default(),
            allow_empty: false,
            stored: None,
            is_inferred: false,
        }
    }

    /// Takes the path as one in `store` instead of the local disk or a URL.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn ObjectStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the name; the path without.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the format; by suffix without. With it, files with unknown suffixes are read too.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Sets the compression of every file; by suffix (`.gz`, `.zst`) without.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Gives the schema; without, it is the first file's, or inferred from the first records.
    #[must_use]
    pub fn schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Says that the schema given was inferred, from another source: columns that it lacks are warned of, and a
    /// value that doesn't fit it gets a hint.
    #[must_use]
    pub fn inferred(mut self, is_inferred: bool) -> Self {
        self.is_inferred = is_inferred;
        self
    }

    /// Sets how the source is fitted to the unified schema.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.mapping = mapping;
        self
    }

    /// Sets the options of CSV.
    #[cfg(feature = "csv")]
    #[must_use]
    pub fn csv(mut self, options: CsvOptions) -> Self {
        self.options.csv = options;
        self
    }

    /// Sets the options of JSON.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn json(mut self, options: JsonOptions) -> Self {
        self.options.json = options;
        self
    }

    /// Sets what to do about files that appear after the list was made.
    #[must_use]
    pub fn on_new_files(mut self, on_new_files: OnNewFiles) -> Self {
        self.on_new_files = on_new_files;
        self
    }

    /// Lets a folder or a pattern match nothing.
    #[must_use]
    pub fn allow_empty(mut self, allow_empty: bool) -> Self {
        self.allow_empty = allow_empty;
        self
    }

    /// Takes what was found out at an earlier start from its state, instead of looking again: a restart
    /// never infers, and needs no file that was finished.
    #[must_use]
    pub fn stored(mut self, state: SourceState) -> Self {
        self.stored = Some(state);
        self
    }

    /// Looks at the files as far as needed: lists them, tells the format, the header and the schema.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a path that isn't there or a folder without matching files,
    /// [`Error::Schema`] if the schema can't be had, [`Error::InvalidOption`] for options that don't go
    /// together, and what the files say.
    pub async fn build(self) -> Result<FileSource> {
        sample::build(self).await
    }
}

impl FileSource {
    /// Describes a source of the file, folder, glob or URL `path`.
    pub fn builder(path: impl Into<String>) -> FileSourceBuilder {
        FileSourceBuilder::new(path.into())
    }

    /// The format of the files.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the first record of each file names its columns; `None` if the format has no header.
    pub fn header(&self) -> Option<bool> {
        self.header
    }

    /// Lists the files and keeps those that are of this source.
    async fn list(&self) -> Result<Vec<FileMeta>> {
        let listed = self.location.list().await?;
        plan::of_format(listed, self.given_format, self.location.text()).map(|found| found.files)
    }

    async fn fresh(&self) -> Result<SourceState> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let files = match listed {
            Some(files) => files,
            None => self.list().await?,
        };
        plan::not_empty(&files, 0, &self.location, self.allow_empty)?;
        let list = SplitList::new(files.iter().map(FileMeta::to_entry));
        let mut state =
            SourceState::new(&self.name, "filesystem", Splits::one_by_one(list)).with_options(self.position_options());
        if let Some(header) = self.header {
            state.notes.insert("header".into(), Value::Bool(header));
        }
        Ok(state)
    }

    /// Checks what is left of a stored state against the files that are there.
    async fn restarted(&self, mut state: SourceState) -> Result<SourceState> {
        let stored_header = state.notes.get("header").and_then(Value::as_bool);
        if stored_header != self.header {
            let shown =
                |header: Option<bool>| header.map_or_else(|| "not set".to_owned(), |header| format!("'{header}'"));
            return Err(Error::Incompatible {
                what: format!("source {}: csv.header", self.name),
                stored: shown(stored_header),
                now: shown(self.header),
            });
        }
        let Splits::OneByOne { list, current, .. } = &mut state.splits else {
            return Err(Error::Chain(format!("source {} reads files one by one", self.name)));
        };
        if let Some(split) = current {
            let meta = self.location.head(&split.id).await.map_err(|e| match e {
                Error::NotFound { what } => Error::NotFound { what: format!("{what}: it was begun and is gone") },
                e => e,
            })?;
            if let Some(difference) = split.identity.difference(&self.location.identity(&meta)) {
                return Err(Error::Changed { path: self.location.display(&split.id), difference });
            }
        }
        let list = list.clone();
        // Finished files are never looked at again, nor is a folder of which all were.
        if !state.splits.is_done() || self.on_new_files == OnNewFiles::Error {
            self.look_for_new_files(&list).await?;
        }
        Ok(state)
    }

    async fn look_for_new_files(&self, list: &SplitList) -> Result<()> {
        let known: BTreeSet<&str> = list.iter().map(|entry| entry.id.as_str()).collect();
        let files = self.list().await?;
        let new: Vec<&str> = files.iter().map(|file| file.id.as_str()).filter(|id| !known.contains(id)).collect();
        let Some(first) = new.first() else { return Ok(()) };
        let what = format!("{} files appeared after the list was made, {first} first", new.len());
        match self.on_new_files {
            OnNewFiles::Ignore => {
                warn!("{}: {what}; they aren't read", self.location.text());
                Ok(())
            }
            OnNewFiles::Error => Err(Error::Changed { path: self.location.text().to_owned(), difference: what }),
        }
    }

    /// How a file's text became what is stored.
    fn coding_of(&self, file: &ListedFile) -> Coding {
        Coding::of_file(self.compression, self.format, &self.options, file)
    }

    /// Warns once of columns that some file lacks.
    fn warn_of_missing(&self, place: &str, missing: &[String]) {
        let new = self.newly_warned(missing.iter().map(String::as_str));
        if !new.is_empty() {
            let (plural, verb) = if new.len() == 1 { ("", "is") } else { ("s", "are") };
            warn!("{place}: column{plural} {} {verb} missing and null there (said once)", new.join(", "));
        }
    }

    /// Warns once of columns that an inferred schema lacks: nobody chose to leave them out.
    fn warn_of_extra<'a>(&self, place: &str, extra: impl Iterator<Item = &'a str>) {
        if !self.is_inferred {
            return;
        }
        let new = self.newly_warned(extra);
        if !new.is_empty() {
            let (plural, verb) = if new.len() == 1 { ("", "isn't") } else { ("s", "aren't") };
            let names = new.join(", ");
            warn!(
                "{place}: column{plural} {names} {verb} in the inferred schema and {verb} read (said once); --schema can name more"
            );
        }
    }

    fn newly_warned<'a>(&self, columns: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        columns.filter(|column| warned.insert((*column).to_owned())).collect()
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> &str {
        "filesystem"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        let mut options = self.mapping.to_options();
        options.insert("path".into(), self.location.text().to_owned());
        options.insert("format".into(), self.format.to_string());
        if let Some(compression) = self.compression {
            options.insert("compression".into(), compression.to_string());
        }
        #[cfg(feature = "csv")]
        if self.format == Format::Csv {
            options.extend(self.options.csv.position_options());
        }
        options
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        _history: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>> {
        async move {
            match stored {
                Some(state) => self.restarted(state).await,
                None => self.fresh().await,
            }
        }
        .boxed()
    }

    fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream> {
        let plan = Plan::try_new(self, state)?;
        match self.format {
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::open(self, plan, request),
            _ => text::open(self, plan, request),
        }
    }
}
