//! Messages as the lines of one chunk, so that they can be decoded column by column.

use std::borrow::Cow;

use crate::format::{message_range, without_line_end};

/// Messages, each without its line end and with a line feed behind it.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Where each message starts, and at last where all end.
    starts: Vec<u64>,
}

impl<'a> Lines<'a> {
    /// The messages from `first` on of those that end in `values` where `ends` says, with a line feed behind each.
    /// `None` if one can't be a line: an empty one would be passed over, and a CR at its end would be taken for a part of
    /// the line end.
    pub(super) fn of(values: &'a [u8], ends: &[usize], first: usize) -> Option<Self> {
        let mut has_line_ends = false;
        for index in first..ends.len() {
            match values[message_range(ends, index)] {
                [] | [.., b'\r'] => return None,
                [.., b'\n'] => has_line_ends = true,
                _ => {}
            }
        }
        if has_line_ends {
            return Self::copied(values, ends, first);
        }
        // They are lines as they stand there.
        let base = if first == 0 { 0 } else { ends[first - 1] + 1 };
        let mut starts = Vec::with_capacity(ends.len() - first + 1);
        starts.push(0);
        starts.extend(ends[first..].iter().map(|end| (end + 1 - base) as u64));
        Some(Self { bytes: Cow::Borrowed(&values[base..]), starts })
    }

    /// As [`Self::of`], without the line ends that messages have of their own.
    fn copied(values: &[u8], ends: &[usize], first: usize) -> Option<Self> {
        let num_messages = ends.len() - first;
        let mut bytes = Vec::with_capacity(values.len());
        let mut starts = Vec::with_capacity(num_messages + 1);
        starts.push(0);
        for index in first..ends.len() {
            let message = without_line_end(&values[message_range(ends, index)]);
            if matches!(message, [] | [.., b'\r']) {
                return None;
            }
            bytes.extend_from_slice(message);
            bytes.push(b'\n');
            starts.push(bytes.len() as u64);
        }
        Some(Self { bytes: Cow::Owned(bytes), starts })
    }

    /// Where message `index` starts; where all end if there are only so many.
    pub(super) fn start(&self, index: usize) -> usize {
        self.starts[index] as usize
    }

    /// Says whether records that start at `starts`, the last of which ends at `end`, are just the messages from
    /// `first` on: one may hold several lines, or end inside quotes.
    pub(super) fn are_messages(&self, first: usize, starts: &[u64], end: usize) -> bool {
        let rest = &self.starts[first..];
        rest.starts_with(starts) && rest.get(starts.len()) == Some(&(end as u64))
    }
}
