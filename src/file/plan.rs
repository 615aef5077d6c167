//! Which files are left to read, and from where.

use std::fmt;
use std::str::FromStr;

use tracing::info;

use super::FileSource;
#[cfg(feature = "csv")]
use super::charset::has_wide_mark;
use super::discover::{FileMeta, Location};
use super::fetch::ListedFile;
use crate::checkpoint::{SourceState, SplitList, SplitState, Splits};
use crate::error::{Error, Result};
#[cfg(feature = "csv")]
use crate::format::Charset;
use crate::format::{Format, TextOptions};

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)), several members allowed.
    Gzip,
    /// Zstandard ([RFC 8878](https://www.rfc-editor.org/rfc/rfc8878)), several frames allowed.
    Zstd,
}

impl Compression {
    /// By suffix: `.gz`, `.zst`.
    pub fn of_file(name: &str) -> Self {
        if name.ends_with(".gz") {
            Self::Gzip
        } else if name.ends_with(".zst") {
            Self::Zstd
        } else {
            Self::None
        }
    }

    /// As in the option `compression`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            _ => Err(Error::option("compression", format!("'{text}' is none of none, gzip, zstd"))),
        }
    }
}

/// The chosen compression, or the one of the suffix. A file without a byte holds nothing to decompress.
fn compression_of(chosen: Option<Compression>, file: &ListedFile) -> Compression {
    if file.size() == 0 {
        return Compression::None;
    }
    chosen.unwrap_or_else(|| Compression::of_file(file.id.as_str()))
}

/// How the text of a file became the bytes that are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coding {
    pub(crate) compression: Compression,
    /// Of CSV alone, as it was chosen: what a file begins with may tell more. All other text is UTF-8.
    #[cfg(feature = "csv")]
    pub(crate) charset: Option<Charset>,
}

impl Coding {
    /// How a file of a source of `format` is coded, given what was chosen for all of them.
    pub(crate) fn of_file(
        compression: Option<Compression>,
        format: Format,
        options: &TextOptions,
        file: &ListedFile,
    ) -> Self {
        let _ = (format, options);
        Self {
            compression: compression_of(compression, file),
            #[cfg(feature = "csv")]
            charset: (format == Format::Csv).then_some(options.csv.charset),
        }
    }

    /// Says whether the stored bytes are the text itself, if they begin with `head`.
    pub(crate) fn is_plain(&self, head: &[u8]) -> bool {
        #[cfg(feature = "csv")]
        if self.charset.is_some_and(|charset| !charset.is_utf8() || has_wide_mark(head)) {
            return false;
        }
        let _ = head;
        self.compression == Compression::None
    }
}

/// The files that a state leaves to read, in order.
#[derive(Debug)]
pub(crate) struct Plan {
    location: Location,
    list: SplitList,
    next: usize,
    current: Option<SplitState>,
}

/// A file, and where to begin in it: 0 for all but the first.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFile {
    pub(crate) file: ListedFile,
    pub(crate) start: u64,
}

impl Plan {
    pub(crate) fn try_new(source: &FileSource, state: &SourceState) -> Result<Self> {
        let Splits::OneByOne { list, done, current } = &state.splits else {
            return Err(Error::Chain(format!("source {} reads files one by one", state.name)));
        };
        Ok(Self { location: source.location.clone(), list: list.clone(), next: *done, current: current.clone() })
    }
}

impl Iterator for Plan {
    type Item = Result<PlannedFile>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.list.get(self.next)?;
        self.next += 1;
        let start = self.current.take().map_or(0, |split| split.position);
        let file = ListedFile::try_new(&self.location, &entry.id, &entry.identity);
        Some(file.map(|file| PlannedFile { file, start }))
    }
}

/// The files of one format.
#[derive(Debug)]
pub(crate) struct OfFormat {
    pub(crate) files: Vec<FileMeta>,
    /// `None` if there are no files.
    pub(crate) format: Option<Format>,
    /// Files that were passed over, since their suffix isn't known.
    pub(crate) num_skipped: usize,
}

/// Keeps the files of `given`, or of the one format that the suffixes show.
///
/// With a given format, every file is of it, whatever its suffix; without, files of unknown suffix are passed over
/// and counted.
///
/// # Errors
/// [`Error::Schema`] for a mix of formats; `place` is the source.
pub(crate) fn of_format(files: Vec<FileMeta>, given: Option<Format>, place: &str) -> Result<OfFormat> {
    if given.is_some() {
        return Ok(OfFormat { files, format: given, num_skipped: 0 });
    }
    let mut found: Option<(Format, String)> = None;
    let mut kept = Vec::with_capacity(files.len());
    let mut num_skipped = 0;
    for file in files {
        let Some(format) = Format::of_file(file.id.as_str())? else {
            num_skipped += 1;
            continue;
        };
        match &found {
            Some((known, first)) if *known != format => {
                return Err(Error::Schema(format!(
                    "{place}: files of two formats, {first} ({known}) and {} ({format}); take one by a glob or --format",
                    file.id
                )));
            }
            Some(_) => {}
            None => found = Some((format, file.id.to_string())),
        }
        kept.push(file);
    }
    if num_skipped > 0 && !kept.is_empty() {
        info!("{place}: passed over for their suffixes: {num_skipped} of {} files", num_skipped + kept.len());
    }
    Ok(OfFormat { files: kept, format: found.map(|(format, _)| format), num_skipped })
}

/// # Errors
/// [`Error::NotFound`] for no files, unless that is allowed; `num_skipped` were there and passed over.
pub(crate) fn not_empty(files: &[FileMeta], num_skipped: usize, location: &Location, allowed: bool) -> Result<()> {
    if !files.is_empty() || allowed {
        return Ok(());
    }
    let place = location.text();
    if num_skipped == 1 && location.is_file() {
        let reason = format!("the suffix of {place} doesn't tell it: say it with --format, or as csv:{place}");
        return Err(Error::option("format", reason));
    }
    let what = match num_skipped {
        0 => format!("{place}: no matching files (source.allow-empty=true lets it pass)"),
        n => format!("{place}: no matching files: {n} of other suffixes are there, and --format would take them"),
    };
    Err(Error::NotFound { what })
}
