//! Topics that come, go and are made again, while they are read and between two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use segue::checkpoint::{Checkpoint, SplitState, Splits};
use segue::error::Error;
use segue::format::Format;
use segue::hybrid::{HybridStream, ReadOptions};
use segue::kafka::{KafkaSource, KafkaSourceBuilder, OnDataLoss, OnTopicDeleted, StopOffsets};

use super::{BIDS, bids, bootstrap, topic};
use crate::common::{Read, chain_of, limit, read, read_all, schema_of, told};
use crate::topic::{PATIENCE, Topic};

/// Often, so that no test waits for it.
const DISCOVERY: Duration = Duration::from_millis(200);

fn of_topic(topic: &Topic) -> KafkaSourceBuilder {
    described(KafkaSource::builder(&topic.address().parse().unwrap()))
}

/// Every topic whose name begins as this one's does.
fn of_pattern(topic: &Topic) -> KafkaSourceBuilder {
    let address = format!("kafka://{}", topic.bootstrap()).parse().unwrap();
    described(KafkaSource::builder(&address).topic_pattern(format!("{}.*", topic.name())))
}

fn described(builder: KafkaSourceBuilder) -> KafkaSourceBuilder {
    builder.name("live").format(Format::Csv).schema(schema_of(BIDS)).discovery_interval(DISCOVERY)
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap()).create().unwrap()
}

async fn delete(topic: &Topic) {
    for deleted in admin().delete_topics(&[topic.name()], &AdminOptions::new()).await.unwrap() {
        deleted.unwrap();
    }
}

/// Deletes a topic and makes another one of its name. The broker takes its time to forget the first.
pub(super) async fn recreate(topic: &Topic, num_partitions: i32) -> Topic {
    delete(topic).await;
    let began = Instant::now();
    loop {
        match Topic::try_create(&bootstrap(), topic.name(), num_partitions).await {
            Some(topic) => return topic,
            None => assert!(began.elapsed() < PATIENCE, "the topic is still there"),
        }
    }
}

async fn open(source: KafkaSourceBuilder) -> HybridStream {
    let chain = chain_of(source.build().unwrap());
    chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap()
}

async fn next(stream: &mut HybridStream) -> Option<segue::error::Result<Read>> {
    let item = tokio::time::timeout(PATIENCE, stream.next()).await.expect("an item comes")?;
    let checkpoint = stream.checkpoint().clone();
    Some(item.map(|item| Read { batches: vec![item.item.into_batch()], checkpoint, error: None }))
}

/// Reads on until `num_rows` rows came.
async fn take(stream: &mut HybridStream, num_rows: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    while ids.len() < num_rows {
        ids.extend(next(stream).await.expect("more comes").unwrap().ids());
    }
    ids.sort_unstable();
    ids
}

/// Reads on until the end or an error, and says which.
async fn last(stream: &mut HybridStream) -> Option<Error> {
    loop {
        match next(stream).await {
            None => return None,
            Some(Ok(_)) => {}
            Some(Err(error)) => return Some(error),
        }
    }
}

fn splits(checkpoint: &Checkpoint) -> BTreeMap<String, SplitState> {
    let Splits::SideBySide(splits) = &checkpoint.sources[0].splits else { panic!("{checkpoint:?}") };
    splits.iter().map(|(id, split)| (id.to_string(), split.clone())).collect()
}

/// CASE 18: what is made later is read from its beginning, whatever the start was.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn topics_and_partitions_that_come_later_are_read_from_their_beginning() {
    let first = topic("later", 1).await;
    first.produce_values(bids(0, 0..3));
    let mut stream = open(of_pattern(&first).start(segue::kafka::StartOffsets::Latest)).await;
    first.produce_values(bids(0, 3..5));
    assert_eq!(take(&mut stream, 2).await, [3, 4]);

    let second = Topic::try_create(&bootstrap(), &format!("{}-2", first.name()), 2).await.unwrap();
    second.produce_values(bids(0, 10..13).chain(bids(1, 20..23)));
    assert_eq!(take(&mut stream, 6).await, [10, 11, 12, 20, 21, 22]);

    admin().create_partitions(&[NewPartitions::new(first.name(), 2)], &AdminOptions::new()).await.unwrap();
    let more = Topic::of(&bootstrap(), first.name().to_owned(), 2);
    more.wait_for_leaders();
    more.produce_values(bids(1, 30..33));
    assert_eq!(take(&mut stream, 3).await, [30, 31, 32]);

    let known = splits(stream.checkpoint());
    let expected: BTreeSet<String> = [first.split(0), first.split(1), second.split(0), second.split(1)].into();
    assert_eq!(known.keys().cloned().collect::<BTreeSet<_>>(), expected);
    // And a restart goes on from there, with what came between the two runs.
    let checkpoint = stream.checkpoint().clone();
    drop(stream);
    let third = Topic::try_create(&bootstrap(), &format!("{}-3", first.name()), 1).await.unwrap();
    third.produce_values(bids(0, 40..43));
    second.produce_values(bids(1, 23..25));
    let again = chain_of(of_pattern(&first).stop(StopOffsets::Latest).build().unwrap());
    let mut ids = read(&again, Some(checkpoint), ReadOptions::default()).await.whole().ids();
    ids.sort_unstable();
    assert_eq!(ids, [23, 24, 40, 41, 42]);
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_pattern_that_takes_no_topic_is_an_error() {
    let address = format!("kafka://{}", bootstrap()).parse().unwrap();
    let none = described(KafkaSource::builder(&address).topic_pattern("no-such-[a-z]+")).build().unwrap();
    let error = told(&chain_of(none).resolve(None).await.unwrap_err());
    assert!(error.contains("no topic matches no-such-[a-z]+; there are "), "{error}");
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_topic_that_is_deleted_while_it_is_read_is_an_error_or_finished() {
    for on_deleted in [OnTopicDeleted::Fail, OnTopicDeleted::Finish] {
        let first = topic("deleted", 2).await;
        let second = Topic::try_create(&bootstrap(), &format!("{}-2", first.name()), 1).await.unwrap();
        first.produce_values(bids(0, 0..3));
        second.produce_values(bids(0, 3..6));
        let mut stream = open(of_pattern(&first).on_topic_deleted(on_deleted)).await;
        assert_eq!(take(&mut stream, 6).await, [0, 1, 2, 3, 4, 5]);
        delete(&second).await;
        match on_deleted {
            OnTopicDeleted::Fail => {
                let error = told(&last(&mut stream).await.unwrap());
                let gone = format!("topic {} is gone: it was deleted while it was read", second.name());
                assert!(error.starts_with(&gone), "{error}");
            }
            OnTopicDeleted::Finish => {
                while !splits(stream.checkpoint())[&second.split(0)].done {
                    next(&mut stream).await.expect("the other goes on").unwrap();
                }
                first.produce_values(bids(1, 7..9));
                assert_eq!(take(&mut stream, 2).await, [7, 8]);
                delete(&first).await;
                assert!(last(&mut stream).await.is_none(), "nothing is left to be read");
                assert!(stream.checkpoint().is_done());
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_topic_that_was_deleted_between_two_runs_is_an_error_or_finished() {
    let first = topic("gone", 1).await;
    first.produce_values(bids(0, 0..5));
    let two = read(&chain_of(of_topic(&first).build().unwrap()), None, limit(2)).await.whole();
    delete(&first).await;
    let again = chain_of(of_topic(&first).build().unwrap());
    let began = Instant::now();
    // The broker says that it is deleted before it has forgotten it.
    let error = loop {
        match again.resolve(Some(two.checkpoint.clone())).await {
            Err(error) => break told(&error),
            Ok(_) => assert!(began.elapsed() < PATIENCE, "the topic is still there"),
        }
    };
    assert!(error.contains(&format!("there is no topic {}", first.name())), "{error}");
    let finishes = chain_of(of_topic(&first).on_topic_deleted(OnTopicDeleted::Finish).build().unwrap());
    let rest = read(&finishes, Some(two.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(rest.num_rows(), 0);
    assert!(rest.checkpoint.is_done());
    // Three were never read, of which nobody is left to wait for.
    let split = &splits(&rest.checkpoint)[&first.split(0)];
    assert_eq!((split.lost(), split.lag()), (3, Some(0)));

    // One of that name that is made later is a new topic.
    let again = Topic::try_create(&bootstrap(), first.name(), 1).await.unwrap();
    again.produce_values(bids(0, 50..53));
    let source = of_topic(&first).on_topic_deleted(OnTopicDeleted::Finish).stop(StopOffsets::Latest);
    let new = read(&chain_of(source.build().unwrap()), Some(rest.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(new.ids(), [50, 51, 52]);
}

/// Its positions would be taken for those of the topic before, however many messages it has.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_topic_that_was_made_again_is_an_error_at_the_next_start_and_while_it_is_read() {
    let first = topic("again", 1).await;
    first.produce_values(bids(0, 0..5));
    let mut stream = open(of_topic(&first)).await;
    assert_eq!(take(&mut stream, 5).await, [0, 1, 2, 3, 4]);
    let checkpoint = stream.checkpoint().clone();
    let second = recreate(&first, 1).await;
    second.produce_values(bids(0, 100..120));
    let error = last(&mut stream).await.unwrap();
    // Never by its offsets, which mean nothing in another topic.
    let is_told = match &error {
        Error::TopicRecreated { split, stored, now } => *split == first.split(0) && stored != now,
        // It was looked at while there was none.
        Error::NotFound { what } => what.contains("it was deleted while it was read"),
        _ => false,
    };
    assert!(is_told, "{error}");

    let again = chain_of(of_topic(&first).build().unwrap());
    let error = told(&again.resolve(Some(checkpoint)).await.unwrap_err());
    let start = format!("{}: the topic was deleted and made again: its id was ", first.split(0));
    assert!(error.starts_with(&start), "{error}");
}

/// It comes to the same offsets, and librdkafka reads on in it without a word.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_topic_that_is_made_again_under_a_bounded_read_never_ends_it_well() {
    const ROWS: i64 = 60_000;
    let first = topic("under", 1).await;
    first.produce_values(bids(0, 0..ROWS));
    let source = of_topic(&first).stop(StopOffsets::Latest);
    // Far less than there is can be fetched before the reader goes on.
    let small = source.property("queued.min.messages", "1").property("fetch.message.max.bytes", "20000");
    let chain = chain_of(small.build().unwrap());
    let options = ReadOptions { memory_bytes: 16 << 20, batch_rows: 100, ..ReadOptions::default() };
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), options).unwrap();
    take(&mut stream, 100).await;
    let second = recreate(&first, 1).await;
    second.produce_values(bids(0, ROWS..3 * ROWS));
    let error = last(&mut stream).await.expect("it is another topic");
    assert!(matches!(error, Error::TopicRecreated { .. } | Error::NotFound { .. }), "{error}");
    assert!(!stream.checkpoint().is_done());
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn what_is_lost_between_two_runs_is_passed_over_if_that_was_asked_for_and_counted() {
    let topic = topic("lost", 1).await;
    topic.produce_values(bids(0, 0..10));
    let three = read(&chain_of(of_topic(&topic).build().unwrap()), None, limit(3)).await.whole();
    topic.delete_before(&[(0, 6)]).await;
    for (on_loss, ids, lost) in [(OnDataLoss::Earliest, vec![6, 7, 8, 9], 3), (OnDataLoss::Latest, vec![], 7)] {
        let source = of_topic(&topic).on_data_loss(on_loss).stop(StopOffsets::Latest).build().unwrap();
        let rest = read(&chain_of(source), Some(three.checkpoint.clone()), ReadOptions::default()).await.whole();
        assert_eq!((rest.ids(), splits(&rest.checkpoint)[&topic.split(0)].lost()), (ids, lost), "{on_loss:?}");
    }
}

/// The reader is slow, and retention overtakes it.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn what_is_lost_while_it_is_read_is_passed_over_if_that_was_asked_for_and_counted() {
    const ROWS: i64 = 60_000;
    const VALUE: usize = 2000;
    let long = |id: i64| (0, format!("{id},1.5,2023-08-15 14:37:35.000{}", " ".repeat(VALUE)));
    for on_loss in [OnDataLoss::Fail, OnDataLoss::Earliest, OnDataLoss::Latest] {
        let topic = topic("overtaken", 1).await;
        topic.produce_values((0..ROWS).map(|id| (0, long(id).1)));
        let source = of_topic(&topic).on_data_loss(on_loss).format(Format::Raw).schema(schema_of("value STRING"));
        let chain = chain_of(source.stop(StopOffsets::Latest).build().unwrap());
        let options = ReadOptions { memory_bytes: 16 << 20, ..ReadOptions::default() };
        let mut stream = chain.open(chain.resolve(None).await.unwrap(), options).unwrap();
        // The client holds far less than there is, and nobody takes any of it.
        let first = next(&mut stream).await.unwrap().unwrap();
        topic.delete_before(&[(0, ROWS - 10)]).await;
        let (mut num_rows, mut error) = (first.num_rows() as u64, None);
        while let Some(item) = next(&mut stream).await {
            match item {
                Ok(read) => num_rows += read.num_rows() as u64,
                Err(e) => error = Some(e),
            }
        }
        let split = &splits(stream.checkpoint())[&topic.split(0)];
        match on_loss {
            OnDataLoss::Fail => match error {
                Some(Error::OffsetOutOfRange { wanted, available, .. }) => {
                    assert_eq!((wanted, available), (split.position, ROWS as u64 - 10..ROWS as u64));
                    assert_eq!(num_rows, wanted);
                }
                other => panic!("{other:?}"),
            },
            OnDataLoss::Earliest | OnDataLoss::Latest => {
                assert!(error.is_none(), "{error:?}");
                assert!(split.done && split.lost() > 0, "{split:?}");
                assert_eq!(num_rows + split.lost(), ROWS as u64, "{on_loss:?}");
            }
        }
    }
}

/// The checkpoint says under which leader and of which topic its positions are.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_position_has_its_leader_epoch_and_topic_id_beside_it() {
    let topic = topic("epochs", 1).await;
    topic.produce_values(bids(0, 0..5));
    let all = read_all(&chain_of(of_topic(&topic).stop(StopOffsets::Latest).build().unwrap())).await;
    let split = &splits(&all.checkpoint)[&topic.split(0)];
    assert_eq!(split.identity.other["leader_epoch"], 0);
    assert_eq!(split.identity.other["topic_id"].as_str().unwrap().len(), 22);
    topic.produce_values(bids(0, 5..8));
    let chain = chain_of(of_topic(&topic).stop(StopOffsets::Latest).build().unwrap());
    assert_eq!(read(&chain, Some(all.checkpoint), ReadOptions::default()).await.whole().ids(), [5, 6, 7]);
}
