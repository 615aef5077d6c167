//! Pieces of files on their way to where they are cut, in buffers that are used again.
//!
//! A piece seldom ends where a record does. What is left of it has to stand right in front of the next piece, so
//! buffers have room there, and only what is left is copied.
//!
//! ```text
//! │        │ records of piece 1 … half a rec│
//!                                └───┬─────┘
//! │        │half a rec│ord, records of piece 2 … │
//!    room                the piece
//! ```

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

/// Buffers that wait to be used again. More are never free for long: one is taken for each that is given back.
const MAX_FREE: usize = 4;

/// The buffers of one stream: what is given back is kept for the next pieces, until this is dropped.
///
/// Those in use are bounded by the permits for their pieces. Room that isn't used is memory that isn't touched.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The one that was given back last is last: its bytes are most likely in a cache.
    free: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// Takes a buffer for a piece of `len` bytes. What they are until they are written is not said.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let needed = len + room_bytes(len);
        // A short piece must not hold much more memory than it has bytes, since only those are in the budget.
        let fitting = needed..=2 * needed;
        let free = {
            let mut free = self.free();
            let index = free.iter().rposition(|bytes| fitting.contains(&bytes.len()));
            index.map(|index| free.remove(index))
        };
        let bytes = free.unwrap_or_else(|| vec![0; needed].into_boxed_slice());
        let end = bytes.len();
        Buffer { bytes, start: end - len, end, home: Arc::downgrade(self) }
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        let mut free = self.free();
        // The oldest has to go: it may be of a length that isn't asked for any more.
        let oldest = (free.len() == MAX_FREE).then(|| free.remove(0));
        free.push(bytes);
        drop(free);
        drop(oldest);
    }

    /// Nothing panics while it holds this lock.
    fn free(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room in front of a piece of `len` bytes: far more than half a record of most files.
fn room_bytes(len: usize) -> usize {
    len / 16
}

/// A buffer that goes back to where it was taken when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    home: Weak<Buffers>,
}

impl Buffer {
    /// The piece's bytes, to be written.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Keeps the first `len` bytes of the piece.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// Puts `front` right in front of the piece, if there is room.
    fn prepend(&mut self, front: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(front.len()) else { return false };
        self.bytes[start..self.start].copy_from_slice(front);
        self.start = start;
        true
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.give_back(mem::take(&mut self.bytes));
        }
    }
}

/// The next bytes of a file.
#[derive(Debug)]
pub(crate) enum Piece {
    /// With room in front.
    Buffered(Buffer),
    /// Of others, who may still look at them.
    Shared(Bytes),
}

impl Piece {
    /// Returns `front` and this, in one. `front` is copied, the piece only if it has too little room in front.
    pub(crate) fn prepend(mut self, front: &[u8]) -> Bytes {
        if let Self::Buffered(buffer) = &mut self
            && buffer.prepend(front)
        {
            return self.into_bytes();
        }
        let piece = self.into_bytes();
        if front.is_empty() {
            return piece;
        }
        let mut whole = Vec::with_capacity(front.len() + piece.len());
        whole.extend_from_slice(front);
        whole.extend_from_slice(&piece);
        whole.into()
    }

    /// Returns the bytes alone. A buffer goes back when the last slice of them is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Buffered(buffer) => Bytes::from_owner(buffer),
            Self::Shared(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Buffered(buffer) => buffer.as_ref(),
            Self::Shared(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Arc<Buffers>, text: &[u8]) -> Buffer {
        let mut buffer = buffers.take(text.len());
        buffer.as_mut_slice().copy_from_slice(text);
        buffer
    }

    fn num_free(buffers: &Buffers) -> usize {
        buffers.free().len()
    }

    #[test]
    fn what_is_put_in_front_of_a_piece_with_room_leaves_the_piece_where_it_is() {
        let buffers = Arc::default();
        let piece = filled(&buffers, &[b'b'; 64]);
        let place = piece.as_ref().as_ptr();
        let whole = Piece::Buffered(piece).prepend(b"aaaa");
        assert_eq!(whole, [&b"aaaa"[..], &[b'b'; 64]].concat());
        assert_eq!(whole[4..].as_ptr(), place);
    }

    #[test]
    fn what_finds_no_room_in_front_is_joined_and_the_buffer_is_free_again() {
        let buffers = Arc::default();
        let whole = Piece::Buffered(filled(&buffers, &[b'b'; 64])).prepend(b"aaaaa");
        assert_eq!(whole, [&b"aaaaa"[..], &[b'b'; 64]].concat());
        assert_eq!(num_free(&buffers), 1);
    }

    #[test]
    fn a_shared_piece_is_copied_only_if_something_comes_in_front() {
        let bytes = Bytes::from(vec![b'b'; 64]);
        assert_eq!(Piece::Shared(bytes.clone()).prepend(b"").as_ptr(), bytes.as_ptr());
        let whole = Piece::Shared(bytes.clone()).prepend(b"a");
        assert_eq!(whole, [&b"a"[..], &[b'b'; 64]].concat());
        assert_eq!(bytes, [b'b'; 64].as_slice());
    }

    #[test]
    fn a_buffer_is_used_again_once_the_last_slice_of_it_is_dropped() {
        let buffers = Arc::default();
        let first = Piece::Buffered(filled(&buffers, &[b'a'; 64])).into_bytes();
        let place = first.as_ptr();
        let slice = first.slice(60..);
        drop(first);
        assert_eq!(num_free(&buffers), 0);
        assert_eq!(slice, b"aaaa".as_slice());
        drop(slice);
        assert_eq!(num_free(&buffers), 1);
        assert_eq!(buffers.take(64).as_ref().as_ptr(), place);
    }

    #[test]
    fn what_a_buffer_held_before_is_not_seen_again() {
        let buffers = Arc::default();
        drop(Piece::Buffered(filled(&buffers, &[b'a'; 64])).prepend(b"aaaa"));
        let mut second = buffers.take(60);
        assert_eq!(num_free(&buffers), 0);
        second.as_mut_slice()[..3].copy_from_slice(b"bcd");
        second.truncate(3);
        assert_eq!(Piece::Buffered(second).prepend(b"x"), b"xbcd".as_slice());
    }

    #[test]
    fn a_short_piece_gets_no_long_buffer_and_leaves_it_for_others() {
        let buffers = Arc::default();
        let long = filled(&buffers, &[b'a'; 640]);
        let place = long.as_ref().as_ptr();
        drop(long);
        let short = filled(&buffers, b"b");
        assert_eq!(short.bytes.len(), 1);
        drop(short);
        assert_eq!(num_free(&buffers), 2);
        assert_eq!(buffers.take(640).as_ref().as_ptr(), place);
    }

    #[test]
    fn the_oldest_free_buffer_goes_if_there_are_too_many() {
        let buffers = Arc::default();
        let taken: Vec<Buffer> = (0..=MAX_FREE).map(|n| filled(&buffers, &vec![b'a'; 16 << n])).collect();
        drop(taken);
        let lens: Vec<usize> = buffers.free().iter().map(|bytes| bytes.len()).collect();
        assert_eq!(lens, [34, 68, 136, 272]);
    }

    #[test]
    fn a_buffer_that_outlives_its_stream_is_simply_dropped() {
        let buffers = Arc::default();
        let bytes = Piece::Buffered(filled(&buffers, b"ab")).into_bytes();
        let weak = Arc::downgrade(&buffers);
        drop(buffers);
        assert_eq!(weak.strong_count(), 0);
        assert_eq!(bytes, b"ab".as_slice());
    }
}
