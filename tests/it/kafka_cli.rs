//! The program over files and topics: what can be said of them, and what is refused before a broker is asked.

use crate::cli::{dir, fails, rows, segue};

const BIDS: &str = "id,price\n1,2.5\n2,7.25\n";

#[test]
fn an_address_that_is_none_says_why() {
    let dir = dir(&[]);
    for (source, why) in [
        ("kafka:h/t", "it is not kafka://HOST[:9092][,HOST…]/TOPIC[,TOPIC…]"),
        ("kafka://h", "it names no topic; write kafka://h/TOPIC"),
        ("kafka://h:0/t", "'h:0' is not HOST or HOST:PORT"),
        ("kafka://h/t?x=1", "it has no query string; settings of the client are -o properties.KEY=VALUE"),
        ("kafka://u:p@h/t", "it has no user; -o properties.sasl.username and -o properties.sasl.password say who asks"),
        ("kafka://h/a b", "'a b' can't be a topic: letters, digits, '.', '_' and '-' make one, 249 at most"),
    ] {
        fails(&dir, &["read", source], 2, &format!("error: source '{source}': {why}\n"));
    }
    fails(
        &dir,
        &["read", "csv:kafka://h/t"],
        2,
        "error: source 'csv:kafka://h/t': the format of a topic isn't put in front of it\n\
         hint: kafka://h/t -o 0.format=csv\n",
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
        "error: option 'properties.sasl.jaas.config': it is a setting of Kafka's Java client; librdkafka has sasl.username and sasl.password\n",
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
         where reading begins, the first time; --from is short for it [default: earliest-offset] (not in this version: group-offsets, from-history)\n",
        "  topic-pattern = text\n      a regular expression of topics (not in this version)\n",
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
