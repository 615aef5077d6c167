//! A log that lost its tail: a leader dies, one that never had its last messages takes over, and others come there.

use super::cluster::Cluster;
use super::program::Follower;
use super::reading::{live, positions};
use super::{BIDS, bids};
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
    let topic = Topic::create_on(&cluster.bootstrap(), "tail", &[&[2, 3]], &settings).await;
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
    let fault = format!("{}: the log was cut before offset {}, up to which it was read", topic.split(0), SHARED + LOST);
    assert!(error.contains(&fault), "{error}");
}

/// A reader that stands still meanwhile finds a log that has every offset that it wants, and so does one that is
/// started again: only the leader's epoch tells that what they have read isn't there any more.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_log_that_was_truncated_is_noticed_while_it_is_read_and_at_a_restart() {
    let (mut cluster, topic) = divided().await;
    let chain = chain_of(live(&topic).build().unwrap());
    let stored = read(&chain, None, limit((SHARED + LOST) as u64)).await.whole().checkpoint;
    assert_eq!(positions(&stored), [(SHARED + LOST) as u64]);
    let folder = tempfile::tempdir().unwrap();
    let address = topic.address();
    let follower = Follower::start(folder.path(), &["read", &address, "--format", "csv", "--schema", BIDS]);
    assert_eq!(follower.next_ids((SHARED + LOST) as usize), (0..SHARED + LOST).collect::<Vec<_>>());
    follower.signal("STOP");
    replace_tail(&mut cluster, &topic);
    follower.signal("CONT");
    let (status, rest, error) = follower.fail();
    assert_eq!((status, rest.as_str()), (1, ""), "{error}");
    assert_truncated(&topic, &error);

    let error = match chain.resolve(Some(stored)).await {
        Err(error) => error,
        Ok(resumed) => {
            let read = read(&chain, Some(resumed), limit(1)).await;
            assert_eq!(read.ids(), [0; 0], "what was never written behind those that are known");
            read.error.unwrap()
        }
    };
    assert_truncated(&topic, &told(&error));
}
