//! Where rows go: a stream on stdout, a folder of files, or a topic.

use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;

use arrow::datatypes::SchemaRef;
use segue::error::Error;
#[cfg(feature = "kafka")]
use segue::kafka::KafkaAddress;
use segue::options::{SinkOptions, SourceOptions};
#[cfg(feature = "kafka")]
use segue::sink::DEFAULT_KAFKA_MEMORY_BYTES;
use segue::sink::{
    DEFAULT_WRITER_MEMORY_BYTES, FolderFormat, FolderSink, FolderSinkBuilder, Header, Sink, StreamFormat, WriterSink,
};

use super::args::{OutputArgs, OutputFormat};
use super::fault::{Failure, Fault};
use super::job::Rows;

/// A sink as `--to` names it.
#[derive(Clone, Debug)]
pub(crate) enum SinkTarget {
    /// `FORMAT:FOLDER`
    Folder { format: FolderFormat, folder: String },
    /// `kafka://HOST/TOPIC`
    #[cfg(feature = "kafka")]
    Topic(KafkaAddress),
}

impl fmt::Display for SinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { format, folder } => write!(f, "{format}:{folder}"),
            #[cfg(feature = "kafka")]
            Self::Topic(address) => address.fmt(f),
        }
    }
}

impl SinkTarget {
    /// Understands `--to`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        if text.starts_with("kafka:") {
            return topic(text);
        }
        let later = ["delta:", "avro:", "s3://", "gs://", "az://"];
        if let Some(word) = later.iter().find(|word| text.starts_with(**word)) {
            return Err(Fault::later(format!("--to {text}: {}", word.trim_end_matches([':', '/']))).into());
        }
        let wanted = || {
            let what =
                "it is neither FORMAT:FOLDER, with csv, json, arrow or parquet for FORMAT, nor kafka://HOST/TOPIC";
            let fault = Fault::usage(format!("--to '{text}': {what}"));
            if text.contains(':') {
                fault
            } else {
                let format =
                    ["parquet", "json", "arrow"].into_iter().find(|suffix| text.ends_with(suffix)).unwrap_or("csv");
                fault.with_hint(format!("to write {format} files into that folder: --to {format}:{text}"))
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
        Ok(Self::Folder { format, folder: folder.to_owned() })
    }

    /// Claims the target for `job`, with at most a third of `memory_bytes`.
    pub(crate) fn open(&self, options: &SinkOptions, job: &str, memory_bytes: usize) -> Result<Box<dyn Sink>, Failure> {
        let most_bytes = memory_bytes / 3;
        Ok(match self {
            Self::Folder { format, folder } => {
                Box::new(folder_builder(*format, folder, options, most_bytes)?.job(job).build()?)
            }
            #[cfg(feature = "kafka")]
            Self::Topic(address) => {
                let bytes = DEFAULT_KAFKA_MEMORY_BYTES.min(most_bytes);
                Box::new(options.kafka_builder(address)?.memory_bytes(bytes).build()?)
            }
        })
    }

    /// Checks that the options are of this sink, and can stand.
    pub(crate) fn check(&self, options: &SinkOptions) -> Result<(), Failure> {
        let faults: Vec<Error> = options.keys().filter_map(|key| self.foreign(key)).collect();
        if !faults.is_empty() {
            return Err(faults.into());
        }
        match self {
            Self::Folder { .. } => Ok(()),
            #[cfg(feature = "kafka")]
            Self::Topic(address) => Ok(options.kafka_builder(address)?.check()?),
        }
    }

    /// The fault of an option that means nothing to this sink.
    fn foreign(&self, key: &str) -> Option<Error> {
        let group = key.strip_prefix("sink.")?.split('.').next()?;
        let known_by = match group {
            "csv" => "csv",
            "parquet" => "parquet",
            "format" | "partitions" | "properties" => "topics",
            _ => "folders",
        };
        let (is_known, kind) = match self {
            Self::Folder { format, .. } => ([format.as_str(), "folders"].contains(&known_by), format.as_str()),
            #[cfg(feature = "kafka")]
            Self::Topic(_) => (known_by == "topics", "a topic"),
        };
        let reason = || format!("it is an option of {known_by}, and the sink is {kind}");
        (!is_known).then(|| Error::InvalidOption { key: key.to_owned(), reason: reason() })
    }

    /// Refuses a folder that knows nothing of a job that has written into it: its rows went elsewhere, or were
    /// deleted, and going on would leave them out. A topic keeps nothing of a job.
    pub(crate) fn check_resumed(&self, num_rows: u64) -> Result<(), Failure> {
        let Some(folder) = self.folder() else { return Ok(()) };
        if num_rows == 0 || folder.join("_segue/job.json").exists() {
            return Ok(());
        }
        let reason = format!("the checkpoint has {num_rows} rows written into it, and it knows nothing of this job");
        let fault = Fault::from(Error::Target { target: self.to_string(), reason });
        Err(fault.with_hint("put it back, or begin anew without the checkpoint").into())
    }

    /// Refuses a folder with files in it if nothing says how far they go: they would all be written again. A
    /// topic may hold whatever it likes: rows are appended.
    pub(crate) fn check_fresh(&self, has_checkpoint: bool) -> Result<(), Failure> {
        let Some(folder) = self.folder() else { return Ok(()) };
        let entries = match folder.read_dir() {
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

    /// Refuses a topic that is read as well: what is written would come back as input.
    pub(crate) fn check_other_than(&self, sources: &[SourceOptions]) -> Result<(), Failure> {
        #[cfg(feature = "kafka")]
        if let Self::Topic(target) = self {
            for source in sources {
                if source.reads(target) {
                    let what = "it is read as well, and what is written would come back as input";
                    return Err(Fault::usage(format!("--to {self}: {what}")).into());
                }
            }
        }
        let _ = sources;
        Ok(())
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder { folder, .. } => Some(Path::new(folder.strip_prefix("file://").unwrap_or(folder))),
            #[cfg(feature = "kafka")]
            Self::Topic(_) => None,
        }
    }
}

/// Understands `--to kafka://HOST/TOPIC`.
#[cfg(feature = "kafka")]
fn topic(text: &str) -> Result<SinkTarget, Failure> {
    // Whoever puts a password there learns that it doesn't belong there, and nobody else learns it.
    let shown = text.split_once('@').map_or(text, |(_, host)| host);
    let wrong = |reason: &str| Failure::from(Fault::usage(format!("--to {shown}: {reason}")));
    let address = match text.parse::<KafkaAddress>() {
        Ok(address) => address,
        Err(Error::InvalidOption { reason, .. }) => {
            return Err(wrong(&reason.replace("-o properties.", "-o sink.properties.")));
        }
        Err(e) => return Err(e.into()),
    };
    match address.topics.len() {
        0 => return Err(wrong(&format!("it names no topic; write {address}/TOPIC"))),
        1 => {}
        _ => return Err(wrong("it names several topics, and rows go into one")),
    }
    Ok(SinkTarget::Topic(address))
}

#[cfg(not(feature = "kafka"))]
fn topic(text: &str) -> Result<SinkTarget, Failure> {
    Err(Fault::without_kafka(format!("--to {text}")).into())
}

/// A sink into a folder, with the options set.
fn folder_builder(
    format: FolderFormat,
    folder: &str,
    options: &SinkOptions,
    most_bytes: usize,
) -> Result<FolderSinkBuilder, Error> {
    let usual_bytes = match format {
        #[cfg(feature = "parquet")]
        FolderFormat::Parquet => segue::sink::DEFAULT_PARQUET_MEMORY_BYTES,
        _ => segue::sink::DEFAULT_FOLDER_MEMORY_BYTES,
    };
    let mut builder = FolderSink::builder(format, folder).memory_bytes(usual_bytes.min(most_bytes));
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
    Ok(builder)
}

/// How rows are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printed {
    format: StreamFormat,
    header: Header,
    on_terminal: bool,
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
        Ok(Self { format, header, on_terminal })
    }

    /// Where the rows go.
    pub(crate) fn rows(&self) -> Rows {
        match (self.format, self.on_terminal) {
            (StreamFormat::None, _) => Rows::Elsewhere,
            (_, true) => Rows::Terminal,
            (_, false) => Rows::Stdout,
        }
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
        assert_eq!(SinkTarget::parse("csv:a:b").unwrap().to_string(), "csv:a:b");
        for wrong in ["out", "csv:", "xml:out", "delta:out"] {
            assert_eq!(SinkTarget::parse(wrong).unwrap_err().status(), 2, "{wrong}");
        }
    }

    #[cfg(feature = "kafka")]
    fn told(failure: Failure) -> String {
        let mut text = Vec::new();
        failure.tell(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_target_is_one_topic_and_says_no_password() {
        assert_eq!(SinkTarget::parse("kafka://h/t").unwrap().to_string(), "kafka://h:9092/t");
        for (wrong, why) in [
            ("kafka:h/t", "error: --to kafka:h/t: it is not kafka://HOST[:9092][,HOST…]/TOPIC[,TOPIC…]\n"),
            ("kafka://h/a,b", "error: --to kafka://h/a,b: it names several topics, and rows go into one\n"),
            (
                "kafka://me:geheim@h/t",
                "error: --to h/t: it has no user; -o sink.properties.sasl.username and \
                 -o sink.properties.sasl.password say who asks\n",
            ),
        ] {
            let failure = SinkTarget::parse(wrong).unwrap_err();
            assert_eq!((failure.status(), told(failure).as_str()), (2, why));
        }
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn options_of_another_kind_of_sink_are_refused_all_of_them() {
        let faults = |target: &str, keys: &[(&str, &str)]| {
            let mut options = SinkOptions::default();
            keys.iter().for_each(|(key, value)| options.set(key, &(*value).into()).unwrap());
            SinkTarget::parse(target).unwrap().check(&options).err().map(told).unwrap_or_default()
        };
        let of_topics = [("sink.format", "json"), ("sink.partitions", "3"), ("sink.properties.linger.ms", "1")];
        let of_folders = [("sink.csv.header", "false"), ("sink.rolling-policy.file-size", "1 mb")];
        assert_eq!(faults("kafka://h/t", &of_topics), "");
        assert_eq!(faults("csv:out", &of_folders), "");
        assert_eq!(
            faults("kafka://h/t", &of_folders),
            "error: option 'sink.csv.header': it is an option of csv, and the sink is a topic\n\
             error: option 'sink.rolling-policy.file-size': it is an option of folders, and the sink is a topic\n"
        );
        assert_eq!(
            faults("csv:out", &of_topics),
            "error: option 'sink.format': it is an option of topics, and the sink is csv\n\
             error: option 'sink.partitions': it is an option of topics, and the sink is csv\n\
             error: option 'sink.properties.linger.ms': it is an option of topics, and the sink is csv\n"
        );
        assert_eq!(
            faults("kafka://h/t", &[("sink.partitions", "0")]),
            "error: option 'sink.partitions': it must be from 1 to 65535\n"
        );
        assert_eq!(
            faults("kafka://h/t", &[("sink.properties.acks", "1")]),
            "error: option 'sink.properties.acks': it can't be set: a row is safe when every replica in sync has it\n"
        );
    }
}
