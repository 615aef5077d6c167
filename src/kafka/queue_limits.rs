//! How much librdkafka may fetch ahead.

/// What librdkafka may hold of messages that nobody took yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Messages; a queued one costs about 300 bytes besides its payload.
    pub(super) messages: usize,
    /// Payload, which is all that librdkafka counts.
    pub(super) payload_bytes: usize,
    /// What one fetch brings at most; one in flight comes on top of the others.
    pub(super) fetch_bytes: usize,
    /// All of it together, for the budget.
    pub(super) held_bytes: usize,
}

impl QueueLimits {
    /// Takes half of what may be buffered: as much again is being decoded, or waits to be taken.
    pub(super) fn new(limit_bytes: usize) -> Self {
        const MESSAGE_BYTES: usize = 300;
        /// librdkafka doesn't take less for a fetch than for a message.
        const MIN_FETCH_BYTES: usize = 1 << 20;
        const MAX_FETCH_BYTES: usize = 10 << 20;
        let held_bytes = limit_bytes / 2;
        Self {
            messages: (held_bytes / 2 / MESSAGE_BYTES).clamp(1000, 10_000_000),
            // librdkafka takes no more than 2 GB.
            payload_bytes: (held_bytes / 4).clamp(64 << 10, 2_097_151 << 10),
            fetch_bytes: (held_bytes / 16).clamp(MIN_FETCH_BYTES, MAX_FETCH_BYTES),
            held_bytes,
        }
    }
}
