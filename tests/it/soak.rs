//! Brokers and the reader are killed again and again while messages come all the time; at the end all are there, in
//! order, and what a killed reader wrote after its last checkpoint is all that may be there twice.
//!
//! ```text
//! tests/broker/run cargo test --release --all-features --test it -- --ignored --nocapture soak
//! SEGUE_SOAK_SECONDS=600  SEGUE_SOAK_RESTARTS=50  SEGUE_SOAK_SEED=…  SEGUE_SOAK_PROGRAM=target/release/segue
//! ```

use std::fmt;
use std::fs::{self, File};
use std::ops::{Range, RangeInclusive};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use segue::file::FileSource;
use segue::hybrid::ReadOptions;

use crate::broker::BIDS;
use crate::broker::cluster::Cluster;
use crate::broker::kills::Moments;
use crate::broker::load::{Load, RECOVERY, Seen, ids_of};
use crate::common::{chain_of, schema_of};
use crate::topic::Topic;

/// Partitions, each on both nodes.
const REPLICAS: [&[i32]; 4] = [&[1, 2], &[2, 1], &[1, 2], &[2, 1]];

/// Messages a second to each partition.
const RATE: i64 = 2_000;

/// What the reader may buffer, and what the program takes besides.
const MEMORY_MB: u64 = 64;
const OVERHEAD_MB: u64 = 64;

/// How often the reader's memory is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Lines of the table that is printed of it.
const LINES: usize = 12;

/// What is given from outside, or `otherwise`.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// A copy from the topic into Parquet, started again and again with the same command.
struct Copy {
    folder: tempfile::TempDir,
    address: String,
    process: Option<Child>,
    /// Whether a broker was down when it was started: then it may give up, and is started once more.
    began_in_outage: bool,
    num_given_up: u32,
    /// For the thread that looks at its memory; 0 while it isn't running.
    id: Arc<AtomicU32>,
}

impl Copy {
    fn new(topic: &Topic) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            address: topic.address(),
            process: None,
            began_in_outage: false,
            num_given_up: 0,
            id: Arc::default(),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let program = std::env::var("SEGUE_SOAK_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_segue").to_owned());
        let program = fs::canonicalize(&program).unwrap_or_else(|error| panic!("{program}: {error}"));
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).args(["copy", &self.address, "--format", "csv", "--schema", BIDS]);
        command.args([
            "--to",
            "parquet:out",
            "--checkpoint",
            "job",
            "--checkpoint-interval",
            "1s",
            "--memory",
            &format!("{MEMORY_MB}mb"),
        ]);
        command.arg("--quiet").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    fn start(&mut self, in_outage: bool) {
        let process = self.command().spawn().unwrap();
        self.id.store(process.id(), Ordering::Relaxed);
        (self.process, self.began_in_outage) = (Some(process), in_outage);
    }

    /// Starts it once more if it has given up; nothing but an outage at its start is a reason for that.
    fn look(&mut self, in_outage: bool) {
        if let Some(status) = self.process.as_mut().unwrap().try_wait().unwrap() {
            let may_give_up = self.began_in_outage && status.code() == Some(1);
            assert!(may_give_up, "the reader ended by itself, {status}:\n{}", self.said());
            self.num_given_up += 1;
            self.start(in_outage);
        }
    }

    /// Ends it by this signal. If it is asked to, it ends well.
    fn end(&mut self, signal: &str) {
        self.id.store(0, Ordering::Relaxed);
        let mut process = self.process.take().unwrap();
        // It may just have ended by itself.
        let _ = Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]).status();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = process.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > RECOVERY {
                process.kill().unwrap();
                panic!("the reader doesn't heed SIG{signal}:\n{}", self.said());
            }
            thread::sleep(Duration::from_millis(5));
        };
        // One that has just begun doesn't listen yet, and one that began in an outage may have given up.
        let is_well = status.success() || status.signal().is_some() || self.began_in_outage;
        assert!(is_well, "the reader ended with {status}:\n{}", self.said());
    }

    /// Reads what is left, to the end as it is now.
    fn drain(&mut self) {
        let status = self.command().args(["--until", "now"]).status().unwrap();
        assert!(status.success(), "{status}:\n{}", self.said());
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Looks at the memory of a process that comes and goes, on a thread of its own.
struct Looks {
    /// When, and how many bytes were resident.
    samples: Arc<Mutex<Vec<(Duration, u64)>>>,
    is_ending: Arc<AtomicBool>,
}

impl Looks {
    fn start(id: Arc<AtomicU32>) -> Self {
        let looks = Self { samples: Arc::default(), is_ending: Arc::default() };
        let (samples, is_ending) = (Arc::clone(&looks.samples), Arc::clone(&looks.is_ending));
        let began = Instant::now();
        thread::spawn(move || {
            while !is_ending.load(Ordering::Relaxed) {
                let id = id.load(Ordering::Relaxed);
                if let Some(bytes) = resident_bytes(id) {
                    samples.lock().unwrap().push((began.elapsed(), bytes));
                }
                thread::sleep(LOOK);
            }
        });
        looks
    }

    /// Ends, and gives what was seen in [`LINES`] parts of the time.
    fn end(self) -> Memory {
        self.is_ending.store(true, Ordering::Relaxed);
        let samples = self.samples.lock().unwrap();
        let line = |samples: &[(Duration, u64)]| {
            let bytes = || samples.iter().map(|(_, bytes)| bytes);
            Line {
                seconds: samples[0].0.as_secs()..=samples[samples.len() - 1].0.as_secs(),
                peak_mb: bytes().max().unwrap() >> 20,
                mean_mb: (bytes().sum::<u64>() / samples.len() as u64) >> 20,
            }
        };
        Memory(samples.chunks(samples.len().div_ceil(LINES).max(1)).map(line).collect())
    }
}

/// Memory over time.
struct Memory(Vec<Line>);

struct Line {
    seconds: RangeInclusive<u64>,
    peak_mb: u64,
    mean_mb: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} {:>9} {:>9}", "seconds", "peak MB", "mean MB")?;
        for Line { seconds, peak_mb, mean_mb } in &self.0 {
            let seconds = format!("{}-{}", seconds.start(), seconds.end());
            write!(f, "\n{seconds:>12} {peak_mb:>9} {mean_mb:>9}")?;
        }
        Ok(())
    }
}

impl Memory {
    /// It stays within its bound and doesn't grow.
    fn assert_flat(&self) {
        let peak_of = |lines: &[Line]| lines.iter().map(|line| line.peak_mb).max().unwrap();
        let quarter = self.0.len().div_ceil(4);
        let (first, last) = (peak_of(&self.0[..quarter]), peak_of(&self.0[self.0.len() - quarter..]));
        assert!(last <= first * 13 / 10, "memory grew from {first} MB to {last} MB");
        let allowed = MEMORY_MB + OVERHEAD_MB;
        assert!(peak_of(&self.0) <= allowed, "{} MB, and {allowed} MB are allowed", peak_of(&self.0));
    }
}

/// What is resident of a process, if it is there.
fn resident_bytes(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(1024 * line.trim().trim_end_matches(" kB").parse::<u64>().ok()?)
}

/// The ids of each partition, in the order of the files.
async fn copied(folder: &Path) -> Seen {
    let out = folder.join("out").display().to_string();
    let source = FileSource::builder(out).schema(schema_of(BIDS)).build().await.unwrap();
    let chain = chain_of(source);
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    let mut seen = Seen::default();
    while let Some(item) = stream.next().await {
        seen.add(&item.unwrap().item.into_batch());
    }
    seen
}

/// How often a killed reader has begun anew at rows that were there already. Every id of `wanted` must be there, and
/// each must follow the one before it, or one that was there earlier.
#[track_caller]
fn repeats(ids: &[i64], wanted: Range<i64>) -> u32 {
    let (mut next, mut repeats) = (wanted.start, 0);
    for id in ids {
        assert!(wanted.contains(id) && *id <= next, "{id} comes where {next} should");
        repeats += u32::from(*id < next);
        next = id + 1;
    }
    assert_eq!(next, wanted.end, "the end is missing");
    repeats
}

/// Who kills, and counts it.
struct Restarts {
    cluster: Cluster,
    copy: Copy,
    moments: Moments,
    nodes_killed: [u32; 2],
    /// By SIGKILL, and by SIGTERM.
    readers_ended: [u32; 2],
}

impl Restarts {
    /// Leaves everything alone until then.
    fn wait(&mut self, began: Instant, until: Duration) {
        while began.elapsed() < until {
            self.copy.look(false);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Restarts the reader, or a node, or the reader while a node is down.
    fn restart_one(&mut self) {
        if self.moments.below(2) == 0 {
            return self.restart_reader(false);
        }
        let node = self.moments.below(2) as usize;
        self.nodes_killed[node] += 1;
        self.cluster.kill(node + 1);
        if self.moments.below(3) == 0 {
            self.restart_reader(true);
        }
        self.cluster.restart(node + 1);
    }

    fn restart_reader(&mut self, in_outage: bool) {
        let how = self.moments.below(2) as usize;
        self.readers_ended[how] += 1;
        self.copy.end(["KILL", "TERM"][how]);
        self.copy.start(in_outage);
    }
}

#[tokio::test]
#[ignore = "needs a real Kafka and ten minutes: tests/broker/run, and the head of tests/it/soak.rs"]
async fn restarts_at_random_lose_and_repeat_nothing() {
    let (seconds, num_restarts) = (setting("SEGUE_SOAK_SECONDS", 600), setting("SEGUE_SOAK_RESTARTS", 50));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = setting("SEGUE_SOAK_SEED", now);
    println!("SEGUE_SOAK_SEED={seed}: {num_restarts} restarts in {seconds} s");
    let cluster = Cluster::start(2, &["leader.imbalance.check.interval.seconds=5"]).await;
    let topic = Topic::create_on(&cluster.bootstrap(), "soak", &REPLICAS, &[]).await;
    let load = Load::start(&topic, RATE);
    let mut copy = Copy::new(&topic);
    copy.start(false);
    let looks = Looks::start(Arc::clone(&copy.id));
    let began = Instant::now();
    let moments = Moments(seed);
    let mut restarts = Restarts { cluster, copy, moments, nodes_killed: [0; 2], readers_ended: [0; 2] };
    // One in each of as many equal parts of the time, unless the one before took longer.
    let part_ms = seconds * 1000 / num_restarts.max(1);
    for restart in 0..num_restarts {
        let within = restarts.moments.below(part_ms / 2 + 1);
        restarts.wait(began, Duration::from_millis(restart * part_ms + within));
        restarts.restart_one();
    }
    restarts.wait(began, Duration::from_secs(seconds));
    let num_rows = load.finish();
    restarts.copy.end("TERM");
    restarts.copy.drain();
    println!(
        "{} s: nodes 1 and 2 killed {:?} times, the reader by SIGKILL and SIGTERM {:?}; it gave up in an outage {} times",
        began.elapsed().as_secs(),
        restarts.nodes_killed,
        restarts.readers_ended,
        restarts.copy.num_given_up,
    );
    let memory = looks.end();
    println!("{memory}");
    assert_eq!(topic.end_offsets(), [num_rows as u64; REPLICAS.len()]);
    let copied = copied(restarts.copy.folder.path()).await;
    for partition in 0..REPLICAS.len() as i32 {
        let ids = copied.ids.get(&partition).map_or(&[][..], Vec::as_slice);
        let repeats = repeats(ids, ids_of(partition, num_rows));
        let again = ids.len() as i64 - num_rows;
        println!("partition {partition}: {num_rows} in, {} out, {again} of them again", ids.len());
        assert!(repeats <= restarts.readers_ended[0], "partition {partition} goes back {repeats} times");
    }
    memory.assert_flat();
}
