//! Rows into a topic, on the mock cluster, read back by a plain consumer.

use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use segue::checkpoint::{Advance, Checkpoint, RowPositions};
use segue::error::Error;
use segue::kafka::KafkaAddress;
use segue::sink::{KafkaSink, KafkaSinkBuilder, MessageFormat, Sink};
use segue::source::{ChainBatch, SourceBatch};

use crate::cli::{Ran, dir, segue_in};
use crate::common::{ids, named, told};
use crate::topic::{PATIENCE, Topic};

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A cluster of one broker, and a topic of so many partitions.
fn cluster(partitions: i32) -> (Cluster, Topic) {
    let cluster = MockCluster::new(1).unwrap();
    let topic = Topic::mock(&cluster, "sink", partitions);
    (cluster, topic)
}

fn builder(topic: &Topic) -> KafkaSinkBuilder {
    let address: KafkaAddress = topic.address().parse().unwrap();
    KafkaSink::builder(&address)
}

/// The values of each partition, in order; none has a key.
fn values(topic: &Topic) -> Vec<Vec<String>> {
    let value = |seen: crate::topic::Seen| {
        assert_eq!(seen.key, None);
        seen.value.unwrap()
    };
    topic.read_back().into_values().map(|partition| partition.into_iter().map(value).collect()).collect()
}

/// The values of a topic of one partition.
fn lines(topic: &Topic) -> Vec<String> {
    let [lines] = values(topic).try_into().unwrap();
    lines
}

fn item(batch: RecordBatch) -> ChainBatch {
    let num_rows = batch.num_rows();
    let advance = Advance::new("a".into(), 0, num_rows as u64);
    let rows = RowPositions::consecutive(0, num_rows);
    ChainBatch { source: 0, item: SourceBatch::try_new(batch, rows, vec![advance]).unwrap() }
}

async fn write(sink: &mut KafkaSink, range: std::ops::Range<i64>) -> Result<(), Error> {
    sink.write(&item(ids(range))).await
}

async fn commit(sink: &mut KafkaSink) -> Result<(), Error> {
    sink.commit(&Checkpoint::default()).await
}

/// As CSV, what [`ids`] makes.
fn csv(ids: impl IntoIterator<Item = i64>) -> Vec<String> {
    ids.into_iter().map(|id| if id % 5 == 4 { format!("{id},") } else { format!("{id},n{id}") }).collect()
}

#[tokio::test]
async fn rows_arrive_once_each_and_in_order() {
    let (_cluster, topic) = cluster(1);
    let mut sink = builder(&topic).build().unwrap();
    assert_eq!(sink.recover().await.unwrap(), None);
    commit(&mut sink).await.unwrap();
    for batch in 0..20 {
        write(&mut sink, batch * 1000..(batch + 1) * 1000).await.unwrap();
    }
    commit(&mut sink).await.unwrap();
    assert_eq!(lines(&topic), csv(0..20_000), "a commit returns when every row has arrived");
    write(&mut sink, 20_000..20_001).await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(lines(&topic).len(), 20_001, "what wasn't committed reaches those who read along");
}

#[tokio::test]
async fn json_values_are_objects_without_a_line_end() {
    let (_cluster, topic) = cluster(1);
    let mut sink = builder(&topic).format(MessageFormat::Json).build().unwrap();
    write(&mut sink, 3..5).await.unwrap();
    commit(&mut sink).await.unwrap();
    assert_eq!(lines(&topic), [r#"{"id":3,"name":"n3"}"#, r#"{"id":4,"name":null}"#]);
}

#[tokio::test]
async fn rows_keep_their_order_in_each_of_several_partitions() {
    let (_cluster, topic) = cluster(3);
    // One batch of messages may take all that a test writes; without lingering there are several.
    let mut sink = builder(&topic).property("sticky.partitioning.linger.ms", "0").build().unwrap();
    for batch in 0..10 {
        write(&mut sink, batch * 100..(batch + 1) * 100).await.unwrap();
    }
    commit(&mut sink).await.unwrap();
    let id = |value: &String| value.split(',').next().unwrap().parse::<i64>().unwrap();
    let mut all: Vec<i64> = Vec::new();
    for values in values(&topic) {
        let ids: Vec<i64> = values.iter().map(id).collect();
        assert!(!ids.is_empty() && ids.is_sorted(), "{ids:?}");
        all.extend(ids);
    }
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_made() {
    let cluster = MockCluster::new(1).unwrap();
    // The mock can't be asked for a number of partitions: it makes four, whatever was wanted.
    let topic = Topic::of(&cluster.bootstrap_servers(), "new".into(), 4);
    let mut sink = builder(&topic).partitions(NonZeroU16::new(2).unwrap()).build().unwrap();
    sink.recover().await.unwrap();
    write(&mut sink, 0..10).await.unwrap();
    commit(&mut sink).await.unwrap();
    let mut all = values(&topic).concat();
    all.sort_unstable();
    assert_eq!(all, csv(0..10));
}

#[tokio::test]
async fn a_full_queue_makes_the_writer_wait_and_drops_nothing() {
    let (cluster, topic) = cluster(1);
    cluster.broker_round_trip_time(1, Duration::from_millis(5)).unwrap();
    // Room for 32 messages.
    let mut sink = builder(&topic).memory_bytes(32 << 10).build().unwrap();
    assert_eq!(sink.reserved_bytes(), 32 << 10);
    write(&mut sink, 0..1000).await.unwrap();
    commit(&mut sink).await.unwrap();
    assert_eq!(lines(&topic), csv(0..1000));
}

#[tokio::test]
async fn what_fails_for_a_moment_is_sent_again_without_a_repeat() {
    let (cluster, topic) = cluster(1);
    let mut sink = builder(&topic).property("retry.backoff.ms", "1").build().unwrap();
    sink.recover().await.unwrap();
    let not_leader = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
    let lost = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT;
    cluster.request_errors(RDKafkaApiKey::Produce, &[not_leader, lost, not_leader]);
    for batch in 0..10 {
        write(&mut sink, batch * 100..(batch + 1) * 100).await.unwrap();
    }
    commit(&mut sink).await.unwrap();
    assert_eq!(lines(&topic), csv(0..1000));
}

#[tokio::test]
async fn a_broker_that_comes_back_has_every_row_once() {
    let (cluster, topic) = cluster(1);
    let mut sink = builder(&topic).build().unwrap();
    write(&mut sink, 0..1000).await.unwrap();
    commit(&mut sink).await.unwrap();
    cluster.broker_down(1).unwrap();
    write(&mut sink, 1000..2000).await.unwrap();
    cluster.broker_up(1).unwrap();
    commit(&mut sink).await.unwrap();
    assert_eq!(lines(&topic), csv(0..2000));
}

#[tokio::test]
async fn a_broker_that_stays_away_is_told_with_the_reason() {
    let (cluster, topic) = cluster(1);
    let mut sink = builder(&topic).property("message.timeout.ms", "5000").build().unwrap();
    write(&mut sink, 0..1).await.unwrap();
    commit(&mut sink).await.unwrap();
    cluster.broker_down(1).unwrap();
    write(&mut sink, 1..2).await.unwrap();
    let told = told(&commit(&mut sink).await.unwrap_err());
    let expected = "cannot write: partition 0: a row of 4 bytes was not delivered: MessageTimedOut";
    assert!(told.contains(expected) && told.contains("127.0.0.1"), "{told}");
}

#[tokio::test]
async fn a_row_that_is_refused_is_an_error_and_the_sink_is_of_no_further_use() {
    let (cluster, topic) = cluster(1);
    let mut sink = builder(&topic).build().unwrap();
    sink.recover().await.unwrap();
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Produce, &[refused; 8]);
    write(&mut sink, 7..8).await.unwrap();
    let error = commit(&mut sink).await.unwrap_err();
    assert!(matches!(error, Error::Output { .. }), "{error:?}");
    assert_eq!(
        told(&error),
        format!(
            "{}: cannot write: partition 0: a row of 4 bytes was not delivered: \
             TopicAuthorizationFailed (Broker: Topic authorization failed)",
            topic.address()
        )
    );
    cluster.clear_request_errors(RDKafkaApiKey::Produce);
    write(&mut sink, 8..9).await.unwrap_err();
    commit(&mut sink).await.unwrap_err();
    drop(sink);
    assert!(lines(&topic).is_empty());
}

#[tokio::test]
async fn a_row_too_large_for_a_message_or_for_the_memory_names_its_size() {
    let (_cluster, topic) = cluster(1);
    let mut sink = builder(&topic).property("message.max.bytes", "1000").build().unwrap();
    let large = item(named(&"x".repeat(3000)));
    sink.write(&large).await.unwrap();
    let error = commit(&mut sink).await.unwrap_err();
    assert!(matches!(error, Error::Output { .. }), "{error:?}");
    assert_eq!(
        told(&error),
        format!(
            "{}: cannot write: a row of 3002 bytes is too large for a message; \
             sink.properties.message.max.bytes allows 1000",
            topic.address()
        )
    );

    let mut sink = builder(&topic).memory_bytes(8 << 10).build().unwrap();
    sink.write(&large).await.unwrap();
    let error = commit(&mut sink).await.unwrap_err();
    let Error::Memory { needed_bytes, allowed_bytes, .. } = error else { panic!("{error:?}") };
    assert_eq!((needed_bytes, allowed_bytes), (3002, 2048));
}

#[tokio::test]
async fn a_drop_ends_the_thread_though_no_broker_answers() {
    let (cluster, topic) = cluster(1);
    let mut sink = builder(&topic).memory_bytes(8 << 10).build().unwrap();
    sink.recover().await.unwrap();
    cluster.broker_down(1).unwrap();
    // Far more than fits: the thread waits for room, which there never will be.
    write(&mut sink, 0..2000).await.unwrap();
    drop(sink);
    cluster.broker_up(1).unwrap();
    assert!(lines(&topic).len() < 2000);
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let (_cluster, topic) = cluster(1);
    let mut sink = builder(&topic).property("max.in.flight", "20").build().unwrap();
    let error = sink.recover().await.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("`max.in.flight` must be set <= 5"), "{error}");
}

#[test]
fn settings_that_delivery_relies_on_and_several_topics_are_refused() {
    let address: KafkaAddress = "kafka://h/t".parse().unwrap();
    for (key, value, why) in [
        ("acks", "1", "it can't be set: a row is safe when every replica in sync has it"),
        ("enable.idempotence", "false", "it can't be set: rows are neither repeated nor overtaken"),
        ("sasl.jaas.config", "x", "here it is sasl.username and sasl.password"),
        ("linger.mss", "1", "No such configuration property"),
    ] {
        let error = KafkaSink::builder(&address).secret_property(key, value).check().unwrap_err();
        let Error::InvalidOption { key: told_key, reason } = error else { panic!("{error:?}") };
        assert_eq!(told_key, format!("sink.properties.{key}"));
        assert!(reason.contains(why) || key == "linger.mss", "{reason}");
    }
    let several: KafkaAddress = "kafka://h/a,b".parse().unwrap();
    let error = KafkaSink::builder(&several).build().unwrap_err();
    assert_eq!(error.to_string(), "option 'kafka://h:9092/a,b': it names several topics, and rows go into one");
    let settings = format!("{:?}", KafkaSink::builder(&address).secret_property("client.rack", "geheim"));
    assert!(!settings.contains("geheim"), "{settings}");
}

/// Runs with `--to` that topic.
fn run(dir: &tempfile::TempDir, args: &[&str], topic: &Topic) -> Ran {
    segue_in(dir.path(), &[args, &["--to", &topic.address()]].concat())
}

#[test]
fn generated_rows_go_into_a_topic_and_nothing_else_is_said() {
    let (_cluster, topic) = cluster(1);
    let dir = dir(&[]);
    let args = ["gen", "--schema", "id INT, t STRING", "--rows", "3000", "-o", "fields.id.kind=sequence"];
    let ran = run(&dir, &[&args[..], &["-o", "sink.format=json", "-o", "fields.t.length=2"]].concat(), &topic);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let note = format!("{}: 3000 rows in ", topic.address());
    assert!(ran.stderr.starts_with(&note) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    let lines = lines(&topic);
    assert_eq!(lines.len(), 3000);
    assert!(lines.iter().enumerate().all(|(id, line)| line.starts_with(&format!("{{\"id\":{id},\"t\":\""))));

    let ran = run(&dir, &[&args[..], &["--quiet"]].concat(), &topic);
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
}

#[test]
fn a_copy_goes_on_from_its_checkpoint_and_appends_without_one() {
    let (_cluster, topic) = cluster(1);
    let dir = dir(&[("a.csv", "id,name\n1,one\n2,\"a \"\"b\"\", c\"\n3,\n")]);
    let once = ["1,one", "2,\"a \"\"b\"\", c\"", "3,\"\""];
    let args = ["copy", "a.csv", "--quiet", "--schema", "id INT, name STRING", "--checkpoint", "job", "--limit", "2"];
    for count in [2, 3, 3] {
        let ran = run(&dir, &args, &topic);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
        assert_eq!(lines(&topic), once[..count]);
    }
    let ran = run(&dir, &["copy", "a.csv", "--quiet"], &topic);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert_eq!(lines(&topic), [once, once].concat());
}

#[test]
fn a_stop_commits_and_the_same_command_brings_the_rest_once() {
    const ROWS: i64 = 100_000;
    let (cluster, topic) = cluster(1);
    // Slow enough that the job is still at work when it is stopped.
    cluster.broker_round_trip_time(1, Duration::from_millis(100)).unwrap();
    let rows: Vec<String> = (0..ROWS).map(|id| format!("{id},n{id}")).collect();
    let dir = dir(&[("a.csv", &format!("id,name\n{}\n", rows.join("\n")))]);
    let (address, checkpoint) = (topic.address(), dir.path().join("job"));
    let args = ["copy", "a.csv", "--schema", "id BIGINT, name STRING", "--to", &address, "--checkpoint", "job"];
    let args = [&args[..], &["--quiet", "--memory", "8 mb"]].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    let child = command.current_dir(dir.path()).args(&args).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while topic.end_offsets() == [0] {
        assert!(began.elapsed() < PATIENCE, "no row has come");
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", String::from_utf8_lossy(&output.stderr));
    let committed = rows_of(&checkpoint);
    assert!(0 < committed && committed < ROWS as u64, "{committed} rows");
    assert_eq!(topic.end_offsets(), [committed]);

    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    let ran = segue_in(dir.path(), &args);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert_eq!(rows_of(&checkpoint), ROWS as u64);
    assert!(lines(&topic) == rows);
}

fn rows_of(checkpoint: &Path) -> u64 {
    let stored = segue::checkpoint::FileCheckpointStore::read(checkpoint).unwrap().unwrap();
    stored.sources.iter().map(|source| source.rows).sum()
}

#[test]
fn a_refused_row_ends_the_program_with_1() {
    let (cluster, topic) = cluster(1);
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Produce, &[refused; 8]);
    let ran = run(&dir(&[]), &["gen", "--schema", "id INT", "--rows", "1", "--quiet"], &topic);
    let error = format!("error: {}: cannot write\ncaused by: partition 0: a row of ", topic.address());
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.starts_with(&error), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("TopicAuthorizationFailed (Broker: Topic authorization failed)\n"), "{}", ran.stderr);
}

#[test]
fn a_broker_that_is_not_there_is_told_with_its_address() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let topic = Topic::of(&closed, "t".into(), 1);
    let ran = run(&dir(&[]), &["gen", "--schema", "id INT", "--rows", "1"], &topic);
    assert_eq!(ran.status, 1);
    let error = format!("error: {closed}: cannot reach the cluster\ncaused by: {closed}/bootstrap: ");
    assert!(ran.stderr.starts_with(&error), "{}", ran.stderr);
    assert!(ran.stderr.contains("Connection refused") && ran.stderr.lines().count() == 2, "{}", ran.stderr);
}

#[test]
fn what_means_nothing_to_a_topic_is_refused_before_a_broker_is_asked() {
    let dir = dir(&[("a.csv", "id\n1\n")]);
    let fails = |args: &[&str], stderr: &str| {
        let ran = segue_in(dir.path(), &[args, &["--quiet"]].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (2, stderr), "{args:?}");
    };
    let topic = ["--to", "kafka://h/t"];
    let generate = ["gen", "--schema", "id INT", "--rows", "1"];
    let of_folders = "it is an option of folders, and the sink is a topic";
    fails(
        &[&generate[..], &topic, &["--roll-size", "1 mb"]].concat(),
        &format!("error: option 'sink.rolling-policy.file-size': {of_folders}\n"),
    );
    let copy = ["copy", "a.csv"];
    fails(
        &[&copy[..], &topic, &["-o", "sink.rolling-policy.rollover-interval=1 s"]].concat(),
        &format!("error: option 'sink.rolling-policy.rollover-interval': {of_folders}\n"),
    );
    fails(
        &[&copy[..], &topic, &["-o", "sink.format=avro"]].concat(),
        "error: option 'sink.format': 'avro' is none of csv, json\n",
    );
    fails(
        &[&copy[..], &["--to", "csv:out", "-o", "sink.partitions=3"]].concat(),
        "error: option 'sink.partitions': it is an option of topics, and the sink is csv\n",
    );
    fails(
        &[&copy[..], &topic, &["-o", "sink.properties.acks=0"]].concat(),
        "error: option 'sink.properties.acks': it can't be set: a row is safe when every replica in sync has it\n",
    );
    fails(
        &[&copy[..], &["--to", "kafka://h"]].concat(),
        "error: --to kafka://h: it names no topic; write kafka://h:9092/TOPIC\n",
    );
}

#[test]
fn options_of_a_sink_list_those_of_topics() {
    let listed = segue_in(Path::new("."), &["options", "sink"]).stdout;
    for option in ["  sink.format = csv|json\n", "  sink.partitions = number\n", "  sink.properties.* = text\n"] {
        assert!(listed.contains(option), "{listed}");
    }
    let help = segue_in(Path::new("."), &["help", "copy"]).stdout;
    assert!(help.contains("kafka://HOST[:9092]/TOPIC"), "{help}");
}
