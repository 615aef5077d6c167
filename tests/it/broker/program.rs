//! The program, over files and then a topic, as users run it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BIDS, bid, bids, history, topic};
use crate::cli::{fails, rows, segue};
use crate::topic::{PATIENCE, Topic};

/// A run of the program that is read line by line, and ends with the test at the latest.
pub(super) struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    pub(super) fn start(folder: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
            .current_dir(folder)
            .args(args)
            .args(["--output", "csv", "--no-header", "--quiet"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a row comes")
    }

    /// The ids of the next rows.
    pub(super) fn next_ids(&self, num_rows: usize) -> Vec<i64> {
        (0..num_rows).map(|_| self.next_line().split(',').next().unwrap().parse().unwrap()).collect()
    }

    /// Asks it to end, and gives its exit status. It may not have anything left to say.
    fn terminate(mut self) -> i32 {
        self.signal("TERM");
        assert_eq!(self.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        self.child.wait().unwrap().code().expect("it ends by itself")
    }

    pub(super) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it ends, and gives its exit status, the rows that still came, and what it said.
    pub(super) fn fail(mut self) -> (i32, String, String) {
        let mut rest = String::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => rest += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it doesn't end; behind what was awaited came: {rest}"),
            }
        }
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().expect("it ends by itself"), rest, said)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rows as JSON.
#[track_caller]
fn json_rows(folder: &TempDir, args: &[&str]) -> Vec<Value> {
    let stdout = rows(folder, &[args, &["--output", "json"]].concat());
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn ids(folder: &TempDir, args: &[&str]) -> Vec<i64> {
    let mut ids: Vec<i64> = json_rows(folder, args).iter().map(|row| row["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

fn checkpoint(folder: &TempDir) -> Value {
    serde_json::from_slice(&fs::read(folder.path().join("job.json")).unwrap()).unwrap()
}

/// Where the checkpoint says that each partition stands.
fn positions(checkpoint: &Value, topic: &Topic) -> Vec<u64> {
    let splits = &checkpoint["sources"].as_array().unwrap().last().unwrap()["splits"];
    let position = |partition| splits[topic.split(partition)]["position"].as_u64().unwrap();
    (0..splits.as_object().unwrap().len() as i32).map(position).collect()
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn history_then_a_topic_is_one_stream_with_each_row_once() {
    const HISTORY: i64 = 10_000;
    let folder = history(HISTORY);
    let topic = topic("bids", 3).await;
    let writer = topic.writer(&[]);
    for id in HISTORY + 1..=2 * HISTORY {
        writer.send((id % 3) as i32, Some("k"), Some(&bid(id)), Some(1_700_000_000_000 + id));
    }
    writer.flush();

    let args = ["read", "bids", &topic.address(), "--schema", BIDS, "--bounded", "--metadata", "all"];
    let rows = json_rows(&folder, &args);
    let (files, live) = rows.split_at(HISTORY as usize);
    let mut position = (Value::Null, 0);
    for (row, id) in files.iter().zip(1..) {
        assert_eq!(row["id"], id);
        assert_eq!((&row["_source"], &row["_phase"]), (&json!("0"), &json!("bounded")), "{row}");
        assert_eq!(row["_split"], format!("part-{}.csv", (id - 1) / 1000 + 1), "{row}");
        for column in ["_topic", "_partition", "_offset", "_timestamp", "_key", "_headers"] {
            assert_eq!(row[column], Value::Null, "{row}");
        }
        let here = (row["_split"].clone(), row["_position"].as_u64().unwrap());
        assert!(position.0 != here.0 || position.1 < here.1, "{row} comes after {position:?}");
        position = here;
    }
    let mut offsets = [0; 3];
    let mut live_ids = Vec::new();
    for row in live {
        let id = row["id"].as_i64().unwrap();
        let partition = id % 3;
        let offset = &mut offsets[partition as usize];
        let wanted = json!({
            "_source": "1", "_phase": "unbounded", "_split": topic.split(partition as i32), "_position": *offset,
            "_path": null, "_topic": topic.name(), "_partition": partition, "_offset": *offset, "_key": "aw==",
            "_headers": [],
        });
        for (column, value) in wanted.as_object().unwrap() {
            assert_eq!(&row[column], value, "{column} of {row}");
        }
        // 1,700,000,000 s after the epoch and as many ms as the id.
        let seconds = 20 + id / 1000;
        assert_eq!(row["_timestamp"], format!("2023-11-14 22:13:{seconds:02}.{:03}Z", id % 1000), "{row}");
        *offset += 1;
        live_ids.push(id);
    }
    live_ids.sort_unstable();
    assert_eq!(live_ids, (HISTORY + 1..=2 * HISTORY).collect::<Vec<_>>());
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn flags_say_where_a_topic_starts_and_stops() {
    let folder = history(10);
    let topic = topic("flags", 1).await;
    for id in 11..=20 {
        topic.produce(0, None, Some(&bid(id)), Some(1_000 * id));
    }
    let address = topic.address();
    let read = |options: &[&str]| {
        let args = [&["read", "bids", &address, "--schema", BIDS], options].concat();
        ids(&folder, &args).into_iter().filter(|id| *id > 10).collect::<Vec<_>>()
    };
    assert_eq!(read(&["--bounded"]), (11..=20).collect::<Vec<_>>());
    assert_eq!(read(&["--until", "now", "--from", "earliest"]), (11..=20).collect::<Vec<_>>());
    assert_eq!(read(&["--bounded", "--from", "latest"]), [0; 0]);
    assert_eq!(read(&["--bounded", "--from", "18000"]), [18, 19, 20]);
    assert_eq!(read(&["--bounded", "--from", "1970-01-01T00:00:19Z"]), [19, 20]);
    assert_eq!(read(&["--until", "13000"]), [11, 12]);
    assert_eq!(read(&["--from", "12000", "--until", "14000"]), [12, 13]);
    let at = ["--bounded", "-o", "scan.startup.mode=specific-offsets"];
    assert_eq!(read(&[&at[..], &["-o", "scan.startup.specific-offsets=partition:0,offset:8"]].concat()), [19, 20]);
    // A lone topic.
    let lone = ["read", &address, "--format", "csv", "--schema", BIDS, "--bounded"];
    assert_eq!(ids(&folder, &lone), (11..=20).collect::<Vec<_>>());
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_follower_that_is_asked_to_end_ends_well_and_goes_on_where_it_was() {
    let folder = history(100);
    let topic = topic("sigterm", 2).await;
    topic.produce_values(bids(0, 101..=110).chain(bids(1, 111..=120)));
    let address = topic.address();
    let args = ["read", "bids", &address, "--schema", BIDS, "--checkpoint", "job.json"];

    let follower = Follower::start(folder.path(), &args);
    let mut seen = follower.next_ids(120);
    assert_eq!(seen[..100], (1..=100).collect::<Vec<_>>());
    // Rows that come later are seen as they come.
    for id in 121..=130 {
        topic.produce_values(bids((id % 2) as i32, [id]));
        seen.extend(follower.next_ids(1));
    }
    assert_eq!(follower.terminate(), 0);
    seen.sort_unstable();
    assert_eq!(seen, (1..=130).collect::<Vec<_>>());
    let stored = checkpoint(&folder);
    assert_eq!(positions(&stored, &topic), topic.end_offsets());
    assert_eq!(stored["rows"], json!({"0": 100, "1": 30}));

    topic.produce_values(bids(1, [131]));
    let follower = Follower::start(folder.path(), &args);
    assert_eq!(follower.next_ids(1), [131]);
    assert_eq!(follower.terminate(), 0);
    assert_eq!(positions(&checkpoint(&folder), &topic), topic.end_offsets());
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_bounded_copy_that_is_run_again_takes_what_has_come_since() {
    let folder = history(100);
    let topic = topic("cron", 3).await;
    let address = topic.address();
    let copy = || {
        let args = ["copy", "bids", &address, "--to", "csv:out", "--schema", BIDS, "--checkpoint", "job.json"];
        rows(&folder, &[&args[..], &["--bounded"]].concat());
        assert_eq!(positions(&checkpoint(&folder), &topic), topic.end_offsets());
        ids(&folder, &["read", "out", "--schema", BIDS])
    };
    assert_eq!(copy(), (1..=100).collect::<Vec<_>>());
    topic.produce_values(bids(0, 101..=150));
    assert_eq!(copy(), (1..=150).collect::<Vec<_>>());
    topic.produce_values(bids(1, 151..=160).chain(bids(0, 161..=170)));
    assert_eq!(copy(), (1..=170).collect::<Vec<_>>());
    assert_eq!(copy(), (1..=170).collect::<Vec<_>>());
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_gap_at_the_seam_is_told_before_a_row_leaves() {
    let folder = history(10);
    let topic = topic("gap", 1).await;
    topic.produce_values(bids(0, 11..=20));
    topic.delete_before(&[(0, 4)]).await;
    let address = topic.address();
    let seam = ["bids", &address, "--schema", BIDS, "--bounded", "-o", "1.scan.startup.mode=specific-offsets"];
    let seam = [&seam[..], &["-o", "1.scan.startup.specific-offsets=partition:0,offset:2"]].concat();

    let plan = segue(&folder, &[&["plan", "--json", "--quiet"], &seam[..]].concat());
    assert_eq!(plan.status, 3, "{}", plan.stderr);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    let gap = &plan["seam"]["gaps"][0];
    assert_eq!((&gap["split"], &gap["wanted"], &gap["available"]), (&json!(topic.split(0)), &json!(2), &json!(4)));

    let split = topic.split(0);
    let fault = format!(
        "error: {split}: offset 2 is wanted, and the log has 4 up to 10\n\
         hint: retention took them; -o scan.on-data-loss=earliest goes on where the log begins, and `segue plan` shows \
         every partition\n"
    );
    let read = segue(&folder, &[&["read", "--quiet"], &seam[..]].concat());
    assert_eq!((read.status, read.stdout.as_str()), (1, ""), "{}", read.stderr);
    assert!(read.stderr.starts_with(&fault), "{}", read.stderr);
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_topic_that_is_not_there_names_similar_ones() {
    let folder = history(10);
    let topic = topic("similar", 1).await;
    let address = topic.address();
    let wrong = address.replace("/similar", "/similaar");
    let bootstrap = super::bootstrap();
    let missing = topic.name().replace("similar", "similaar");
    let fault = format!("error: {bootstrap}: there is no topic {missing}; there is {}\n", topic.name());
    fails(&folder, &["read", "bids", &wrong, "--schema", BIDS], 1, &fault);
}

/// The sink makes its topic as asked, and what it wrote is what a source reads.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_copy_into_a_topic_that_is_not_there_makes_it_and_is_read_back() {
    const ROWS: i64 = 1_000;
    let folder = history(ROWS);
    let beside = topic("made", 1).await;
    let made = Topic::of(&super::bootstrap(), format!("{}-here", beside.name()), 3);
    let address = made.address();
    let copy = ["copy", "bids", "--to", &address, "--schema", BIDS, "-o", "sink.partitions=3", "-o", "sink.format=csv"];
    rows(&folder, &copy);
    let values = made.read_back().into_values().flatten().map(|message| message.value.unwrap());
    let mut values: Vec<String> = values.collect();
    values.sort_by_key(|value| value.split(',').next().unwrap().parse::<i64>().unwrap());
    assert_eq!(values, (1..=ROWS).map(bid).collect::<Vec<_>>());
    // Rows without keys go to one partition for a while, so it is chance whether each has some; but all are there.
    assert_eq!(made.end_offsets().iter().sum::<u64>(), ROWS as u64);
    let read = ["read", &address, "--format", "csv", "--schema", BIDS, "--bounded"];
    assert_eq!(ids(&folder, &read), (1..=ROWS).collect::<Vec<_>>());
}
