//! A copy that is killed again and again around the switch from files to the topic.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{BIDS, bids, history, topic};
use crate::topic::PATIENCE;

const KILLS: usize = 20;
const HISTORY: i64 = 2_000;
const LIVE: i64 = 2_000;

/// Ends with the test, if not before.
struct Copy(Child);

impl Copy {
    fn start(folder: &Path, address: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.current_dir(folder).args(["copy", "bids", address, "--to", "csv:out", "--schema", BIDS]);
        command.args(["--checkpoint", "job.json", "--checkpoint-interval", "batch", "--batch-rows", "100"]);
        command.args(["--bounded", "--quiet"]).stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Kills it once it has done `num_rows`, and says whether it was still running then.
    fn kill_at(&mut self, folder: &Path, num_rows: i64, delay: Duration) -> bool {
        let began = Instant::now();
        while self.0.try_wait().unwrap().is_none() && rows_done(folder) < num_rows {
            assert!(began.elapsed() < PATIENCE, "{} of {num_rows} rows", rows_done(folder));
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(delay);
        let was_running = self.0.try_wait().unwrap().is_none();
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        assert!(was_running || status.success(), "{status}");
        was_running
    }

    fn finish(mut self) {
        let began = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "{} rows, and no end", rows_done(Path::new(".")));
            thread::sleep(Duration::from_millis(5));
        }
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows that the checkpoint counts, if there is one yet.
fn rows_done(folder: &Path) -> i64 {
    let Ok(json) = fs::read(folder.join("job.json")) else { return 0 };
    let checkpoint: Value = serde_json::from_slice(&json).expect("a checkpoint is always whole");
    let rows = checkpoint["rows"].as_object().unwrap();
    rows.values().map(|rows| rows.as_i64().unwrap()).sum()
}

/// Every id of the visible files; a file that is cut short fails.
fn ids(folder: &Path) -> BTreeSet<i64> {
    let mut ids = BTreeSet::new();
    let Ok(files) = fs::read_dir(folder.join("out")) else { return ids };
    for file in files {
        let path = file.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("part-") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with('\n'), "{} is cut short", path.display());
        for line in text.lines().skip(1) {
            assert_eq!(line.split(',').count(), 3, "{}: {line}", path.display());
            ids.insert(line.split(',').next().unwrap().parse().unwrap());
        }
    }
    ids
}

/// Numbers that look random and are the same each time (splitmix64).
pub(crate) struct Moments(pub(crate) u64);

impl Moments {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_copy_that_is_killed_around_the_switch_loses_nothing() {
    let topic = topic("kills", 3).await;
    topic.produce_values((0..3).flat_map(|partition| {
        bids(partition, (HISTORY + 1..=HISTORY + LIVE).filter(move |id| id % 3 == i64::from(partition)))
    }));
    let mut moments = Moments(1);
    let mut num_killed = 0;
    for job in 0.. {
        assert!(job < 2 * KILLS, "the jobs are too quick to be killed: {num_killed}");
        let folder = history(HISTORY);
        let path = folder.path();
        // Within the last quarter of history, while it starts again there, and within the first quarter of the topic.
        for (first, rows, delay) in [(HISTORY * 3 / 4, HISTORY / 4, 15), (0, 1, 200), (HISTORY, LIVE / 4, 15)] {
            let num_rows = first + moments.below(rows as u64) as i64;
            let delay = Duration::from_micros(moments.below(delay * 1000));
            num_killed += usize::from(Copy::start(path, &topic.address()).kill_at(path, num_rows, delay));
            let found = ids(path);
            let done = rows_done(path);
            assert!(found.len() as i64 >= done, "job {job}: {done} rows are done, and {} there", found.len());
        }
        Copy::start(path, &topic.address()).finish();
        assert_eq!(ids(path), (1..=HISTORY + LIVE).collect(), "job {job}");
        if num_killed >= KILLS {
            return;
        }
    }
}
