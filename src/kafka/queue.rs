//! Takes messages in batches from a librdkafka queue of our own: the one place here that is unsafe.
//!
//! rdkafka's safe `poll` makes an event and a reference count for every message; taking a whole batch by
//! `rd_kafka_consume_batch_queue` is about twice as fast. For whoever changes this:
//!
//! * Partitions are started by `rd_kafka_consume_start_queue`, on a client without `group.id`. On the client's
//!   main queue the batch call would swallow errors, statistics and token refreshes; those are served by
//!   `BaseConsumer::poll` beside it.
//! * The batch call moves librdkafka's own position one past an end-of-partition event. So nothing here asks for
//!   that position, pauses, resumes, seeks or commits "stored" offsets: messages would be lost. Back-pressure is
//!   not taking messages; our position is a message's offset + 1, or the offset of the event.
//! * A message's bytes live until `rd_kafka_message_destroy`; a [`Message`] therefore only lives within the call
//!   of the visitor, and whoever wants its bytes copies them.
#![expect(unsafe_code, reason = "rdkafka has no safe call for batches")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::slice;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::client::Listener;

/// How many messages ahead of its visit a value is fetched into the cache: another core has written it.
const AHEAD: usize = 8;

/// # Safety
/// None: a prefetch reads nothing, whatever the address.
#[inline]
unsafe fn prefetch(address: *const c_void) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as said.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A queue of messages of chosen partitions.
pub(super) struct BatchQueue {
    queue: *mut rd::rd_kafka_queue_t,
    topics: Vec<*mut rd::rd_kafka_topic_t>,
    names: Vec<CString>,
    /// Where the batch call puts its messages; all of them are destroyed before it is called again.
    buffer: Vec<*mut rd::rd_kafka_message_t>,
    // Dropped last: queue and topics belong to it.
    consumer: BaseConsumer<Listener>,
}

// SAFETY: librdkafka's handles may be used from any thread ("completely thread-safe", its INTRODUCTION.md), and
// nothing here is shared: every method that uses a pointer takes `&mut self`, or reads what librdkafka locks.
unsafe impl Send for BatchQueue {}

/// What a queue gives.
pub(super) enum Event<'a> {
    Message(Message<'a>),
    /// Everything before `offset`, the next one to be written or to become stable, has been taken.
    End {
        topic: usize,
        partition: i32,
        offset: u64,
    },
    /// Something went wrong with a partition.
    Failed {
        topic: usize,
        partition: i32,
        code: RDKafkaErrorCode,
        reason: String,
    },
}

/// A message, borrowed from librdkafka for the time of a visit.
pub(super) struct Message<'a> {
    raw: &'a rd::rd_kafka_message_t,
    pub(super) topic: usize,
}

impl BatchQueue {
    pub(super) fn new(consumer: BaseConsumer<Listener>) -> Self {
        // SAFETY: the client lives as long as `consumer`, which this struct holds.
        let queue = unsafe { rd::rd_kafka_queue_new(consumer.client().native_ptr()) };
        Self { queue, topics: Vec::new(), names: Vec::new(), buffer: Vec::new(), consumer }
    }

    /// The index of a topic, which is made known to the queue if it isn't yet.
    pub(super) fn topic(&mut self, name: &str) -> Result<usize, KafkaError> {
        if let Some(index) = self.names.iter().position(|known| known.as_bytes() == name.as_bytes()) {
            return Ok(index);
        }
        let name = CString::new(name).map_err(KafkaError::Nul)?;
        let client = self.consumer.client().native_ptr();
        // SAFETY: the client is alive; the name is a C string, and no configuration is the default one.
        let topic = unsafe { rd::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
        if topic.is_null() {
            return Err(last_error());
        }
        self.topics.push(topic);
        self.names.push(name);
        Ok(self.topics.len() - 1)
    }

    pub(super) fn num_topics(&self) -> u32 {
        self.topics.len() as u32
    }

    pub(super) fn consumer(&self) -> &BaseConsumer<Listener> {
        &self.consumer
    }

    /// Begins to fetch a partition at `offset`.
    pub(super) fn start(&mut self, topic: usize, partition: i32, offset: u64) -> Result<(), KafkaError> {
        let Some(&handle) = self.topics.get(topic) else { return Ok(()) };
        // SAFETY: topic and queue are of the same client and alive.
        let status = unsafe { rd::rd_kafka_consume_start_queue(handle, partition, offset as i64, self.queue) };
        if status == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Fetches a partition that was started from `position` on, once the leader has said that its log still has what
    /// was read up to there under `leader_epoch`; else it is told as an offset that is gone. Whatever was fetched
    /// before is discarded. Says whether the client knows the partition already.
    ///
    /// Only for a position that nothing was taken behind: see above.
    pub(super) fn validate(
        &mut self,
        topic: usize,
        partition: i32,
        position: u64,
        leader_epoch: i32,
    ) -> Result<bool, KafkaError> {
        let Some(name) = self.names.get(topic) else { return Ok(false) };
        // SAFETY: the list is made, filled and given back here; the client is alive. With a timeout of zero nothing is
        // waited for, and each element's error says whether the client took it up.
        unsafe {
            let list = rd::rd_kafka_topic_partition_list_new(1);
            let element = rd::rd_kafka_topic_partition_list_add(list, name.as_ptr(), partition);
            (*element).offset = position as i64;
            rd::rd_kafka_topic_partition_set_leader_epoch(element, leader_epoch);
            let error = rd::rd_kafka_seek_partitions(self.consumer.client().native_ptr(), list, 0);
            let (overall, status) = (rd::rd_kafka_error_code(error), (*element).err);
            rd::rd_kafka_error_destroy(error);
            rd::rd_kafka_topic_partition_list_destroy(list);
            match (overall, status) {
                (
                    rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
                    rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__IN_PROGRESS,
                ) => Ok(true),
                (
                    rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
                    rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
                ) => Ok(false),
                (rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR, code) | (code, _) => {
                    Err(KafkaError::Seek(RDKafkaErrorCode::from(code).to_string()))
                }
            }
        }
    }

    /// Ends fetching a partition; what is queued of it is discarded.
    pub(super) fn stop(&mut self, topic: usize, partition: i32) -> Result<(), KafkaError> {
        let Some(&handle) = self.topics.get(topic) else { return Ok(()) };
        // SAFETY: the topic is alive.
        let status = unsafe { rd::rd_kafka_consume_stop(handle, partition) };
        if status == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Waits until `max` messages and events are there or `timeout` has passed, and shows each to `visit`;
    /// returns how many there were. With a timeout of zero it takes what is there.
    pub(super) fn take(&mut self, max: usize, timeout: Duration, mut visit: impl FnMut(Event<'_>)) -> usize {
        self.buffer.clear();
        self.buffer.reserve(max);
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the buffer has room for `max` pointers, and the queue is alive. The call writes the first
        // `count` of them, each a message that is ours to destroy.
        let count = unsafe { rd::rd_kafka_consume_batch_queue(self.queue, millis, self.buffer.as_mut_ptr(), max) };
        // It is negative only for a queue that isn't there.
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: so many were written.
        unsafe { self.buffer.set_len(count) };
        for index in 0..count {
            if let Some(&ahead) = self.buffer.get(index + AHEAD) {
                // SAFETY: it isn't destroyed yet.
                unsafe { prefetch((*ahead).payload) };
            }
            // Destroyed also if the visitor panics.
            let message = OwnedMessage(self.buffer[index]);
            // SAFETY: the pointer is valid until `message` is dropped, at the end of this turn.
            let raw = unsafe { &*message.0 };
            if let Some(event) = self.event(raw) {
                visit(event);
            }
        }
        self.buffer.clear();
        count
    }

    fn event<'a>(&self, raw: &'a rd::rd_kafka_message_t) -> Option<Event<'a>> {
        use rd::rd_kafka_resp_err_t::{RD_KAFKA_RESP_ERR__PARTITION_EOF, RD_KAFKA_RESP_ERR_NO_ERROR};
        let topic = self.topic_of(raw)?;
        let partition = raw.partition;
        Some(match raw.err {
            RD_KAFKA_RESP_ERR_NO_ERROR => Event::Message(Message { raw, topic }),
            RD_KAFKA_RESP_ERR__PARTITION_EOF => {
                Event::End { topic, partition, offset: u64::try_from(raw.offset).ok()? }
            }
            code => {
                // SAFETY: the text is a C string that belongs to the message, or to librdkafka for ever.
                let reason = unsafe { text(rd::rd_kafka_message_errstr(raw)) };
                Event::Failed { topic, partition, code: code.into(), reason }
            }
        })
    }

    /// The index of a message's topic. Its handle mostly is ours; if librdkafka has another one, the name tells.
    fn topic_of(&self, raw: &rd::rd_kafka_message_t) -> Option<usize> {
        if raw.rkt.is_null() {
            return None;
        }
        self.topics.iter().position(|handle| *handle == raw.rkt).or_else(|| {
            // SAFETY: a message's topic lives as long as the message, and its name as long as the topic.
            let name = unsafe { CStr::from_ptr(rd::rd_kafka_topic_name(raw.rkt)) };
            self.names.iter().position(|known| known.as_c_str() == name)
        })
    }

    /// The partition's high watermark as of the last fetch; `None` before the first.
    pub(super) fn high_watermark(&self, topic: usize, partition: i32) -> Option<u64> {
        let (mut low, mut high) = (-1, -1);
        let name = self.names.get(topic)?;
        // SAFETY: the client is alive, the name a C string, and both numbers are written or left as they are.
        unsafe {
            rd::rd_kafka_get_watermark_offsets(
                self.consumer.client().native_ptr(),
                name.as_ptr(),
                partition,
                &raw mut low,
                &raw mut high,
            )
        };
        u64::try_from(high).ok()
    }
}

impl Drop for BatchQueue {
    fn drop(&mut self) {
        for topic in self.topics.drain(..) {
            // SAFETY: each was made by `rd_kafka_topic_new` and is given back once.
            unsafe { rd::rd_kafka_topic_destroy(topic) };
        }
        // SAFETY: made by `rd_kafka_queue_new`, given back once; the client still lives.
        unsafe { rd::rd_kafka_queue_destroy(self.queue) };
    }
}

/// Gives a message back to librdkafka when dropped.
struct OwnedMessage(*mut rd::rd_kafka_message_t);

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        // SAFETY: the batch call gave it to us, and it is given back once.
        unsafe { rd::rd_kafka_message_destroy(self.0) };
    }
}

impl<'a> Message<'a> {
    pub(super) fn partition(&self) -> i32 {
        self.raw.partition
    }

    /// The offset; messages have none below 0.
    pub(super) fn offset(&self) -> u64 {
        self.raw.offset.max(0) as u64
    }

    /// The value; `None` for a tombstone.
    pub(super) fn value(&self) -> Option<&'a [u8]> {
        // SAFETY: pointer and length are librdkafka's, valid as long as the message.
        unsafe { bytes(self.raw.payload, self.raw.len) }
    }

    /// The leader's epoch when it was written; `None` if the broker has none.
    pub(super) fn leader_epoch(&self) -> Option<i32> {
        // SAFETY: the message is alive.
        let epoch = unsafe { rd::rd_kafka_message_leader_epoch(self.raw) };
        (epoch >= 0).then_some(epoch)
    }

    pub(super) fn key(&self) -> Option<&'a [u8]> {
        // SAFETY: as for the value.
        unsafe { bytes(self.raw.key, self.raw.key_len) }
    }

    /// Milliseconds since the epoch; `None` if the message has no timestamp.
    pub(super) fn timestamp(&self) -> Option<i64> {
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive, the kind is written.
        let millis = unsafe { rd::rd_kafka_message_timestamp(self.raw, &raw mut kind) };
        (kind != rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && millis >= 0).then_some(millis)
    }

    /// Shows every header in order: its name, and its value, which may be null.
    pub(super) fn headers(&self, mut visit: impl FnMut(&str, Option<&[u8]>)) {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; on success the headers belong to it.
        let found = unsafe { rd::rd_kafka_message_headers(self.raw, &raw mut headers) };
        if found != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return;
        }
        for index in 0.. {
            let (mut name, mut value, mut len) = (ptr::null::<c_char>(), ptr::null::<c_void>(), 0usize);
            // SAFETY: the headers are alive; name, value and length are written if there is such a header.
            let found =
                unsafe { rd::rd_kafka_header_get_all(headers, index, &raw mut name, &raw mut value, &raw mut len) };
            if found != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return;
            }
            // SAFETY: both belong to the message.
            let (name, value) = unsafe { (CStr::from_ptr(name), bytes(value, len)) };
            visit(&name.to_string_lossy(), value);
        }
    }
}

/// # Safety
/// `data` is null, or `len` bytes at it stay valid for `'a`.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: as promised by the caller.
    (!data.is_null()).then(|| unsafe { slice::from_raw_parts(data.cast(), len) })
}

/// # Safety
/// `data` is null or a C string.
unsafe fn text(data: *const c_char) -> String {
    if data.is_null() {
        return String::new();
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(data) }.to_string_lossy().into_owned()
}

fn last_error() -> KafkaError {
    // SAFETY: it reads the thread's own last error.
    KafkaError::Global(unsafe { rd::rd_kafka_last_error() }.into())
}
