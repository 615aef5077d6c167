//! The program over files and topics: what can be said of them, what is refused before a broker is asked, and what
//! comes of it, on librdkafka's embedded broker.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Ran, command, dir, fails, rows, segue};
use crate::topic::Topic;

const BIDS: &str = "id,price\n1,2.5\n2,7.25\n";

#[test]
fn an_address_that_is_none_says_why() {
    let dir = dir(&[]);
    for (source, why) in [
        ("kafka:h/t", "it is not kafka://HOST[:9092][,HOST…]/TOPIC[,TOPIC…]"),
        ("kafka://h:0/t", "'h:0' is not HOST or HOST:PORT"),
        ("kafka://h/t?x=1", "it has no query string; settings of the client are -o properties.KEY=VALUE"),
        ("kafka://h/a b", "'a b' can't be a topic: letters, digits, '.', '_' and '-' make one, 249 at most"),
    ] {
        fails(&dir, &["read", source], 2, &format!("error: source '{source}': {why}\n"));
    }
    // A password isn't repeated.
    fails(
        &dir,
        &["read", "kafka://u:p@h/t"],
        2,
        "error: source 'kafka://***@h/t': it has no user; -o properties.sasl.username and \
         -o properties.sasl.password say who asks\n",
    );
}

/// As of a path, the format may stand in front.
#[test]
fn a_format_may_stand_in_front_of_an_address() {
    let dir = dir(&[]);
    let schema = ["--schema", "id INT"];
    assert_eq!(rows(&dir, &[&["schema", "json:kafka://h/t"], &schema[..]].concat()), "id INT\n");
    fails(
        &dir,
        &["schema", "parquet:kafka://h/t", "--schema", "id INT"],
        2,
        "error: option 'format': messages can't be parquet; csv, json or raw\n",
    );
}

#[test]
fn rows_do_not_go_into_a_topic_that_they_come_from() {
    let dir = dir(&[]);
    fails(
        &dir,
        &["copy", "kafka://h,i/t", "--to", "kafka://i:9092/t"],
        2,
        "error: --to kafka://i:9092/t: it is read as well, and what is written would come back as input\n",
    );
}

#[test]
fn tls_is_not_in_this_version_and_says_so() {
    let dir = dir(&[]);
    fails(
        &dir,
        &["read", "kafka://h/t", "-o", "properties.security.protocol=SASL_SSL"],
        2,
        "error: option 'properties.security.protocol': TLS to brokers is not in this version\n",
    );
}

#[test]
fn a_topic_whose_format_nothing_tells_names_the_option_before_files_are_looked_at() {
    let dir = dir(&[]);
    fails(
        &dir,
        &["read", "missing.parquet", "kafka://h/t"],
        2,
        "error: option '1.format': it isn't set, and the source before is parquet; the messages of a topic are csv, json or raw\n",
    );
    fails(
        &dir,
        &["read", "kafka://h/t", "--schema", "id INT"],
        2,
        "error: option '0.format': it isn't set, and no source before tells it; the messages of a topic are csv, json or raw\n",
    );
    fails(
        &dir,
        &["read", "kafka://h/t", "--format", "parquet"],
        2,
        "error: option 'format': messages can't be parquet; csv, json or raw\n",
    );
    fails(
        &dir,
        &["read", "kafka://h/t", "--format", "avro"],
        2,
        "error: option 'format': avro is not in this version\n",
    );
}

#[test]
fn files_give_the_schema_and_topics_never_do() {
    let dir = dir(&[("bids/1.csv", BIDS), ("header.csv", ""), ("text.txt", "x\n")]);
    assert_eq!(rows(&dir, &["schema", "bids", "kafka://h/t"]), "id BIGINT, price DOUBLE\n");
    assert_eq!(rows(&dir, &["schema", "kafka://h/t"]), "value STRING\n");
    fails(
        &dir,
        &["read", "kafka://h/t", "-o", "format=json"],
        2,
        "error: the columns of json messages aren't known before they are read; give a schema\n\
         hint: --schema 'id INT, price DOUBLE' gives them\n",
    );
    fails(
        &dir,
        &["read", "header.csv", "kafka://h/t"],
        2,
        "error: header.csv: there are no records to infer a schema from; give one with --schema\n",
    );
    fails(
        &dir,
        &["read", "bids", "kafka://h/t", "-o", "1.format=raw"],
        2,
        "error: source 1: raw messages have the one column value, and the schema has id, price; set 1.format, or 1.column.NAME.from=value\n",
    );
    // Only a look at the folder tells that its files are no format of messages' own.
    fails(
        &dir,
        &["read", "text.txt", "kafka://h/t", "-o", "0.format=raw"],
        2,
        "error: option '1.format': it isn't set, and the source before is raw; the messages of a topic are csv, json or raw\n",
    );
}

/// CASE 22.
#[test]
fn an_endless_topic_before_the_last_source_names_its_option() {
    fails(
        &dir(&[]),
        &["read", "kafka://h/t", "missing.csv", "-o", "0.format=csv"],
        2,
        "error: source '0' has no end: scan.bounded.mode is unbounded; only the last of a chain may be endless, and '1' comes after it\n",
    );
}

#[test]
fn starts_and_stops_are_checked_before_files_are_looked_at() {
    let dir = dir(&[]);
    let read = |options: &[&str], stderr: &str| {
        fails(&dir, &[&["read", "missing.csv", "kafka://h/t"], options].concat(), 2, stderr);
    };
    read(
        &["-o", "scan.startup.mode=timestamp"],
        "error: option 'scan.startup.mode': timestamp needs scan.startup.timestamp-millis beside it\n",
    );
    read(
        &["-o", "1.scan.bounded.timestamp-millis=5"],
        "error: option 'scan.bounded.timestamp-millis': it means nothing without scan.bounded.mode=timestamp\n",
    );
    read(
        &["-o", "scan.startup.mode=from-history"],
        "error: option 'scan.startup.mode': from-history is not in this version\n",
    );
    read(&["-o", "1.topic=t"], "error: option '1.topic': the source has its topics already\n");
    read(
        &["-o", "1.csv.header=true"],
        "error: option '1.csv.header': it is an option of csv in files, and source '1' is kafka: a message has no header\n",
    );
    read(
        &["-o", "properties.auto.offset.reset=latest"],
        "error: option 'properties.auto.offset.reset': it can't be set: scan.startup.mode says where to begin, and an offset that is gone is an error\n",
    );
    read(
        &["-o", "properties.sasl.jaas.config=x"],
        "error: option 'properties.sasl.jaas.config': it is a setting of Kafka's Java client; here it is sasl.username and sasl.password\n",
    );
}

#[test]
fn from_and_until_are_short_for_bare_options() {
    let dir = dir(&[]);
    let read = |options: &[&str], stderr: &str| {
        fails(&dir, &[&["read", "missing.csv", "kafka://h/t"], options].concat(), 2, stderr);
    };
    read(
        &["--from", "latest", "-o", "scan.startup.mode=latest-offset"],
        "error: --from sets scan.startup.mode, and so does -o; one of them has to go\n",
    );
    read(
        &["--until", "2023-08-15", "-o", "scan.bounded.timestamp-millis=5"],
        "error: --until sets scan.bounded.timestamp-millis, and so does -o; one of them has to go\n",
    );
    read(&["--from", "history"], "error: --from history is not in this version\n");
    read(
        &["--from", "yesterday"],
        "error: invalid value 'yesterday' for '--from <WHEN>': 'yesterday' is not a time such as 2023-08-15T14:00:00Z or 2023-08-15, nor earliest, latest or history\n\
         hint: `segue help COMMAND` shows what a command takes\n",
    );
    read(
        &["--bounded", "--until", "now"],
        "error: the argument '--bounded' cannot be used with '--until <WHEN>'\n\
         hint: `segue help COMMAND` shows what a command takes\n",
    );
    for flag in [&["--from", "earliest"][..], &["--until", "now"], &["--bounded"]] {
        let fault = format!("error: {} is for Kafka sources, and there is none here\n", flag[0]);
        fails(&dir, &[&["read", "missing.csv"], flag].concat(), 2, &fault);
    }
    // One of the source's own wins, so what is missing is the file.
    for options in [
        &["--from", "5", "-o", "1.scan.startup.mode=latest-offset"][..],
        &["--bounded", "-o", "1.scan.bounded.mode=unbounded"],
    ] {
        fails(
            &dir,
            &[&["read", "missing.csv", "kafka://h/t"], options].concat(),
            1,
            "error: missing.csv: no such file or folder\n",
        );
    }
}

#[test]
fn kafka_is_told_by_version_options_and_help() {
    let dir = dir(&[]);
    assert!(rows(&dir, &["--version"]).contains("kafka"));
    let options = rows(&dir, &["options", "kafka"]);
    for told in [
        "  scan.startup.mode = earliest-offset|latest-offset|timestamp|specific-offsets|group-offsets|from-history\n      \
         where reading begins, the first time; --from is short for it [default: earliest-offset] (not in this version: from-history)\n",
        "  scan.retention-watch = fail|spill\n      when retention is about to overtake the start (not in this version)\n",
        "  json.coerce = true|false\n",
    ] {
        assert!(options.contains(told), "{told}\n{options}");
    }
    assert!(!options.contains("csv.header"), "{options}");
    let help = rows(&dir, &["read", "--help"]);
    for told in ["--from <WHEN>", "--until <WHEN>", "--bounded", "kafka://localhost/bids --bounded", "_headers"] {
        assert!(help.contains(told), "{told}\n{help}");
    }
    let completions = rows(&dir, &["completions", "bash"]);
    assert!(completions.contains("--until"), "{completions}");
}

#[test]
fn secrets_of_the_client_are_never_shown() {
    let dir = dir(&[("secret", "geheim\n")]);
    let ran = segue(&dir, &["read", "kafka://h/t", "-v", "-o", "properties.fetch.wait.max.ms=${file:secret}"]);
    assert_eq!(ran.status, 2);
    assert!(!ran.stderr.contains("geheim") && ran.stderr.contains("fetch.wait.max.ms"), "{}", ran.stderr);
}

/// Files, a topic that goes on where they end, and a cluster that has it.
struct Bids {
    dir: TempDir,
    topic: Topic,
    _cluster: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Bids {
    /// On the mock cluster, with two partitions: ids 3 and 4 in one, 5 in the other.
    fn mock() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        let topic = Topic::mock(&cluster, "bids", 2);
        topic.produce_values([(0, "3,3.5"), (0, "4,4.5"), (1, "5,5.5")].map(|(p, value)| (p, value.to_owned())));
        Self { dir: dir(&[("bids/1.csv", "id,price\n1,1.5\n2,2.5\n")]), topic, _cluster: Some(cluster) }
    }

    fn address(&self) -> String {
        self.topic.address()
    }

    /// Runs `COMMAND bids kafka://…/bids OPTIONS`.
    fn run(&self, command: &str, options: &[&str]) -> Ran {
        self.plainly(segue(&self.dir, &[&[command, "bids", &self.address()], options].concat()))
    }

    /// What it prints, which nothing is said of.
    #[track_caller]
    fn printed(&self, command: &str, options: &[&str]) -> String {
        let ran = self.run(command, &[options, &["--quiet"]].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{command} {options:?}");
        ran.stdout
    }

    /// The names in it as if they weren't this test's alone.
    fn plainly(&self, ran: Ran) -> Ran {
        let plain = |text: String| text.replace(self.topic.name(), "bids").replace(self.topic.bootstrap(), "h:9092");
        Ran { status: ran.status, stdout: plain(ran.stdout), stderr: plain(ran.stderr) }
    }
}

/// The lines, with those of several partitions in a stated order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn files_then_a_topic_are_one_stream_with_where_each_row_is_from() {
    let bids = Bids::mock();
    let ran = bids.run("read", &["--bounded", "--metadata", "_phase,_split,_position,_topic,_partition,_offset"]);
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (0, "schema inferred from bids: --schema 'id BIGINT, price DOUBLE'\n")
    );
    let (history, live) = ran.stdout.split_at(ran.stdout.find("3,3.5").unwrap().min(ran.stdout.find("5,5.5").unwrap()));
    assert_eq!(
        history,
        "id,price,_phase,_split,_position,_topic,_partition,_offset\n1,1.5,bounded,1.csv,9,,,\n2,2.5,bounded,1.csv,15,,,\n"
    );
    assert_eq!(
        sorted(live),
        ["3,3.5,unbounded,bids/0,0,bids,0,0", "4,4.5,unbounded,bids/0,1,bids,0,1", "5,5.5,unbounded,bids/1,0,bids,1,0"]
    );
}

#[test]
fn a_lone_topic_is_raw_text() {
    let bids = Bids::mock();
    let ran = bids.plainly(segue(&bids.dir, &["read", &bids.address(), "--until", "now", "--output", "json"]));
    assert_eq!(ran.stderr, "schema of kafka://h:9092/bids: -o format=raw --schema 'value STRING'\n");
    assert_eq!(sorted(&ran.stdout), ["{\"value\":\"3,3.5\"}", "{\"value\":\"4,4.5\"}", "{\"value\":\"5,5.5\"}"]);
    assert_eq!(ran.status, 0);
}

#[test]
fn raw_text_behind_files_fills_the_column_that_is_taken_from_it() {
    let bids = Bids::mock();
    let options = ["--bounded", "--no-header", "-o", "1.format=raw", "-o", "1.column.line.from=value"];
    let printed =
        bids.printed("read", &[&options[..], &["-o", "0.csv.header=true", "--schema", "id INT, line STRING"]].concat());
    assert_eq!(sorted(&printed), [",\"3,3.5\"", ",\"4,4.5\"", ",\"5,5.5\"", "1,", "2,"]);
}

#[test]
fn starts_and_stops_of_the_options_are_kept() {
    let bids = Bids::mock();
    let ids = |options: &[&str]| -> Vec<String> {
        let printed = bids
            .printed("read", &[&["--no-header", "--schema", "id INT", "-o", "0.csv.header=true"], options].concat());
        let mut ids: Vec<String> = printed.lines().map(ToOwned::to_owned).collect();
        ids.sort_unstable();
        ids
    };
    let (start, stop) = ("partition:0,offset:1;partition:1,offset:0", "partition:0,offset:2;partition:1,offset:0");
    let options = [
        "-o",
        "csv.extra-fields=ignore",
        "-o",
        "scan.startup.mode=specific-offsets",
        "-o",
        &format!("scan.startup.specific-offsets={start}"),
    ];
    assert_eq!(ids(&[&options[..], &["--bounded"]].concat()), ["1", "2", "4", "5"]);
    let stops = ["-o", "scan.bounded.mode=specific-offsets", "-o", &format!("scan.bounded.specific-offsets={stop}")];
    assert_eq!(ids(&[&options[..], &stops].concat()), ["1", "2", "4"]);
    assert_eq!(ids(&["-o", "csv.extra-fields=ignore", "--from", "latest", "--bounded"]), ["1", "2"]);
}

#[test]
fn a_plan_shows_files_and_partitions() {
    let bids = Bids::mock();
    assert_eq!(
        bids.printed("plan", &[]),
        "schema: id BIGINT, price DOUBLE\n\
         source 0: bids: csv, header yes: 1 file, 21 B\n\
         \u{20} 1.csv       21 B\n\
         source 1: bids: csv: 2 partitions, 3 messages at most\n\
         \u{20} bids/0  from 0, no end, the log has 0 to 2: 2 to read\n\
         \u{20} bids/1  from 0, no end, the log has 0 to 1: 1 to read\n\
         seam: no gap in the log of bids; rows that the files have too would come twice\n\
         total: 1 file, 21 B; 2 partitions, 3 messages at most\n"
    );
    let json: Value =
        serde_json::from_str(&bids.printed("plan", &["--json", "--from", "latest", "--bounded"])).unwrap();
    assert_eq!(
        json["sources"][1],
        json!({
            "name": "1", "connector": "kafka", "format": "csv", "header": null, "bounded": true, "splits": [],
        })
    );
    let json: Value = serde_json::from_str(&bids.printed("plan", &["--json", "--until", "now"])).unwrap();
    assert_eq!(
        json["sources"][1]["splits"],
        json!([
            {"split": "bids/0", "start": 0, "stop": 2, "log_start": 0, "end": 2, "size": null},
            {"split": "bids/1", "start": 0, "stop": 1, "log_start": 0, "end": 1, "size": null},
        ])
    );
    assert_eq!(json["seam"], json!({"gaps": [], "overlaps": []}));
}

#[test]
fn offsets_outside_the_log_are_a_gap_of_the_plan_and_an_error_before_anything_is_read() {
    let bids = Bids::mock();
    let options = [
        "-o",
        "scan.startup.mode=specific-offsets",
        "-o",
        "scan.startup.specific-offsets=partition:0,offset:17;partition:1,offset:1",
        "--quiet",
    ];
    let ran = bids.run("plan", &options);
    assert_eq!((ran.status, ran.stderr.as_str()), (3, ""));
    assert!(
        ran.stdout.contains("\ngap: bids/0: offset 17 is wanted, the log ends at 2\nseam: a gap"),
        "{}",
        ran.stdout
    );
    let ran = bids.run("plan", &[&options[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.status, &json["seam"]["gaps"]), (3, &json!([{"split": "bids/0", "wanted": 17, "available": 2}])));
    // Nothing of the files is printed either.
    let ran = bids.run("read", &options);
    assert_eq!(
        (ran.status, ran.stdout.as_str(), ran.stderr.as_str()),
        (
            1,
            "",
            "error: bids/0: offset 17 is wanted, and the log has 0 up to 2\n\
             hint: the log ends before what was read of it, or asked for; if it is another log now, begin a new job with \
             another --checkpoint\n"
        )
    );
}

/// CASE 21: an offset is given for every partition, or it is an error that names the one left out.
#[test]
fn a_partition_that_the_offsets_leave_out_is_named() {
    let bids = Bids::mock();
    let options = [
        "-o",
        "scan.startup.mode=specific-offsets",
        "-o",
        "scan.startup.specific-offsets=partition:0,offset:1",
        "--quiet",
    ];
    for command in ["read", "plan"] {
        let ran = bids.run(command, &options);
        let fault = "error: option 'scan.startup.specific-offsets': it names no offset for partition 1 of bids\n";
        assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (2, "", fault));
    }
}

#[test]
fn a_topic_that_is_not_there_names_similar_ones() {
    let bids = Bids::mock();
    let address = bids.address();
    let ran = bids.plainly(segue(&bids.dir, &["read", "bids", &address[..address.len() - 1], "--quiet"]));
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("error: h:9092: there is no topic "), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("; there is bids\n"), "{}", ran.stderr);
}

#[test]
fn no_broker_is_told_with_where_it_was_looked_for() {
    let dir = dir(&[("bids.csv", BIDS)]);
    // Nobody listens on the first port.
    for command in ["read", "plan"] {
        let ran = segue(&dir, &[command, "bids.csv", "kafka://127.0.0.1:1/bids", "--quiet"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
        assert!(ran.stderr.starts_with("error: 127.0.0.1:1: cannot reach the cluster\ncaused by: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("Connection refused"), "{}", ran.stderr);
    }
}

#[test]
fn a_bad_value_in_a_message_is_told_with_its_place_after_the_rows_before_it() {
    let bids = Bids::mock();
    bids.topic.produce_values([(1, "x,6.5".to_owned()), (1, "7,7.5".to_owned())]);
    let ran = bids.run("read", &["--bounded", "--quiet"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (1, "error: bids/1 offset 1, column id: 'x' is not a BIGINT\n"));
    assert!(!ran.stdout.contains("7,7.5"), "{}", ran.stdout);
}

#[test]
fn a_job_goes_on_across_the_seam_and_status_tells_both_phases() {
    let bids = Bids::mock();
    let job =
        |limit: &str| bids.printed("read", &["--bounded", "--checkpoint", "job", "--no-header", "--limit", limit]);
    assert_eq!(job("1"), "1,1.5\n");
    let text = bids.plainly(segue(&bids.dir, &["status", "job"])).stdout;
    assert!(
        text.ends_with(
            "source 0 (filesystem, bids, csv): 1 row, 0 rejected\n\
             \u{20} 0 of 1 file done\n\
             \u{20} 1.csv: next position 15, a file of 21 B\n\
             source 1 (kafka, bids, csv): 0 rows, 0 rejected\n\
             \u{20} bids/0: next position 0 of 2, end 2, lag 2\n\
             \u{20} bids/1: next position 0 of 1, end 1, lag 1\n\
             lag: 3, as of then\n"
        ),
        "{text}"
    );
    let later = job("2");
    assert!(later.starts_with("2,2.5\n"), "{later}");
    let json: Value = serde_json::from_str(&segue(&bids.dir, &["status", "job", "--json"]).stdout).unwrap();
    assert_eq!((&json["rows"], &json["lag"]), (&json!({"0": 2, "1": 1}), &json!(2)));
    let last = job("9");
    assert_eq!(sorted(&format!("{later}{last}"))[1..], ["3,3.5", "4,4.5", "5,5.5"]);

    // What is done is done, until there is more.
    assert_eq!(job("9"), "");
    bids.topic.produce_values([(1, "6,6.5".to_owned())]);
    assert_eq!(job("9"), "6,6.5\n");
    let text = bids.plainly(segue(&bids.dir, &["status", "job"])).stdout;
    assert!(text.contains("\n  bids/1: next position 2 of 2, end 2, lag 0, done\nlag: 0, as of then\n"), "{text}");
}

/// A process that is ended with the test, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_endless_job_prints_rows_as_they_come_and_ends_well_by_a_signal() {
    for (signal, restarted) in [("INT", "8,8.5"), ("TERM", "9,9.5")] {
        let bids = Bids::mock();
        let args = ["read", "bids", &bids.address(), "--checkpoint", "job", "--quiet", "--no-header"];
        let child = command(bids.dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Running(child);
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let began: Vec<String> = lines.by_ref().take(5).map(Result::unwrap).collect();
        assert_eq!(began[..2], ["1,1.5", "2,2.5"]);
        // A row that comes now is printed though nothing follows it.
        bids.topic.produce_values([(0, "6,6.5".to_owned())]);
        assert_eq!(lines.next().unwrap().unwrap(), "6,6.5");
        Command::new("kill").args([format!("-{signal}"), running.0.id().to_string()]).status().unwrap();
        assert!(lines.next().is_none());
        assert_eq!(ended(&mut running.0), Some(0), "{signal}");

        bids.topic.produce_values([(0, restarted.to_owned())]);
        assert_eq!(
            bids.printed("read", &["--checkpoint", "job", "--until", "now", "--no-header"]),
            format!("{restarted}\n")
        );
    }
}

/// The exit status, within the time that anything may take.
fn ended(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(began.elapsed() < crate::topic::PATIENCE, "it doesn't end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What only a real Kafka can: offsets by time, and a log that begins later.
mod on_a_broker {
    use super::*;

    async fn bids() -> Bids {
        let bootstrap = std::env::var("SEGUE_TEST_BROKER").unwrap();
        let topic = Topic::create(&bootstrap, "bids", 1).await;
        Bids { dir: dir(&[("bids/1.csv", "id,price\n1,1.5\n2,2.5\n")]), topic, _cluster: None }
    }

    #[tokio::test]
    #[ignore = "needs a real Kafka: tests/broker/run"]
    async fn a_time_is_where_a_topic_begins_and_ends() {
        let bids = bids().await;
        // Young enough for any retention, and not in the future.
        let day = chrono::Utc::now().date_naive() - chrono::Days::new(1);
        let noon = day.and_hms_opt(12, 0, 0).unwrap().and_utc().timestamp_millis();
        for (index, id) in (3..7).enumerate() {
            bids.topic.produce(0, None, Some(&format!("{id},{id}.5")), Some(noon + 1_000 * index as i64));
        }
        let ids = |options: &[&str]| bids.printed("read", &[&["--no-header"], options].concat());
        let history = "1,1.5\n2,2.5\n";
        let (from, until) = (format!("{day}T12:00:01"), (noon + 3_000).to_string());
        assert_eq!(ids(&["--from", &from, "--until", &until]), format!("{history}4,4.5\n5,5.5\n"));
        let from = format!("{day}T14:00:02.500+02:00");
        assert_eq!(ids(&["--from", &from, "--until", "now"]), format!("{history}6,6.5\n"));
    }

    /// No fault: it starts at the end, which is recorded, and warns.
    #[tokio::test]
    #[ignore = "needs a real Kafka: tests/broker/run"]
    async fn a_time_in_the_future_begins_at_the_end_and_warns() {
        let bids = bids().await;
        bids.topic.produce_values([(0, "3,3.5".to_owned())]);
        let ran = bids.run("read", &["--from", "2199-01-01", "--until", "now", "--checkpoint", "job", "--no-header"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "1,1.5\n2,2.5\n"));
        assert!(ran.stderr.contains("in the future: reading begins at the end of the topic"), "{}", ran.stderr);
        bids.topic.produce_values([(0, "4,4.5".to_owned())]);
        assert_eq!(bids.printed("read", &["--until", "now", "--checkpoint", "job", "--no-header"]), "4,4.5\n");
    }

    #[tokio::test]
    #[ignore = "needs a real Kafka: tests/broker/run"]
    async fn a_log_that_lost_what_is_wanted_is_a_gap() {
        let bids = bids().await;
        bids.topic.produce_values((3..9).map(|id| (0, format!("{id},{id}.5"))));
        bids.printed("read", &["--bounded", "--checkpoint", "job", "--limit", "3"]);
        bids.topic.delete_before(&[(0, 4)]).await;
        let ran = bids.run("plan", &["--bounded", "--checkpoint", "job", "--quiet"]);
        assert_eq!(ran.status, 3);
        assert_eq!(
            ran.stdout,
            "schema: id BIGINT, price DOUBLE\n\
             source 0: bids: csv, header yes: 0 files (1 done), 0 B\n\
             source 1: bids: csv: 1 partition, 2 messages at most\n\
             \u{20} bids/0  from 1 to 6, the log has 4 to 6: 2 to read\n\
             gap: bids/0: offset 1 is wanted, the log begins at 4\n\
             seam: a gap in the log of bids: nothing would be read\n\
             total: 1 partition, 2 messages at most\n"
        );
        let ran = bids.run("read", &["--bounded", "--checkpoint", "job", "--quiet"]);
        assert_eq!(
            (ran.status, ran.stdout.as_str(), ran.stderr.as_str()),
            (
                1,
                "",
                "error: bids/0: offset 1 is wanted, and the log has 4 up to 6\n\
                 hint: retention took them; -o scan.on-data-loss=earliest goes on where the log begins, and `segue plan` \
                 shows every partition\n"
            )
        );
    }
}

/// Whoever follows a quiet topic into a pipe ends with its reader, and not at the next row.
#[test]
fn a_follower_ends_when_nobody_reads_its_rows_any_more() {
    let bids = Bids::mock();
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.current_dir(&bids.dir).args(["read", "bids", &bids.topic.address(), "--quiet"]).stdout(Stdio::piped());
    let mut follower = command.spawn().unwrap();
    let mut reader = BufReader::new(follower.stdout.take().unwrap());
    let mut header = String::new();
    reader.read_line(&mut header).unwrap();
    assert_eq!(header, "id,price\n");
    drop(reader);
    let began = std::time::Instant::now();
    let status = loop {
        if let Some(status) = follower.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > crate::topic::PATIENCE {
            follower.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0));
}

/// Files and messages, and their dead letters of one kind: into a file, and into a topic.
#[test]
fn bad_messages_are_left_out_and_dead_letters_of_both_phases_are_alike() {
    let cluster = MockCluster::new(1).unwrap();
    let bids = Topic::mock(&cluster, "bids", 1);
    let dead = Topic::mock(&cluster, "dead", 1);
    let messages = ["3,3.5", "x,4", "", "5,5\n6,6", "7", "8,8.5"];
    bids.produce_values(messages.map(|value| (0, value.to_owned())));
    let dir = dir(&[("bids/1.csv", "id,price\n1,1.5\n2,y\n")]);
    let address = bids.address();
    let read = |more: &[&str]| {
        let args = ["read", "bids", &address, "--bounded", "--schema", "id INT, price DOUBLE", "--metadata", "_offset"];
        segue(&dir, &[&args[..], more].concat())
    };
    let into_file = read(&["--on-error", "dead.ndjson"]);
    assert_eq!((into_file.status, into_file.stdout.as_str()), (0, "id,price,_offset\n1,1.5,\n3,3.5,0\n8,8.5,5\n"));
    assert!(
        into_file.stderr.contains("5 bad records were left out; dead letters are in dead.ndjson\n"),
        "{}",
        into_file.stderr
    );
    let letters = std::fs::read_to_string(dir.path().join("dead.ndjson")).unwrap().replace(bids.name(), "bids");
    assert_eq!(
        letters.lines().collect::<Vec<_>>(),
        [
            r#"{"source":"0","phase":"bounded","split":"1.csv","position":15,"column":"price","reason":"type","message":"'y' is not a DOUBLE","raw":"2,y"}"#,
            r#"{"source":"1","phase":"unbounded","split":"bids/0","position":1,"column":"id","reason":"type","message":"'x' is not an INT","raw":"x,4"}"#,
            r#"{"source":"1","phase":"unbounded","split":"bids/0","position":2,"column":null,"reason":"message","message":"an empty message is no record","raw":""}"#,
            r#"{"source":"1","phase":"unbounded","split":"bids/0","position":3,"column":null,"reason":"message","message":"the message holds several lines: one message is one record","raw":"5,5\n6,6"}"#,
            r#"{"source":"1","phase":"unbounded","split":"bids/0","position":4,"column":null,"reason":"fields","message":"1 field where 2 are expected","raw":"7"}"#,
        ]
    );
    let into_topic = read(&["--on-error", &dead.address()]);
    assert_eq!((into_topic.status, &into_topic.stdout), (0, &into_file.stdout), "{}", into_topic.stderr);
    let sent = dead.read_back().into_values().flatten().map(|seen| seen.value.unwrap().replace(bids.name(), "bids"));
    assert_eq!(sent.collect::<Vec<_>>(), letters.lines().collect::<Vec<_>>());

    // One row at a time, each bad message once.
    let step = ["--on-error", "steps.ndjson", "--checkpoint", "job", "--limit", "1", "--no-header", "--quiet"];
    let rows: Vec<String> = (0..5).map(|_| read(&step).stdout).collect();
    assert_eq!(rows, ["1,1.5,\n", "3,3.5,0\n", "8,8.5,5\n", "", ""]);
    let steps = std::fs::read_to_string(dir.path().join("steps.ndjson")).unwrap();
    assert_eq!(steps.lines().count(), 5, "{steps}");

    let back = read(&["--on-error", &address, "--quiet"]);
    assert_eq!((back.status, back.stdout.as_str()), (2, ""));
    assert!(back.stderr.contains("it is read as well, and dead letters would come back as input"), "{}", back.stderr);
}

#[test]
fn tombstones_are_no_rows_rows_of_nulls_or_bad_records_as_the_option_says() {
    let cluster = MockCluster::new(1).unwrap();
    let bids = Topic::mock(&cluster, "bids", 1);
    for (key, value) in [("a", Some("3,3.5")), ("b", None), ("c", Some("4,4.5")), ("d", None)] {
        bids.produce(0, Some(key), value, None);
    }
    let dir = dir(&[]);
    let address = bids.address();
    let read = |schema: &str, more: &[&str]| {
        let args = ["read", &address, "--bounded", "--format", "csv", "--schema", schema, "--metadata", "_offset"];
        let Ran { status, stdout, stderr } = segue(&dir, &[&args[..], &["--no-header", "--quiet"], more].concat());
        (status, stdout, stderr.replace(bids.name(), "bids"))
    };
    let (nullable, not_null) = ("id INT, price DOUBLE", "id INT NOT NULL, price DOUBLE");
    let ok = |rows: &str| (0, rows.to_owned(), String::new());
    for skip in [&[][..], &["-o", "scan.tombstone=skip"]] {
        assert_eq!(read(nullable, skip), ok("3,3.5,0\n4,4.5,2\n"));
    }
    assert_eq!(read(nullable, &["-o", "scan.tombstone=null-row"]), ok("3,3.5,0\n,,1\n4,4.5,2\n,,3\n"));
    let fault =
        "error: bids/0 offset 1, column id: null in a NOT NULL column: the message has no value (a tombstone)\n";
    assert_eq!(read(not_null, &["-o", "scan.tombstone=null-row"]), (1, "3,3.5,0\n".into(), fault.into()));
    let fail = ["-o", "scan.tombstone=fail"];
    let fault = "error: bids/0 offset 1: a message without a value (a tombstone)\n";
    assert_eq!(read(nullable, &fail), (1, "3,3.5,0\n".into(), fault.into()));
    assert_eq!(read(nullable, &[&fail[..], &["--on-error", "skip"]].concat()), ok("3,3.5,0\n4,4.5,2\n"));
    assert_eq!(read(nullable, &[&fail[..], &["--on-error", "dead.ndjson"]].concat()), ok("3,3.5,0\n4,4.5,2\n"));
    let letters = std::fs::read_to_string(dir.path().join("dead.ndjson")).unwrap().replace(bids.name(), "bids");
    let letter = |offset| {
        format!(
            r#"{{"source":"0","phase":"unbounded","split":"bids/0","position":{offset},"column":null,"reason":"null","message":"a message without a value (a tombstone)","raw":null}}"#
        )
    };
    assert_eq!(letters.lines().collect::<Vec<_>>(), [letter(1), letter(3)]);
    // One row at a time, over what is bad behind each.
    let step = [&fail[..], &["--on-error", "skip", "--checkpoint", "job", "--limit", "1"]].concat();
    let rows: Vec<String> = (0..3).map(|_| read(nullable, &step).1).collect();
    assert_eq!(rows, ["3,3.5,0\n", "4,4.5,2\n", ""]);
}

/// A partition is done before the rest of a micro-batch with many bad messages is decoded.
#[test]
fn a_bounded_read_of_several_partitions_ends_however_many_messages_are_bad() {
    let cluster = MockCluster::new(1).unwrap();
    let bids = Topic::mock(&cluster, "bids", 2);
    let value = |id: i32| if id % 3 == 0 { format!("{id},x") } else { format!("{id},{id}") };
    bids.produce_values((0..6000).map(|id| (i32::from(id >= 2000), value(id))));
    let dir = dir(&[]);
    for on_error in ["skip", "dead.ndjson"] {
        for batch_rows in ["8192", "100"] {
            let _ = std::fs::remove_file(dir.path().join("dead.ndjson"));
            let ran = segue(
                &dir,
                &[
                    "read",
                    &bids.address(),
                    "--bounded",
                    "--format",
                    "csv",
                    "--schema",
                    "a INT, b INT",
                    "--no-header",
                    "--on-error",
                    on_error,
                    "--batch-rows",
                    batch_rows,
                ],
            );
            assert_eq!((ran.status, ran.stdout.lines().count()), (0, 4000), "{on_error}: {}", ran.stderr);
            assert!(ran.stderr.contains("2000 bad records were left out"), "{}", ran.stderr);
        }
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("dead.ndjson")).unwrap().lines().count(), 2000);
}
