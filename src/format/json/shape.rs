//! What records have looked like so far, so that the next one is told by comparing bytes.
//!
//! ```text
//! {"id":  1  ,"bid_price":  2.5  ,"order_time":  "2023-08-15 14:37:35.411"  }
//! ───┬──     ──────┬──────       ───────┬──────
//!    └─ leads to ──┴──── leads to ──────┘           what stands before the values, as it was written
//! ```
//!
//! A [`Member`] is what stands between a value and the next: a comma (or the opening brace), a key and a colon, blanks
//! among them too. The strict scanner passed these bytes once and found the key's column; where the same bytes stand
//! again they mean the same. Behind each member the one is expected that was behind it before; if it isn't there, those
//! that came later are tried, so that keys may be missing. A record that is written otherwise goes through the strict
//! scanner, and its members are learnt.

use super::scan::Slot;
use super::skip;

/// How many members are remembered: many records of many kinds, and a bound.
const MAX_MEMBERS: usize = 1024;
/// How many kinds of first members are tried one after the other.
const MAX_FIRST: usize = 16;
/// How many members may be missing in a row.
const MAX_MISSING: usize = 16;

/// Bytes of a member that are compared at once.
const LEAD_BYTES: usize = 16;

/// The members that records had so far.
#[derive(Debug, Default)]
pub(super) struct Shape {
    members: Vec<Member>,
    /// Those with the opening brace.
    first: Vec<usize>,
}

#[derive(Debug)]
struct Member {
    /// The first bytes, and which bits of as many bytes they are.
    lead: u128,
    lead_mask: u128,
    bytes: Box<[u8]>,
    /// Where the value goes; beyond all keys if nobody wants it.
    key: usize,
    /// The member that is expected behind this one; beyond all members if none is.
    next: usize,
}

const NONE: usize = usize::MAX;

impl Member {
    fn new(bytes: &[u8], key: Option<usize>, next: usize) -> Self {
        let mut lead = [0; LEAD_BYTES];
        let len = bytes.len().min(LEAD_BYTES);
        lead[..len].copy_from_slice(&bytes[..len]);
        let lead_mask = u128::MAX >> (8 * (LEAD_BYTES - len));
        Self { lead: u128::from_le_bytes(lead), lead_mask, bytes: bytes.into(), key: key.unwrap_or(NONE), next }
    }

    /// Says whether the member stands at byte `at`.
    #[inline]
    fn stands_at(&self, bytes: &[u8], at: usize) -> bool {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk() {
            Some(lead) => {
                u128::from_le_bytes(*lead) & self.lead_mask == self.lead
                    && (self.bytes.len() <= LEAD_BYTES || rest.starts_with(&self.bytes))
            }
            None => rest.starts_with(&self.bytes),
        }
    }
}

impl Shape {
    /// Reads the record that begins at byte `at`, if it is good and has only members that were learnt: puts its values
    /// into `row`, by key, and returns where its line ends. If not, what is in `row` means nothing.
    ///
    /// Arrays and objects may be nested `max_depth` deep, the record counted.
    #[inline]
    pub(super) fn read(&self, text: &str, mut at: usize, max_depth: usize, row: &mut [Slot]) -> Option<usize> {
        let bytes = text.as_bytes();
        at = skip::blanks(bytes, at);
        let mut member = self.members.get(self.first_at(bytes, at)?)?;
        loop {
            let (slot, end) = skip::value(text, at + member.bytes.len(), max_depth.saturating_sub(1))?;
            // Of a key that stands twice the last value counts.
            if let Some(value) = row.get_mut(member.key) {
                *value = slot;
            }
            at = end;
            member = match self.members.get(member.next) {
                Some(next) if next.stands_at(bytes, at) => next,
                expected => match skip::end_of_record(bytes, at) {
                    Some(end) => return Some(end),
                    None => self.members.get(self.later(expected?.next, bytes, at)?)?,
                },
            };
        }
    }

    /// The member with the opening brace that stands at byte `at`.
    #[inline]
    fn first_at(&self, bytes: &[u8], at: usize) -> Option<usize> {
        self.first
            .iter()
            .copied()
            .find(|&index| self.members.get(index).is_some_and(|member| member.stands_at(bytes, at)))
    }

    /// The member that stands at byte `at`, among those expected from `index` on.
    fn later(&self, mut index: usize, bytes: &[u8], at: usize) -> Option<usize> {
        for _ in 0..MAX_MISSING {
            let member = self.members.get(index)?;
            if member.stands_at(bytes, at) {
                return Some(index);
            }
            index = member.next;
        }
        None
    }

    /// Remembers the members of a record that the strict scanner passed, as far as there is room.
    pub(super) fn learn(&mut self, text: &str, seen: &[Seen]) {
        let mut before: Option<usize> = None;
        for member in seen {
            let bytes = text.as_bytes().get(member.start..member.end).unwrap_or_default().trim_ascii_end();
            // A line end may stand there in a message, and ends the record in a file.
            if bytes.contains(&b'\n') {
                return;
            }
            let known = match before {
                None => self.first_at(text.as_bytes(), member.start),
                Some(before) => self.later(self.members[before].next, text.as_bytes(), member.start),
            };
            let Some(index) = known.or_else(|| self.add(bytes, member.key, before)) else { return };
            before = Some(index);
        }
    }

    /// Adds a member behind the one at `before`, or among the first ones.
    fn add(&mut self, bytes: &[u8], key: Option<usize>, before: Option<usize>) -> Option<usize> {
        let index = self.members.len();
        if index == MAX_MEMBERS || (before.is_none() && self.first.len() == MAX_FIRST) {
            return None;
        }
        let next = match before {
            Some(before) => std::mem::replace(&mut self.members[before].next, index),
            None => {
                self.first.push(index);
                NONE
            }
        };
        self.members.push(Member::new(bytes, key, next));
        Some(index)
    }
}

/// A member that the strict scanner passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Where it begins: at the record's brace, or behind the value before.
    pub(super) start: usize,
    /// Where it ends, blanks behind its colon included or not.
    pub(super) end: usize,
    /// Where the value goes, if anybody wants it.
    pub(super) key: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::super::keys::Members;
    use super::super::scan::Scanner;
    use super::*;

    /// What stands at the keys `a` and `b`, by the shape of the records that were learnt.
    fn read(learnt: &[&str], record: &str) -> Option<[String; 2]> {
        let mut shape = Shape::default();
        let mut members = Members::new(vec!["a".into(), "b".into()], false);
        for record in learnt {
            let mut seen = Vec::new();
            members
                .read_seen(&mut Scanner::new(record, 0, record.len(), 64), record, 0, |member| seen.push(member))
                .unwrap();
            shape.learn(record, &seen);
        }
        let mut row = [Slot::default(); 2];
        let end = shape.read(record, 0, 64, &mut row)?;
        assert_eq!(end, record.len());
        Some(row.map(|slot| slot.text(record).to_owned()))
    }

    #[track_caller]
    fn check(learnt: &[&str], records: &[(&str, Option<[&str; 2]>)]) {
        for (record, expected) in records {
            assert_eq!(read(learnt, record), expected.map(|row| row.map(str::to_owned)), "{record}");
        }
    }

    #[test]
    fn records_as_the_one_before_are_told_by_their_bytes() {
        check(
            &[r#"{"a":1,"x":2,"b":"3"}"#],
            &[
                (r#"{"a":77,"x":{"b":[1]},"b":null}"#, Some(["77", "null"])),
                (r#" {"a":  "1","x":true,"b": 2 } "#, Some(["1", "2"])),
                (r#"{"a" :1,"x":2,"b":3}"#, None),
                (r#"{"a":1,"x":2,"b":3}{"#, None),
                (r#"{"a":1,"x":02,"b":3}"#, None),
                (r#"{"a":1,"x":2,"b":3,}"#, None),
                (r#"{"a":1{"a":2,"b":3}"#, None),
                (r#","b":3}"#, None),
            ],
        );
    }

    #[test]
    fn keys_may_be_missing_or_stand_twice() {
        let learnt = [r#"{"a":1,"x":2,"y":3,"b":4}"#, r#"{"a":1,"a":2}"#, r#"{"b":1}"#];
        check(
            &learnt,
            &[
                (r#"{"a":5,"b":6}"#, Some(["5", "6"])),
                (r#"{"a":5,"y":6}"#, Some(["5", ""])),
                (r#"{"a":5,"a":6,"y":0,"b":7}"#, Some(["6", "7"])),
                (r#"{"b":5}"#, Some(["", "5"])),
                (r#"{"a":5,"b":6,"y":7}"#, None),
                (r#"{"x":5}"#, None),
            ],
        );
    }

    #[test]
    fn long_keys_differ_behind_the_bytes_that_are_compared_at_once() {
        let learnt = [r#"{"a":1,"a long key, and its end 1":2,"b":3}"#];
        check(
            &learnt,
            &[
                (r#"{"a":1,"a long key, and its end 1":0,"b":4}"#, Some(["1", "4"])),
                (r#"{"a":1,"a long key, and its end 2":0,"b":4}"#, None),
            ],
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut shape = Shape::default();
        for number in 0..3 * MAX_MEMBERS {
            let record = format!("{{\"a\":1,\"{number}\":2}}");
            let comma = record.find(',').unwrap();
            let seen =
                [Seen { start: 0, end: 5, key: Some(0) }, Seen { start: comma, end: record.len() - 2, key: None }];
            shape.learn(&record, &seen);
            let first = format!("{{\"{number}\":1}}");
            shape.learn(&first, &[Seen { start: 0, end: first.len() - 2, key: None }]);
        }
        assert_eq!((shape.members.len(), shape.first.len()), (MAX_MEMBERS, MAX_FIRST));
    }
}
