//! `segue demo`: files, then a topic, as one stream, with nothing installed. The broker is librdkafka's own mock
//! of a cluster, in this process.

mod story;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use segue::error::Error;
use segue::file::FileSource;
use segue::format::Format;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::kafka::{KafkaAddress, KafkaSource, StopOffsets};
use segue::pipeline::{self, CommitPolicy, CopyOptions, Stop};
use segue::schema::{Provenance, parse_schema};
use segue::sink::{FolderFormat, FolderSink, KafkaSink, MessageFormat, Sink};
use segue::source::{DatagenSource, FieldKind, Phase};
use tempfile::TempDir;

use self::story::Story;
use super::args::DemoArgs;
use super::chain::shell_quoted;
use super::commands::print;
use super::console::counted;
use super::fault::{Failure, Fault};
use super::job;

const SCHEMA: &str = "id INT, bid_price DOUBLE, order_time TIMESTAMP(3)";

const TOPIC: &str = "bids";

/// A file is closed when it has so many bytes: twenty thousand rows make about ten files.
const FILE_BYTES: u64 = 48 << 10;

/// Bytes of a bid, as CSV, about.
const ROW_BYTES: u64 = 36;

/// Rows of a partition, at most: a partition of the mock keeps 5 MiB, and rows are spread unevenly.
const PARTITION_ROWS: u64 = 25_000;

/// 2024-01-01 00:00:00 UTC, in seconds since the epoch: the time of the bid before the first.
const FIRST_TIME: i64 = 1_704_067_200;

/// Runs the story and checks it. A signal ends it, and its temporary folder goes with it.
pub(crate) async fn demo(args: &DemoArgs) -> Result<u8, Failure> {
    tokio::select! {
        status = tell(args) => status,
        status = job::interrupted() => status,
    }
}

async fn tell(args: &DemoArgs) -> Result<u8, Failure> {
    if !(2..=i32::MAX as u64).contains(&args.rows) {
        return Err(Fault::usage(format!("--rows {}: it must be from 2 to {}", args.rows, i32::MAX)).into());
    }
    let began = Instant::now();
    let folder = Folder::new(args.keep.as_deref())?;
    let history_rows = args.rows.div_ceil(2);
    let history = folder.path().join("history");
    let schema = Arc::new(parse_schema(SCHEMA)?);

    let bids = Bids { schema: Arc::clone(&schema), first: 1, rows: history_rows, seed: HISTORY_SEED };
    let file_bytes = FILE_BYTES.max(history_rows * ROW_BYTES / 10);
    let mut files =
        FolderSink::builder(FolderFormat::Csv, history.display().to_string()).roll_bytes(file_bytes).build()?;
    bids.write(&mut files).await?;
    let num_files = count_files(&history)?;
    let files = counted(num_files as u64, "CSV file");
    print(&format!("history   bids 1 to {history_rows} in {files}: {}\n", history.join("*.csv").display()))?;

    let live_rows = args.rows - history_rows;
    let partitions = live_rows.div_ceil(PARTITION_ROWS).clamp(1, u64::from(u16::MAX)) as u16;
    let broker = Broker::start(partitions)?;
    let bids = Bids { schema: Arc::clone(&schema), first: history_rows + 1, rows: live_rows, seed: LIVE_SEED };
    let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
    let mut topic = KafkaSink::builder(&broker.address).format(MessageFormat::Csv).partitions(partitions).build()?;
    bids.write(&mut topic).await?;
    print(&format!(
        "live      bids {} to {} in a topic of an embedded broker: {}\n",
        history_rows + 1,
        args.rows,
        broker.address
    ))?;

    let pattern = history.join("*.csv").display().to_string();
    let story = read(&pattern, &broker.address, &schema, history_rows, args.rows).await?;
    print(&story.told())?;
    print(&format!("demo      {:.1} s in all\n", began.elapsed().as_secs_f64()))?;
    print(&next_steps(args, history_rows))?;
    Ok(u8::from(!story.is_right()))
}

/// Reads both as one stream.
async fn read(
    pattern: &str,
    address: &KafkaAddress,
    schema: &SchemaRef,
    history_rows: u64,
    rows: u64,
) -> Result<Story, Failure> {
    let files = FileSource::builder(pattern).name("0").schema(Arc::clone(schema)).build().await?;
    let topic = KafkaSource::builder(address)
        .name("1")
        .format(Format::Csv)
        .schema(Arc::clone(schema))
        .stop(StopOffsets::Latest)
        .build()?;
    let chain = HybridSource::builder()
        .source(files)
        .source(topic)
        .provenance([Provenance::Phase, Provenance::Split, Provenance::Position])
        .build()?;
    let pinned = chain.resolve(None).await?;
    let mut story = Story::new(history_rows, rows);
    let mut stream = chain.open(pinned, ReadOptions::default())?;
    while let Some(item) = stream.next().await {
        let item = item?;
        let phase = chain.phase(item.source);
        story.hear(phase, item.item.batch(), Instant::now())?;
    }
    story.end(Instant::now());
    Ok(story)
}

/// Bids to be written: `rows` of them, with ids from `first` on.
struct Bids {
    schema: SchemaRef,
    first: u64,
    rows: u64,
    /// Other prices in the topic than in the files.
    seed: u64,
}

const HISTORY_SEED: u64 = 1;
const LIVE_SEED: u64 = 2;

impl Bids {
    async fn write(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let sequence = |start| FieldKind::Sequence { start, end: None };
        let price = FieldKind::Random { min: Some("1".to_owned()), max: Some("1000".to_owned()), length: None };
        let bids = DatagenSource::builder(Arc::clone(&self.schema))
            .field("id", sequence(self.first as i64))
            .field("bid_price", price)
            .field("order_time", sequence(FIRST_TIME + self.first as i64))
            .num_rows(self.rows)
            .seed(self.seed)
            .build()?;
        let chain = HybridSource::builder().source(bids).build()?;
        // Only the size ends a file.
        let options = CopyOptions { commit: CommitPolicy::copy().with_bytes(None), ..CopyOptions::default() };
        pipeline::copy(&chain, sink, None, options, &Stop::new()).await?;
        Ok(())
    }
}

/// Where the demo writes: a temporary folder that goes with it, or one that is kept.
enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn new(keep: Option<&Path>) -> Result<Self, Failure> {
        let io = |path: &Path, action, source| Error::Io { path: path.display().to_string(), action, source };
        let Some(path) = keep else {
            let folder = tempfile::Builder::new().prefix("segue-demo-").tempdir();
            return Ok(Self::Temporary(
                folder.map_err(|e| io(&std::env::temp_dir(), "cannot make a folder in it", e))?,
            ));
        };
        std::fs::create_dir_all(path).map_err(|e| io(path, "cannot make the folder", e))?;
        let mut entries = path.read_dir().map_err(|e| io(path, "cannot read", e))?;
        if entries.next().is_some() {
            let target = path.display().to_string();
            let fault = Fault::from(Error::Target { target, reason: "it isn't empty".into() });
            return Err(fault.with_hint("give a folder that is empty or not there yet").into());
        }
        Ok(Self::Kept(path.to_owned()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }
}

fn count_files(folder: &Path) -> Result<usize, Error> {
    let io = |source| Error::Io { path: folder.display().to_string(), action: "cannot read", source };
    let entries = folder.read_dir().map_err(io)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>().map_err(io)?;
    Ok(names.iter().filter(|name| Path::new(name).extension().is_some_and(|suffix| suffix == "csv")).count())
}

/// The embedded broker; it ends when this is dropped.
struct Broker {
    address: KafkaAddress,
    _cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Broker {
    fn start(partitions: u16) -> Result<Self, Error> {
        let failed = |e| Error::Kafka {
            place: "the embedded broker".into(),
            action: "start",
            source: Box::<dyn std::error::Error + Send + Sync>::from(e),
        };
        let cluster = MockCluster::new(1).map_err(failed)?;
        cluster.create_topic(TOPIC, i32::from(partitions), 1).map_err(failed)?;
        let address = format!("kafka://{}/{TOPIC}", cluster.bootstrap_servers()).parse()?;
        Ok(Self { address, _cluster: cluster })
    }
}

/// What a newcomer may want to do now.
fn next_steps(args: &DemoArgs, history_rows: u64) -> String {
    let Some(keep) = &args.keep else {
        return "\nNow you:  segue demo --keep bids              the files stay, and each step is shown as a command\n\
                \x20         segue read bids/history --limit 3\n\
                \x20         segue plan 'FILES' kafka://HOST/TOPIC           your own files and topic: what would be read\n\
                \x20         segue read 'FILES' kafka://HOST/TOPIC           history, then live rows as they come\n"
            .to_owned();
    };
    let folder = keep.join("history").display().to_string();
    let files = shell_quoted(&format!("{folder}/*.csv"));
    let live_rows = args.rows - history_rows;
    let fields = |first: u64, seed: u64| {
        format!(
            "-o seed={seed} -o fields.id.kind=sequence -o fields.id.start={first} \\\n      \
             -o fields.bid_price.min=1 -o fields.bid_price.max=1000 \\\n      \
             -o fields.order_time.kind=sequence -o fields.order_time.start={}",
            FIRST_TIME + first as i64
        )
    };
    format!(
        "\nEach step by hand, with a broker of your own in place of localhost:9092:\n\n\
         \x20 segue gen --schema '{SCHEMA}' --rows {history_rows} \\\n      {} \\\n      \
         --to csv:NEW-FOLDER --roll-size '48 kb'        # the history, as it is in {folder}\n\n\
         \x20 segue gen --schema '{SCHEMA}' --rows {live_rows} \\\n      {} \\\n      \
         --to kafka://localhost:9092/{TOPIC}\n\n\
         \x20 segue plan {files} kafka://localhost:9092/{TOPIC} --bounded\n\
         \x20 segue read {files} kafka://localhost:9092/{TOPIC} --bounded --metadata _phase,_split,_position\n\
         \x20 segue copy {files} kafka://localhost:9092/{TOPIC} --bounded \\\n      --to parquet:lake --checkpoint job.ckpt    # again later: what has come since\n",
        fields(1, HISTORY_SEED),
        fields(history_rows + 1, LIVE_SEED)
    )
}

/// How long something took, for people.
fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
