//! Brokers that die, stand still or are slow, and come back: reading goes on, and nothing is lost or doubled.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use super::cluster::{Cluster, free_ports};
use super::load::{Follower, Load, ids_of};
use super::proxy::Proxy;
use super::reading::{live, positions, read_to_now};
use super::{bids, topic};
use crate::common::chain_of;
use crate::topic::Topic;

/// Messages a second to each partition: some thousands pass while a broker starts again.
const RATE: i64 = 1_000;

/// The load ends, and everything that was written is read once.
async fn finish(topic: &Topic, load: Load, follower: Follower) {
    let num_partitions = load.num_partitions();
    // Its last messages may have to wait for a broker, and the follower goes on meanwhile.
    let num_rows = tokio::task::spawn_blocking(|| load.finish()).await.unwrap();
    let seen = follower.finish(num_partitions, num_rows).await;
    assert_eq!(positions(&seen.checkpoint.unwrap()), topic.end_offsets());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_broker_that_is_killed_and_comes_back_is_read_on() {
    let mut cluster = Cluster::start(1, &[]).await;
    let topic = Topic::create(&cluster.bootstrap(), "killed", 3).await;
    let load = Load::start(&topic, RATE);
    let follower = Follower::start(&chain_of(live(&topic).build().unwrap()), None).await;
    follower.wait_for_more(1_000).await;
    cluster.kill(1);
    cluster.restart(1);
    follower.wait_for_more(1_000).await;
    finish(&topic, load, follower).await;
}

/// The leader goes, another one is elected, and the first one comes back and is elected again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_new_leader_is_read_on_from_where_the_old_one_was() {
    let mut cluster = Cluster::start(2, &["leader.imbalance.check.interval.seconds=1"]).await;
    let topic = Topic::create_on(&cluster.bootstrap(), "election", &[&[2, 1], &[1, 2], &[2, 1]], &[]).await;
    let load = Load::start(&topic, RATE);
    let follower = Follower::start(&chain_of(live(&topic).build().unwrap()), None).await;
    follower.wait_for_more(1_000).await;
    topic.wait_for_leader(0, 2);
    cluster.kill(2);
    topic.wait_for_leader(0, 1);
    follower.wait_for_more(3_000).await;
    cluster.restart(2);
    topic.wait_for_leader(0, 2);
    follower.wait_for_more(3_000).await;
    finish(&topic, load, follower).await;
}

/// Connections stay, and nothing comes of them for longer than the cluster waits for its brokers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_broker_that_stands_still_now_and_then_is_read_on() {
    let cluster = Cluster::start(1, &[]).await;
    let topic = Topic::create(&cluster.bootstrap(), "still", 3).await;
    let load = Load::start(&topic, RATE);
    let follower = Follower::start(&chain_of(live(&topic).build().unwrap()), None).await;
    for still_ms in [500, 2_000, 5_000] {
        follower.wait_for_more(1_000).await;
        cluster.pause(1);
        thread::sleep(Duration::from_millis(still_ms));
        cluster.resume(1);
        follower.wait_for_more(1_000).await;
    }
    finish(&topic, load, follower).await;
}

/// What comes passes a slow wire, which is cut in the middle of answers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_slow_wire_that_is_cut_now_and_then_is_read_on() {
    const ROWS: i64 = 8_000;
    let proxy = Proxy::start(200_000);
    let cluster = Cluster::start(1, &[&format!("advertised.listeners=BROKER://{}", proxy.address())]).await;
    proxy.connect_to(cluster.bootstrap());
    let topic = Topic::create(&cluster.bootstrap(), "slow", 3).await;
    topic.produce_values((0..3).flat_map(|partition| bids(partition, ids_of(partition, ROWS))));
    let follower = Follower::start(&chain_of(live(&topic).build().unwrap()), None).await;
    for part in 1..=4 {
        follower.wait_for(part * ROWS / 2).await;
        proxy.cut();
    }
    let seen = follower.finish(3, ROWS).await;
    assert_eq!(positions(&seen.checkpoint.unwrap()), [ROWS as u64; 3]);
}

/// Two of three refuse, or take the connection and never say a word; the third one is found well before a lookup
/// gives up, however they are listed.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn one_living_broker_of_three_that_are_listed_is_enough() {
    let topic = topic("listed", 2).await;
    topic.produce_values(bids(0, 0..10).chain(bids(1, 10..20)));
    let refusing: Vec<String> = free_ports(2).into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let listeners: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let silent: Vec<String> = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    for dead in [refusing, silent] {
        for place in 0..3 {
            let mut listed = dead.clone();
            listed.insert(place, topic.bootstrap().to_owned());
            let same = Topic::of(&listed.join(","), topic.name().to_owned(), 2);
            let mut ids = read_to_now(live(&same)).await.ids();
            ids.sort_unstable();
            assert_eq!(ids, (0..20).collect::<Vec<_>>(), "{listed:?}");
        }
    }
}
