//! Asks for the ids of topics, and whether they may be read. rdkafka has no call for it, so this is unsafe.
//!
//! A topic id ([KIP-516](https://cwiki.apache.org/confluence/display/KAFKA/KIP-516)) tells a topic from another one
//! of the same name, made after the first was deleted. Brokers before 2.8 have none.
#![expect(unsafe_code, reason = "rdkafka has no call that describes topics")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::slice;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;

use super::client::Listener;

/// The broker that questions about topics go to, as far as is known; it is none of the brokers if there is none.
pub(super) fn controller(client: &BaseConsumer<Listener>, timeout: Duration) -> Option<i32> {
    // SAFETY: the client is alive.
    let id = unsafe { rd::rd_kafka_controllerid(client.client().native_ptr(), millis(timeout)) };
    (id >= 0).then_some(id)
}

/// What only exists while one question is asked; given back in the order of the fields.
struct Question {
    event: *mut rd::rd_kafka_event_t,
    topics: *mut rd::rd_kafka_TopicCollection_t,
    options: *mut rd::rd_kafka_AdminOptions_t,
    queue: *mut rd::rd_kafka_queue_t,
}

impl Drop for Question {
    fn drop(&mut self) {
        // SAFETY: each was made for this question and is given back once; all but an event that didn't come, for
        // which the call does nothing, are there.
        unsafe {
            rd::rd_kafka_event_destroy(self.event);
            rd::rd_kafka_TopicCollection_destroy(self.topics);
            rd::rd_kafka_AdminOptions_destroy(self.options);
            rd::rd_kafka_queue_destroy(self.queue);
        }
    }
}

/// What a broker says of a topic.
#[derive(Debug)]
pub(super) struct Facts {
    /// As base64; `None` where brokers have no ids.
    pub(super) id: Option<String>,
    /// Whether it may be looked at, and not read.
    pub(super) is_forbidden: bool,
}

/// The facts of each topic; of one that isn't there there are none. Blocks for `timeout` at most.
pub(super) fn describe_topics(
    client: &BaseConsumer<Listener>,
    names: &[&str],
    timeout: Duration,
) -> KafkaResult<BTreeMap<String, Facts>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let native = client.client().native_ptr();
    let names: Vec<CString> =
        names.iter().map(|name| CString::new(*name).map_err(KafkaError::Nul)).collect::<KafkaResult<_>>()?;
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let millis = millis(timeout);
    // SAFETY: the client outlives the question, as it is borrowed; the names are C strings, of which copies are made.
    let mut question = unsafe {
        Question {
            event: ptr::null_mut(),
            topics: rd::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()),
            options: rd::rd_kafka_AdminOptions_new(native, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS),
            queue: rd::rd_kafka_queue_new(native),
        }
    };
    // SAFETY: all handles are alive; no text of an error is asked for.
    let status = unsafe { rd::rd_kafka_AdminOptions_set_request_timeout(question.options, millis, ptr::null_mut(), 0) };
    known_good(status)?;
    // SAFETY: the options are alive; an error of the call belongs to us, and there is none for an option that this
    // kind of question has.
    unsafe {
        let error = rd::rd_kafka_AdminOptions_set_include_authorized_operations(question.options, 1);
        if !error.is_null() {
            rd::rd_kafka_error_destroy(error);
        }
    }
    // SAFETY: the handles live until the answer, or the timeout, has come to the queue.
    unsafe {
        rd::rd_kafka_DescribeTopics(native, question.topics, question.options, question.queue);
        // A little longer than the request, whose own timeout then tells what is wrong.
        question.event = rd::rd_kafka_queue_poll(question.queue, millis.saturating_add(100));
    }
    if question.event.is_null() {
        return Err(KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut));
    }
    // SAFETY: the event is alive until `question` is dropped.
    known_good(unsafe { rd::rd_kafka_event_error(question.event) })?;
    // SAFETY: as above; the result belongs to the event, and is null for an event of another kind.
    let result = unsafe { rd::rd_kafka_event_DescribeTopics_result(question.event) };
    if result.is_null() {
        return Err(KafkaError::AdminOp(RDKafkaErrorCode::BadMessage));
    }
    let mut count = 0;
    // SAFETY: the result is alive, and so many pointers to descriptions belong to it.
    let found = unsafe {
        let list = rd::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        items(list, count)
    };
    // SAFETY: each pointer is a description that lives as long as the event.
    Ok(found.iter().filter_map(|&topic| unsafe { name_and_facts(topic) }).collect())
}

fn known_good(status: rd::rd_kafka_resp_err_t) -> KafkaResult<()> {
    match status {
        rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(KafkaError::AdminOp(code.into())),
    }
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// # Safety
/// `topic` is a description that is alive.
unsafe fn name_and_facts(topic: *const rd::rd_kafka_TopicDescription_t) -> Option<(String, Facts)> {
    use rd::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ;
    let mut count = 0;
    // SAFETY: as promised; the error, which is null if all is well, the name, the id and so many operations belong to
    // the description.
    unsafe {
        let error = rd::rd_kafka_TopicDescription_error(topic);
        if rd::rd_kafka_error_code(error) != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return None;
        }
        let name = CStr::from_ptr(rd::rd_kafka_TopicDescription_name(topic)).to_string_lossy().into_owned();
        let id = id(rd::rd_kafka_TopicDescription_topic_id(topic));
        let operations = rd::rd_kafka_TopicDescription_authorized_operations(topic, &raw mut count);
        // Old brokers don't say what is allowed.
        let is_forbidden =
            !operations.is_null() && !slice::from_raw_parts(operations, count).contains(&RD_KAFKA_ACL_OPERATION_READ);
        Some((name, Facts { id, is_forbidden }))
    }
}

/// # Safety
/// `uuid` is null or alive.
unsafe fn id(uuid: *const rd::rd_kafka_Uuid_t) -> Option<String> {
    if uuid.is_null() {
        return None;
    }
    // SAFETY: as promised; the text belongs to the id.
    unsafe {
        let bits = (rd::rd_kafka_Uuid_most_significant_bits(uuid), rd::rd_kafka_Uuid_least_significant_bits(uuid));
        // No id is all zeros.
        if bits == (0, 0) {
            return None;
        }
        let text = rd::rd_kafka_Uuid_base64str(uuid);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// # Safety
/// `list` is null, or `count` pointers at it stay valid as long as what they are taken from.
unsafe fn items<'a, T>(list: *mut *const T, count: usize) -> &'a [*const T] {
    if list.is_null() {
        return &[];
    }
    // SAFETY: as promised by the caller.
    unsafe { slice::from_raw_parts(list.cast_const(), count) }
}
