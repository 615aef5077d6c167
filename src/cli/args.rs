//! The command line as it is typed. What it means is told in [`chain`](super::chain) and the commands.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use segue::options::{parse_duration, parse_size, parse_time};

use super::metrics::MetricsAddr;

const ABOUT: &str =
    "Reads files, then follows Kafka, as one ordered stream of rows under one schema, resumable at every row.";

const EXAMPLES: &str = "\
Examples:
  segue read 'logs/*.csv'                many files, in natural order (quote the glob)
  segue read 'bids/*.csv' kafka://localhost/bids
                                         history, then what comes after, live
  segue plan 'bids/*.csv' kafka://localhost/bids
                                         what would be read: files, offsets, the seam
  segue schema 'logs/*.csv'              what columns there are
  segue copy 'logs/**/*.csv.gz' --to parquet:out --checkpoint job.ckpt
                                         into files; after a kill, the same again

Data goes to stdout, everything else to stderr. `segue help COMMAND` says more,
`segue options` lists every option of sources, formats and sinks.

Exit status: 0 done; 1 the data or the machine said no; 2 the command can't work
as it is; 3 a plan with a gap; 130, 143 interrupted (with --checkpoint, run it
again to go on).";

const READ_EXAMPLES: &str = "\
Examples:
  segue read bids.csv
  segue read 'bids/*.csv' --schema 'id INT, price DOUBLE, at TIMESTAMP(3)'
  segue read csv:dump.txt -o 'csv.field-delimiter=|' -o csv.header=false
  segue read old.parquet 'new/*.json' --metadata _source,_path --output json
  segue read 'bids/*.csv' --checkpoint job.ckpt | consumer
                            # run it again, and it goes on where it was
  segue read 'history/*.csv' kafka://localhost/bids --bounded
                            # history, then the topic up to its end as of now
  segue read kafka://a:9092,b:9092/bids --from 2023-08-15T14:00Z
                            # raw text, live; -o format=json --schema for columns

A source is a file, a folder, a glob, a URL (s3:// gs:// az:// http(s)://
file://) or kafka://HOST[:9092][,HOST…]/TOPIC[,TOPIC…]. Where the suffix doesn't
tell the format, put it in front (csv:PATH; csv, json, parquet, raw). Quote
globs, so that segue lists the files itself: `*` stays within a folder, `**` goes
across folders, {a,b} is either. Messages have the format of the source before,
or that of -o N.format=csv (json, raw); -o properties.KEY=VALUE sets what
librdkafka knows: client.id, fetch.wait.max.ms. Only the last source may be
without an end.";

/// Less holds no chunk for each thread.
const LEAST_MEMORY: usize = 8 << 20;

const COPY_EXAMPLES: &str = "\
Examples:
  segue copy 'bids/*.csv' --to parquet:bids --checkpoint job.ckpt
  segue copy 'bids/*.csv.gz' --to json:out \\
      -o 'sink.rolling-policy.file-size=64 mb'
  segue copy 'bids/*.csv' --to kafka://localhost/bids -o sink.format=json
  segue copy 'bids/*.csv' kafka://localhost/bids --until now --to parquet:bids \\
      --checkpoint job.ckpt                     # history and the topic's rows;
                                                # again tomorrow: what came since

A file that can be seen is whole. With --checkpoint, the same command goes on
after a stop or a kill: exactly after SIGINT and SIGTERM; after kill -9 the rows
since the last commit are written again.";

const PLAN_EXAMPLES: &str = "\
Examples:
  segue plan 'bids/*.csv'
  segue plan 'bids/*.csv' --checkpoint job.ckpt       # what is left to read
  segue plan 'bids/*.csv' kafka://localhost/bids      # offsets, and the seam
  segue plan 'bids/*.csv' --json

Exit status 3: an offset that is wanted isn't in the log any more.";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  segue schema 'bids/*.csv'
  segue schema 'bids/*.csv' > bids.schema
  segue read 'bids/*.csv' --schema @bids.schema";

const GEN_EXAMPLES: &str = "\
Examples:
  segue gen --schema 'id INT, price DOUBLE, at TIMESTAMP(3)' --rows 10
  segue gen --schema 'id BIGINT, name STRING' --rows 1000000 \\
      -o fields.id.kind=sequence -o fields.name.length=8 \\
      --to parquet:data --roll-size '16 mb'
  segue gen --schema 'id INT, price DOUBLE' --rows 1000 \\
      -o sink.format=json -o sink.partitions=3 --to kafka://localhost/bids

The same seed gives the same rows. `segue options datagen` lists what can be
said of columns.";

const STATUS_EXAMPLES: &str = "\
Examples:
  segue status job.ckpt
  segue status job.ckpt --json | jq .rows";

#[derive(Debug, Parser)]
#[command(name = "segue", about = ABOUT, after_help = EXAMPLES, disable_help_subcommand = false)]
#[command(subcommand_required = false, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) talk: TalkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TalkArgs {
    /// Say errors only
    #[arg(short, long, global = true, help_heading = "Messages", display_order = 900)]
    pub(crate) quiet: bool,

    /// Say more
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Messages", display_order = 901)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole story: files, then a topic, on an embedded broker; nothing to set up
    Demo(DemoArgs),
    /// Print the rows of sources
    #[command(after_help = READ_EXAMPLES)]
    Read(Box<ReadArgs>),
    /// Copy the rows of sources into files or a topic, resumable
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyArgs>),
    /// Show what would be read: files, sizes, headers, offsets, the seam; no rows
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Print the schema of sources, as text to paste behind --schema
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema(Box<SchemaArgs>),
    /// Generate rows
    #[command(after_help = GEN_EXAMPLES)]
    Gen(Box<GenArgs>),
    /// Show how far a checkpoint's job is
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// List the options that -o sets: meaning, default, where they apply
    Options(OptionsArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),

    /// Run SQL
    #[command(hide = true)]
    Sql(LaterArgs),
    /// Make a checkpoint for a replay
    #[command(hide = true)]
    Rewind(LaterArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many rows: half of them in files, half in the topic
    #[arg(long, value_name = "N", default_value = "20000")]
    pub(crate) rows: u64,

    /// Keep the files in DIR, which must be empty or not there yet, and show each step as a command [default: a
    /// temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Whatever stands behind a command of a later version.
#[derive(Debug, Args)]
pub(crate) struct LaterArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct SourceArgs {
    /// Files, folders, globs (quoted), URLs or kafka://HOST/TOPIC, in reading order; FORMAT: in front of files
    /// where the suffix doesn't tell
    #[arg(value_name = "SOURCE", required = true, num_args = 1.., help_heading = None)]
    pub(crate) sources: Vec<String>,

    /// The schema: 'id INT, price DOUBLE', or @FILE [default: found out, and told on stderr]
    #[arg(long, value_name = "SCHEMA|@FILE")]
    pub(crate) schema: Option<String>,

    /// An option of every source that knows it, of source N (from 0) by N.KEY or NAME.KEY, or of the sink by
    /// sink.KEY; @FILE reads lines of them. Values may hold ${env:NAME} and ${file:PATH}
    #[arg(short = 'o', long = "option", value_name = "KEY=VALUE|@FILE", action = ArgAction::Append)]
    pub(crate) options: Vec<String>,

    /// The format of every source: csv, json, parquet, raw; short for -o format=F [default: by suffix;
    /// messages as the source before]
    #[arg(long, value_name = "F")]
    pub(crate) format: Option<String>,

    /// Where Kafka sources begin, the first time: earliest, latest, or a time (2023-08-15T14:00Z, 2023-08-15, ms
    /// since the epoch) [default: earliest]
    #[arg(long, value_name = "WHEN", value_parser = start_word)]
    pub(crate) from: Option<StartWord>,

    /// Where Kafka sources end: now (the end as it is at the start) or a time [default: nowhere]
    #[arg(long, value_name = "WHEN", value_parser = stop_word)]
    pub(crate) until: Option<StopWord>,

    /// Short for --until now
    #[arg(long, conflicts_with = "until")]
    pub(crate) bounded: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobArgs {
    /// Where to keep how far the job is: one file, read if it is there, in a folder that exists
    #[arg(long, value_name = "PATH")]
    pub(crate) checkpoint: Option<PathBuf>,

    /// The name of the job, which checkpoint and target carry [default: a hash of first source and sink]
    #[arg(long, value_name = "ID")]
    pub(crate) job_id: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct RunArgs {
    /// End after N rows of this run; 0 gives the header only [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// Columns that say where each row is from, behind the others: _source,_phase,_split,_position,_path, of Kafka
    /// _topic,_partition,_offset,_timestamp,_key,_headers; or all
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) metadata: Option<String>,

    /// What becomes of bad records: fail ends at the first, skip counts them, a path (with / or .) or kafka://HOST/TOPIC
    /// gets them as JSON, one object each [default: fail]
    #[arg(long, value_name = "fail|skip|PATH|kafka://…", default_value = "fail", hide_default_value = true)]
    pub(crate) on_error: String,

    /// So many bad records are allowed over the life of the job, the next one ends it; N% is judged from 1000 records on
    /// [default: no limit]
    #[arg(long, value_name = "N|N%")]
    pub(crate) max_errors: Option<String>,

    /// How often the checkpoint is moved: a duration, or 'batch' for every batch [default: 10 s for read;
    /// for copy 128 mb or 5 min]
    #[arg(long, value_name = "DURATION|batch", value_parser = checkpoint_interval)]
    pub(crate) checkpoint_interval: Option<CheckpointInterval>,

    /// Counters, positions and lag for Prometheus at http://HOST:PORT/metrics while the job runs; port 0 takes a free one,
    /// which is told on stderr
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics_addr: Option<MetricsAddr>,

    #[command(flatten)]
    pub(crate) means: MeansArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Means")]
pub(crate) struct MeansArgs {
    /// Threads that decode [default: the CPUs allowed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Rows of a batch, at most [default: 8192]
    #[arg(long, value_name = "N", default_value = "8192", hide_default_value = true)]
    pub(crate) batch_rows: NonZeroUsize,

    /// Memory for everything that is buffered, sinks included [default: 256 mb]
    #[arg(long, value_name = "SIZE", default_value = "256 mb", hide_default_value = true, value_parser = size)]
    pub(crate) memory: usize,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// How rows are printed: csv, json (an object a line), arrow (IPC stream), table (for people), none (decodes
    /// everything, prints nothing) [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub(crate) output: Option<OutputFormat>,

    /// Print no names of columns above csv and table
    #[arg(long)]
    pub(crate) no_header: bool,
}

// Told in one line at the argument: help of its own for each would make every `--help` four times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Csv,
    Json,
    Arrow,
    Table,
    None,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) input: SourceArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) input: SourceArgs,

    /// FORMAT:FOLDER: csv, json, arrow or parquet files; made if it is missing, else empty or this job's.
    /// Or kafka://HOST[:9092]/TOPIC: a message for each row, csv or json (-o sink.format), behind what is there
    #[arg(long, value_name = "SINK", required = true, help_heading = "Output")]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) input: SourceArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    #[command(flatten)]
    pub(crate) input: SourceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    /// The schema: 'id INT, price DOUBLE', or @FILE
    #[arg(long, value_name = "SCHEMA|@FILE", required = true, help_heading = "Input")]
    pub(crate) schema: String,

    /// How many rows; fewer if a sequence ends before
    #[arg(long, value_name = "N", required = true, help_heading = "Input")]
    pub(crate) rows: u64,

    /// How columns are made, or an option of the sink: fields.NAME.kind=sequence, seed=7; @FILE reads lines of them
    #[arg(short = 'o', long = "option", value_name = "KEY=VALUE|@FILE", action = ArgAction::Append, help_heading = "Input")]
    pub(crate) options: Vec<String>,

    /// FORMAT:FOLDER: csv, json, arrow or parquet files; or kafka://HOST[:9092]/TOPIC [default: stdout]
    #[arg(long, value_name = "SINK", conflicts_with_all = ["output", "no_header"], help_heading = "Output")]
    pub(crate) to: Option<String>,

    /// Close a file after the record that reaches it; short for -o sink.rolling-policy.file-size [default: 128 mb]
    #[arg(long, value_name = "SIZE", requires = "to", help_heading = "Output")]
    pub(crate) roll_size: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) means: MeansArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// A file that --checkpoint has written
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OptionsArgs {
    /// filesystem, datagen, kafka, csv, json, source, chain or sink [default: all]
    #[arg(value_name = "CONNECTOR|FORMAT")]
    pub(crate) topic: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// When the checkpoint moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointInterval {
    Every(Duration),
    Batch,
}

fn checkpoint_interval(text: &str) -> Result<CheckpointInterval, String> {
    match text {
        "batch" => Ok(CheckpointInterval::Batch),
        text => parse_duration(text).map(CheckpointInterval::Every),
    }
}

/// Where Kafka sources begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartWord {
    Earliest,
    Latest,
    History,
    /// In ms since the epoch.
    At(i64),
}

fn start_word(text: &str) -> Result<StartWord, String> {
    match text {
        "earliest" => Ok(StartWord::Earliest),
        "latest" => Ok(StartWord::Latest),
        "history" => Ok(StartWord::History),
        text => parse_time(text).map(StartWord::At).map_err(|e| format!("{e}, nor earliest, latest or history")),
    }
}

/// Where Kafka sources end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopWord {
    Now,
    /// In ms since the epoch.
    At(i64),
}

fn stop_word(text: &str) -> Result<StopWord, String> {
    match text {
        "now" => Ok(StopWord::Now),
        text => parse_time(text).map(StopWord::At).map_err(|e| format!("{e}, nor now")),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).and_then(|bytes| usize::try_from(bytes).map_err(|e| e.to_string()))?;
    if bytes < LEAST_MEMORY {
        return Err("it must be at least 8 mb".into());
    }
    Ok(bytes)
}

/// The definition of the command line, with the version and what was built in.
pub(crate) fn command() -> clap::Command {
    Cli::command().version(version())
}

/// `0.1.0 (features: csv, json, parquet, kafka)`.
pub(crate) fn version() -> String {
    let features = [
        ("csv", cfg!(feature = "csv")),
        ("json", cfg!(feature = "json")),
        ("parquet", cfg!(feature = "parquet")),
        ("kafka", cfg!(feature = "kafka")),
        ("cloud", cfg!(feature = "cloud")),
    ];
    let built: Vec<&str> = features.iter().filter(|(_, built)| *built).map(|(name, _)| *name).collect();
    format!("{} (features: {})", env!("CARGO_PKG_VERSION"), built.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds() {
        command().debug_assert();
    }

    #[test]
    fn a_start_is_a_word_or_a_time() {
        assert_eq!(start_word("latest"), Ok(StartWord::Latest));
        assert_eq!(start_word("1970-01-01T01:00+01:00"), Ok(StartWord::At(0)));
        assert_eq!(stop_word("now"), Ok(StopWord::Now));
        assert_eq!(stop_word("1500"), Ok(StopWord::At(1500)));
        let wrong = "'later' is not a time such as 2023-08-15T14:00:00Z or 2023-08-15, nor now";
        assert_eq!(stop_word("later").unwrap_err(), wrong);
    }

    #[test]
    fn an_interval_is_a_duration_or_every_batch() {
        assert_eq!(checkpoint_interval("batch"), Ok(CheckpointInterval::Batch));
        assert_eq!(checkpoint_interval("2 s"), Ok(CheckpointInterval::Every(Duration::from_secs(2))));
        assert!(checkpoint_interval("often").is_err());
    }
}
