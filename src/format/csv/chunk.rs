//! Whole records that are decoded together.

/// Bytes, and how many of them are text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    pub(super) bytes: &'a [u8],
    /// What stands before the first byte that isn't UTF-8.
    pub(super) text: &'a str,
}

impl<'a> Chunk<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default(),
        };
        Self { bytes, text }
    }

    /// Says whether all of it is text.
    pub(super) fn is_text(&self) -> bool {
        self.text.len() == self.bytes.len()
    }
}
