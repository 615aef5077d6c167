//! A log that lost its tail: a leader dies, one that never had its last messages takes over, and others come there.

use segue::hybrid::ReadOptions;

use super::bids;
use super::cluster::Cluster;
use super::load::Follower;
use super::reading::{live, positions};
use crate::common::{chain_of, limit, read, told};
use crate::topic::Topic;

/// Offsets that both brokers have, those that only the first leader ever had, and those that the second one wrote.
const SHARED: i64 = 50;
const LOST: i64 = 30;
const OTHERS: i64 = 100;

/// A topic on nodes 2 and 3, of which node 3 is down and lacks the last messages that node 2 has.
async fn divided() -> (Cluster, Topic) {
    let mut cluster = Cluster::start(3, &[]).await;
    let settings = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    let topic = Topic::create_on(&cluster.bootstrap(), "truncated", &[&[2, 3]], &settings).await;
    topic.produce_values(bids(0, 0..SHARED));
    cluster.kill(3);
    // Written once node 3 isn't waited for any more.
    topic.produce_values(bids(0, SHARED..SHARED + LOST));
    (cluster, topic)
}

/// Node 2 is gone, and node 3 goes on with other messages at the offsets of those that it never had.
fn replace_tail(cluster: &mut Cluster, topic: &Topic) {
    cluster.kill(2);
    cluster.restart(3);
    topic.wait_for_leader(0, 3);
    assert_eq!(topic.end_offsets(), [SHARED as u64]);
    topic.produce_values(bids(0, 1_000..1_000 + OTHERS));
    assert_eq!(topic.end_offsets(), [(SHARED + OTHERS) as u64]);
}

/// The error names the partition and where it was.
#[track_caller]
fn assert_truncated(topic: &Topic, error: &str) {
    let (split, wanted) = (topic.split(0), (SHARED + LOST).to_string());
    assert!(error.contains(&split) && error.contains(&wanted) && error.contains("truncated"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_log_that_was_truncated_while_it_is_read_is_noticed() {
    let (mut cluster, topic) = divided().await;
    let follower = Follower::start(&chain_of(live(&topic).build().unwrap()), None).await;
    follower.wait_for(SHARED + LOST).await;
    replace_tail(&mut cluster, &topic);
    let (seen, error) = follower.fail().await;
    assert_eq!(seen.ids[&0], (0..SHARED + LOST).collect::<Vec<_>>());
    assert_truncated(&topic, &told(&error));
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_log_that_was_truncated_between_two_runs_is_noticed() {
    let (mut cluster, topic) = divided().await;
    let chain = chain_of(live(&topic).build().unwrap());
    let stored = read(&chain, None, limit((SHARED + LOST) as u64)).await.whole().checkpoint;
    assert_eq!(positions(&stored), [(SHARED + LOST) as u64]);
    replace_tail(&mut cluster, &topic);
    let error = match chain.resolve(Some(stored)).await {
        Err(error) => error,
        Ok(resumed) => {
            let read = read(&chain, Some(resumed), ReadOptions { limit: Some(1), ..ReadOptions::default() }).await;
            assert_eq!(read.ids(), [0; 0], "what was never written behind those that are known");
            read.error.unwrap()
        }
    };
    assert_truncated(&topic, &told(&error));
}
