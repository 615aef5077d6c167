//! Topics that may not be read: refused in seconds, before anything is delivered.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::cluster::Cluster;
use super::load::{Follower, Load};
use super::reading::live;
use super::{BIDS, bids, history};
use crate::cli::segue;
use crate::common::{chain_of, told};
use crate::topic::Topic;

/// A broker that lets everybody do everything with what no rule names.
async fn cluster() -> Cluster {
    let authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    Cluster::start(1, &[authorizer, "allow.everyone.if.no.acl.found=true"]).await
}

/// What Kafka's protocol calls them.
#[derive(Clone, Copy)]
enum Permission {
    Deny = 2,
    Allow = 3,
}

#[derive(Clone, Copy)]
enum Operation {
    All = 2,
    Write = 4,
}

/// Makes a rule for everybody who doesn't log in, which here is everybody. rdkafka has no call for it: this is
/// CreateAcls, request 30 in its version 1.
fn make_rule(cluster: &Cluster, topic: &str, permission: Permission, operation: Operation) {
    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u16).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    let (topics, literal) = (2, 3);
    // Request and version, correlation id, no client id, and one rule.
    let mut request = vec![0, 30, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 1, topics];
    text(&mut request, topic);
    request.push(literal);
    text(&mut request, "User:ANONYMOUS");
    text(&mut request, "*");
    request.extend([operation as u8, permission as u8]);
    let mut broker = TcpStream::connect(cluster.address(1)).unwrap();
    broker.write_all(&(request.len() as u32).to_be_bytes()).unwrap();
    broker.write_all(&request).unwrap();
    // Length, correlation id, throttling, one result: its status.
    let mut answer = [0; 18];
    broker.read_exact(&mut answer).unwrap();
    assert_eq!(answer[4..18], [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], "the rule is made");
}

/// A topic whose name may not be known, and one that may be looked at and not read: history isn't begun.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_topic_that_may_not_be_read_is_refused_before_history_is_read() {
    let cluster = cluster().await;
    let folder = history(10);
    for (permission, operation) in [(Permission::Allow, Operation::Write), (Permission::Deny, Operation::All)] {
        let topic = Topic::create(&cluster.bootstrap(), "forbidden", 2).await;
        topic.produce_values(bids(0, 11..=20));
        make_rule(&cluster, topic.name(), permission, operation);
        let address = topic.address();
        for sources in [&["bids", &*address][..], &["--format", "csv", &address]] {
            let options = ["--schema", BIDS, "--output", "csv", "--no-header", "--quiet"];
            let ran = segue(&folder, &[&["read"], sources, &options].concat());
            assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
            assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("authoriz"), "{}", ran.stderr);
            assert!(ran.stderr.contains(topic.name()), "{}", ran.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_right_to_read_that_is_taken_away_is_an_error_and_no_endless_wait() {
    let cluster = cluster().await;
    let topic = Topic::create(&cluster.bootstrap(), "revoked", 2).await;
    let load = Load::start(&topic, 500);
    let follower = Follower::start(&chain_of(live(&topic).build().unwrap()), None).await;
    follower.wait_for(1_000).await;
    // From now on writing is all that is allowed.
    make_rule(&cluster, topic.name(), Permission::Allow, Operation::Write);
    let (seen, error) = follower.fail().await;
    let (num_partitions, num_rows) = (load.num_partitions(), load.finish());
    seen.assert_begun(num_partitions, num_rows);
    let error = told(&error);
    assert!(error.starts_with(topic.name()) && error.contains("authoriz"), "{error}");
    assert_eq!(topic.end_offsets(), [num_rows as u64; 2]);
}
