//! What a program that wants nothing but bytes would do: librdkafka's fastest call, in a loop.
#![expect(unsafe_code, reason = "the bare loop is what it is")]

use std::ffi::CString;
use std::ptr;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer};
use segue::kafka::KafkaAddress;

use super::PARTITIONS;

/// Takes `rows` messages and counts the bytes of their values.
pub(super) fn count_bytes(address: &KafkaAddress, rows: u64) {
    // As `KafkaSource` sets them with the default memory of 256 MB, for a topic that is read to its end.
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address.bootstrap_servers())
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("queued.min.messages", "223696")
        .set("queued.max.messages.kbytes", "32768")
        .set("fetch.max.bytes", "8388608")
        .set("fetch.queue.backoff.ms", "10")
        .set("fetch.wait.max.ms", "50")
        .create()
        .unwrap();
    let client = consumer.client().native_ptr();
    let name = CString::new(address.topics[0].as_str()).unwrap();
    let (mut seen, mut bytes) = (0u64, 0usize);
    let mut buffer = vec![ptr::null_mut(); 10_000];
    // SAFETY: client, topic and queue live until the end of the block, and every message is destroyed once.
    unsafe {
        let queue = rd::rd_kafka_queue_new(client);
        let topic = rd::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut());
        for partition in 0..i32::from(PARTITIONS) {
            rd::rd_kafka_consume_start_queue(topic, partition, 0, queue);
        }
        while seen < rows {
            let timeout = Duration::from_millis(100).as_millis() as i32;
            // Not more than are left: it waits until it has all that it asks for.
            let max = buffer.len().min((rows - seen) as usize);
            let count = rd::rd_kafka_consume_batch_queue(queue, timeout, buffer.as_mut_ptr(), max);
            for &message in &buffer[..count as usize] {
                if (*message).err == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    seen += 1;
                    bytes += (*message).len;
                }
                rd::rd_kafka_message_destroy(message);
            }
        }
        rd::rd_kafka_topic_destroy(topic);
        rd::rd_kafka_queue_destroy(queue);
    }
    assert!(bytes > 0);
}
