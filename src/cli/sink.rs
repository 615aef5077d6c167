//! Where rows go: a stream on stdout, or a folder of files.

use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;

use arrow::datatypes::SchemaRef;
use segue::error::Error;
use segue::options::SinkOptions;
use segue::sink::{DEFAULT_WRITER_MEMORY_BYTES, FolderFormat, FolderSink, Header, StreamFormat, WriterSink};

use super::args::{OutputArgs, OutputFormat};
use super::fault::{Failure, Fault};

/// A sink as `--to` names it: `FORMAT:FOLDER`.
#[derive(Clone, Debug)]
pub(crate) struct SinkTarget {
    format: FolderFormat,
    folder: String,
}

impl fmt::Display for SinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.format, self.folder)
    }
}

impl SinkTarget {
    /// Understands `--to`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let later = ["kafka:", "delta:", "avro:", "s3://", "gs://", "az://"];
        if let Some(word) = later.iter().find(|word| text.starts_with(**word)) {
            return Err(Fault::later(format!("--to {text}: {}", word.trim_end_matches([':', '/']))).into());
        }
        let wanted = || {
            let what = "it is not FORMAT:FOLDER, with csv, json, arrow or parquet for FORMAT";
            let fault = Fault::usage(format!("--to '{text}': {what}"));
            if text.contains(':') {
                fault
            } else {
                fault.with_hint(format!("to write CSV files into that folder: --to csv:{text}"))
            }
        };
        let (format, folder) = text.split_once(':').ok_or_else(wanted)?;
        let format: FolderFormat = match format.parse() {
            Ok(format) => format,
            Err(e @ Error::Unsupported(_)) => return Err(e.into()),
            Err(_) => return Err(wanted().into()),
        };
        if folder.is_empty() {
            return Err(wanted().into());
        }
        Ok(Self { format, folder: folder.to_owned() })
    }

    /// Claims the folder for `job`, with at most a third of `memory_bytes`.
    pub(crate) fn open(&self, options: &SinkOptions, job: &str, memory_bytes: usize) -> Result<FolderSink, Failure> {
        let usual_bytes = match self.format {
            #[cfg(feature = "parquet")]
            FolderFormat::Parquet => segue::sink::DEFAULT_PARQUET_MEMORY_BYTES,
            _ => segue::sink::DEFAULT_FOLDER_MEMORY_BYTES,
        };
        let mut builder = FolderSink::builder(self.format, &self.folder).job(job);
        builder = builder.memory_bytes(usual_bytes.min(memory_bytes / 3));
        if let Some(bytes) = options.file_size_bytes() {
            builder = builder.roll_bytes(bytes);
        }
        if let Some(interval) = options.rollover_interval() {
            builder = builder.rollover_interval(interval);
        }
        if let Some(header) = options.csv_header() {
            builder = builder.header(if header { Header::Written } else { Header::Omitted });
        }
        #[cfg(feature = "parquet")]
        {
            builder = builder.parquet(options.parquet()?);
        }
        Ok(builder.build()?)
    }

    /// Checks that the options are of this sink's format.
    pub(crate) fn check(&self, options: &SinkOptions) -> Result<(), Failure> {
        let foreign = options.keys().find_map(|key| {
            let format = key.strip_prefix("sink.")?.split_once('.')?.0;
            (["csv", "parquet"].contains(&format) && format != self.format.as_str()).then(|| Error::InvalidOption {
                key: key.to_owned(),
                reason: format!("it is an option of {format}, and the sink is {}", self.format),
            })
        });
        foreign.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Refuses a folder that knows nothing of a job that has written into it: its rows went elsewhere, or were
    /// deleted, and going on would leave them out.
    pub(crate) fn check_resumed(&self, num_rows: u64) -> Result<(), Failure> {
        let folder = self.folder.strip_prefix("file://").unwrap_or(&self.folder);
        if num_rows == 0 || Path::new(folder).join("_segue/job.json").exists() {
            return Ok(());
        }
        let reason = format!("the checkpoint has {num_rows} rows written into it, and it knows nothing of this job");
        let fault = Fault::from(Error::Target { target: self.to_string(), reason });
        Err(fault.with_hint("put it back, or begin anew without the checkpoint").into())
    }

    /// Refuses a folder with files in it if nothing says how far they go: they would all be written again.
    pub(crate) fn check_fresh(&self, has_checkpoint: bool) -> Result<(), Failure> {
        let folder = self.folder.strip_prefix("file://").unwrap_or(&self.folder);
        let entries = match Path::new(folder).read_dir() {
            Ok(entries) => entries,
            // The sink makes it, or says why it can't.
            Err(_) => return Ok(()),
        };
        let is_visible = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with(['_', '.']);
        if !entries.filter_map(Result::ok).any(|entry| is_visible(&entry.file_name())) {
            return Ok(());
        }
        let (reason, hint) = if has_checkpoint {
            (
                "it holds files of this job, and the checkpoint isn't there",
                "give the checkpoint of those files, or an empty folder",
            )
        } else {
            (
                "it holds files of this job, and without a checkpoint nobody knows how far they go",
                "give an empty folder, and --checkpoint to be able to go on",
            )
        };
        Err(Fault::usage(format!("{self}: {reason}")).with_hint(hint).into())
    }
}

/// How rows are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printed {
    format: StreamFormat,
    header: Header,
    pub(crate) on_terminal: bool,
}

impl Printed {
    /// Understands `--output` and `--no-header`.
    pub(crate) fn new(args: &OutputArgs) -> Result<Self, Failure> {
        let on_terminal = io::stdout().is_terminal();
        let format = match args.output {
            Some(OutputFormat::Csv) => StreamFormat::Csv,
            Some(OutputFormat::Json) => StreamFormat::Json,
            Some(OutputFormat::Arrow) => StreamFormat::Arrow,
            Some(OutputFormat::Table) => StreamFormat::Table,
            Some(OutputFormat::None) => StreamFormat::None,
            None if on_terminal => StreamFormat::Table,
            None => StreamFormat::Csv,
        };
        if format == StreamFormat::Arrow && on_terminal {
            return Err(Fault::usage("--output arrow writes bytes that no terminal can show")
                .with_hint("send them into a file or a pipe: > rows.arrow")
                .into());
        }
        let header = if args.no_header { Header::Omitted } else { Header::Written };
        Ok(Self { format, header, on_terminal: on_terminal && format != StreamFormat::None })
    }

    /// Begins to print, with at most an eighth of `memory_bytes`.
    pub(crate) fn open(&self, schema: SchemaRef, memory_bytes: usize) -> Result<WriterSink, Failure> {
        let builder = WriterSink::builder(self.format, schema).header(self.header);
        Ok(builder.memory_bytes(DEFAULT_WRITER_MEMORY_BYTES.min(memory_bytes / 8)).build(io::stdout())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_format_and_a_folder() {
        assert_eq!(SinkTarget::parse("csv:a:b").unwrap().folder, "a:b");
        for wrong in ["out", "csv:", "xml:out", "delta:out", "kafka://h/t"] {
            assert_eq!(SinkTarget::parse(wrong).unwrap_err().status(), 2, "{wrong}");
        }
    }
}
