//! What librdkafka says of its queues: the few numbers of its statistics that somebody looks at.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

use super::partition::{Partition, PartitionState};
use crate::progress::{FetchQueue, Fetching, SplitFetch};

/// Statistics of one client. All else of the text is passed over without being kept.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Statistics {
    topics: HashMap<String, HashMap<i32, PartitionStatistics>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
struct PartitionStatistics {
    partition: i32,
    fetchq_cnt: u64,
    fetchq_size: u64,
    /// The next offset to fetch; negative if there is none yet.
    next_offset: i64,
    /// The end of the log for this reader, as of the last fetch: the last stable offset, or the high watermark if what
    /// isn't committed is read too. Negative before the first fetch.
    ls_offset: i64,
}

impl Statistics {
    pub(super) fn parse(json: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Client<'a> {
            #[serde(borrow)]
            topics: HashMap<Cow<'a, str>, Topic<'a>>,
        }
        #[derive(Deserialize)]
        struct Topic<'a> {
            #[serde(borrow)]
            partitions: HashMap<Cow<'a, str>, PartitionStatistics>,
        }
        let client: Client<'_> = serde_json::from_slice(json)?;
        let topics = client.topics.into_iter().map(|(name, topic)| {
            let partitions = topic.partitions.into_values().map(|partition| (partition.partition, partition));
            (name.into_owned(), partitions.collect())
        });
        Ok(Self { topics: topics.collect() })
    }

    /// What is fetched of these partitions and not taken yet.
    pub(super) fn fetching(&self, partitions: &[Partition], states: &[PartitionState]) -> Fetching {
        let mut fetching = Fetching { queue: Some(FetchQueue::default()), ..Fetching::default() };
        let queue = fetching.queue.get_or_insert_default();
        for (partition, state) in partitions.iter().zip(states) {
            let told = self.topics.get(&*partition.topic_name).and_then(|topic| topic.get(&partition.id));
            let Some(told) = told.filter(|_| !state.state.done) else { continue };
            // Partitions are forwarded into one queue, and librdkafka tells its length at each of them: the whole is
            // that, not the sum. What of it is a partition's own is told by how far its fetches are ahead.
            queue.messages = queue.messages.max(told.fetchq_cnt);
            queue.bytes = queue.bytes.max(told.fetchq_size);
            let next = u64::try_from(told.next_offset).unwrap_or(0);
            let fetch = SplitFetch {
                messages: next.saturating_sub(state.state.position),
                end: u64::try_from(told.ls_offset).ok(),
            };
            fetching.splits.insert(partition.split.clone(), fetch);
        }
        fetching
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::SplitState;

    fn partition(id: i32, position: u64) -> (Partition, PartitionState) {
        let split = format!("bids/{id}").as_str().into();
        let partition = Partition { split, topic: 0, topic_name: "bids".into(), id };
        let state = PartitionState::new(SplitState::new(partition.split.clone(), position), false);
        (partition, state)
    }

    fn told(id: i32, next: i64, end: i64) -> String {
        format!(
            r#""{id}":{{ "partition":{id}, "leader":1, "fetchq_cnt":7, "fetchq_size":700, "fetch_state":"active",
            "next_offset":{next}, "hi_offset":99, "ls_offset":{end}, "msgs": 3}} "#
        )
    }

    #[test]
    fn one_queue_of_all_partitions_is_counted_once_and_each_is_as_far_ahead_as_its_fetches() {
        let partitions = [told(-1, -1001, -1001), told(0, 15, 40), told(1, -1001, -1001), told(2, 5, 5)].join(",");
        let json = format!(
            r#"{{ "name": "x", "brokers":{{ "a":{{ "rtt": {{ "min":1.5 }} }} }}, "topics":{{
            "bids":{{ "topic":"bids", "age":3, "partitions":{{ {partitions} }} }}, "asks":{{ "partitions":{{}} }} }} }}"#
        );
        let statistics = Statistics::parse(json.as_bytes()).unwrap();
        let (partitions, mut states): (Vec<_>, Vec<_>) =
            [partition(0, 10), partition(1, 3), partition(2, 6), partition(3, 0)].into_iter().unzip();
        let fetching = statistics.fetching(&partitions, &states);
        assert_eq!(fetching.queue, Some(FetchQueue { messages: 7, bytes: 700 }));
        let of = |messages, end| SplitFetch { messages, end };
        let splits: Vec<_> = fetching.splits.iter().map(|(split, fetch)| (split.as_str(), *fetch)).collect();
        assert_eq!(splits, [("bids/0", of(5, Some(40))), ("bids/1", of(0, None)), ("bids/2", of(0, Some(5)))]);

        states.iter_mut().for_each(|state| state.state.done = true);
        let fetching = statistics.fetching(&partitions, &states);
        assert_eq!(fetching, Fetching { queue: Some(FetchQueue::default()), ..Fetching::default() });
    }

    #[test]
    fn what_is_no_statistics_is_refused() {
        assert!(Statistics::parse(b"{}").is_err());
        assert!(Statistics::parse(br#"{"topics":{"a":{"partitions":{"0":{"partition":0}}}}}"#).is_err());
    }
}
