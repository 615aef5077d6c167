//! What a scan in vain leaves to the scans behind it.
//!
//! A record with broken quotes ends at its first line end, and every line that its quoted fields went over starts a
//! record of its own. Most of those come to the same quoted fields, and would go over all of them once more:
//!
//! ```text
//! bytes        x","⏎x","⏎x","⏎x","⏎ …    the first quote of a line is data, the second one opens
//! first scan     "..." "..." "..." "     in vain: nothing closes the last one in time
//! second scan         "─────────▶ "      starts a line later, and knows the rest
//! ```
//!
//! What a scan does from an opening quote on depends only on what follows, except for the limit of its record, which
//! lies further for a record that starts later. So one that comes to a quote where a scan in vain opened a field goes on
//! at the last such place, and in that field where the search for its end stopped.
//!
//! A chain has two strands, and these are enough: at every byte some of the scans that come by are inside quotes, all of
//! them since the same opening one, and the others are outside and go on alike from the next delimiter. Often there is
//! only one, since a line end outside quotes ends a record; but one that is escaped there doesn't.

use std::collections::VecDeque;

use super::record::Span;

/// The quoted fields that scans in vain went over, in one buffer whose records are scanned in their order.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    strands: [Strand; 2],
    /// How many bytes scans looked at.
    #[cfg(test)]
    pub(super) num_looked_at: usize,
}

/// Quoted fields of which the first leads a scan to the others.
#[derive(Debug, Default)]
struct Strand {
    /// Where they open, in order.
    opens: VecDeque<usize>,
    /// Nothing before this closes the last one.
    searched: usize,
    /// Whether the scan that is under way came to the last one.
    is_joined: bool,
}

impl Chain {
    /// Says whether one of its fields opens at `at` or behind it.
    pub(super) fn reaches(&self, at: usize) -> bool {
        self.strands.iter().filter_map(Strand::last).any(|last| at <= last)
    }

    /// Where a scan may go on that comes to a quoted field at `open`.
    pub(super) fn last_from(&self, open: usize) -> Option<usize> {
        let strands = self.strands.iter().filter(|strand| strand.opens.binary_search(&open).is_ok());
        strands.filter_map(Strand::last).max()
    }

    /// Begins with a scan from `start` on, and forgets what no scan comes to any more.
    pub(super) fn begin(&mut self, start: usize) {
        for strand in &mut self.strands {
            strand.forget_before(start);
            strand.is_joined = false;
        }
    }

    /// Where to go on looking for the end of the field at `open`, if it is a last one; the scan has joined then.
    pub(super) fn join(&mut self, open: usize) -> Option<usize> {
        let mut searched = None;
        for strand in self.strands.iter_mut().filter(|strand| strand.last() == Some(open)) {
            strand.is_joined = true;
            searched = searched.max(Some(strand.searched));
        }
        searched
    }

    /// Takes what a scan in vain went over: `fields`, and at last the quoted one at `open` up to `searched`.
    pub(super) fn take(&mut self, fields: &[Span], (open, searched): (usize, usize)) {
        let opens = fields.iter().filter(|field| field.quoted).map(|field| field.start - 1).chain([open]);
        if !self.strands.iter().any(|strand| strand.is_joined) {
            let [one, other] = &mut self.strands;
            let shorter = if one.last() < other.last() { one } else { other };
            if shorter.last() < Some(open) {
                shorter.opens.clear();
                shorter.is_joined = true;
            }
        }
        for strand in self.strands.iter_mut().filter(|strand| strand.is_joined) {
            for open in opens.clone() {
                if strand.last() < Some(open) {
                    strand.opens.push_back(open);
                }
            }
            strand.searched = searched;
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        for strand in &mut self.strands {
            strand.opens.clear();
        }
    }

    /// Goes on in a buffer that begins so many bytes later, where a record starts.
    pub(super) fn move_down(&mut self, bytes: usize) {
        for strand in &mut self.strands {
            strand.forget_before(bytes);
            strand.opens.iter_mut().for_each(|open| *open -= bytes);
            strand.searched = strand.searched.saturating_sub(bytes);
        }
    }
}

impl Strand {
    fn last(&self) -> Option<usize> {
        self.opens.back().copied()
    }

    fn forget_before(&mut self, start: usize) {
        while self.opens.front().is_some_and(|open| *open < start) {
            self.opens.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::CsvOptions;
    use super::super::record::{Dialect, Scan};
    use super::*;

    /// What each scan says, one behind the other, and the fields. `chain` is told what to keep before each.
    fn scans(
        dialect: &Dialect,
        data: &[u8],
        at_end: bool,
        chain: &mut Chain,
        before_each: fn(&mut Chain),
    ) -> Vec<(Scan, Vec<Span>)> {
        let (mut at, mut scans) = (0, Vec::new());
        while at < data.len() {
            before_each(chain);
            let mut fields = Vec::new();
            let scan = dialect.scan(data, at, at_end, &mut fields, chain);
            scans.push((scan, fields));
            at = match scan {
                Scan::Record { next } | Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => {
                    next
                }
                Scan::Incomplete => break,
            };
        }
        scans
    }

    fn options(escape: bool, comment: bool, delimiter: char, max_record_bytes: usize) -> CsvOptions {
        CsvOptions {
            delimiter: Some(delimiter),
            escape: escape.then_some(b'\\'),
            comment: comment.then_some(b'#'),
            max_record_bytes,
            ..CsvOptions::default()
        }
    }

    /// Bytes that are looked at in scanning all records, per byte that is there.
    #[track_caller]
    fn check_work(options: &CsvOptions, data: &str, at_end: bool) {
        let mut chain = Chain::default();
        let scans = scans(&options.dialect(), data.as_bytes(), at_end, &mut chain, |_| ());
        let (looked_at, len) = (chain.num_looked_at, data.len());
        assert!(looked_at <= 8 * len + 100, "{looked_at} of {len} bytes in {} scans", scans.len());
    }

    fn small(max_record_bytes: usize) -> CsvOptions {
        CsvOptions { max_record_bytes, ..CsvOptions::default() }
    }

    #[test]
    fn lines_that_each_open_a_quote_are_looked_at_a_few_times() {
        for max_record_bytes in [100, 10_000, 1 << 20] {
            check_work(&small(max_record_bytes), &"x\",\"\n".repeat(10_000), true);
        }
    }

    #[test]
    fn a_record_of_many_lines_beyond_the_limit_is_looked_at_a_few_times() {
        let record = format!("1{}", ",\"some \"\"text\"\" of a long note\n and so on\"".repeat(2_000));
        for max_record_bytes in [100, 10_000, 1 << 20] {
            check_work(&small(max_record_bytes), &record, true);
        }
    }

    /// The last field of all those records is the same one.
    #[test]
    fn what_lies_behind_many_quoted_fields_is_looked_at_a_few_times() {
        let (lines, text) = ("x\",\"\n".repeat(2_000), "text ".repeat(4_000));
        for end in ["", "\"y\n", "\"\n", "\"\"", "\",", "\",\n"] {
            for at_end in [true, false] {
                check_work(&small(1 << 20), &format!("{lines}x\",\"{text}{end}"), at_end);
            }
        }
    }

    /// A line in between that is broken in itself must not hide what is known of those behind it.
    #[test]
    fn lines_broken_in_themselves_amid_others_are_looked_at_a_few_times() {
        check_work(&small(1 << 20), &"x\",\"\n\"\"y,\n".repeat(3_000), true);
        check_work(&small(1 << 20), &"\"a\",\"\n\"\"y,\nx\",\"\n".repeat(3_000), true);
    }

    /// Outside quotes an escaped line end ends no record, so two strands ran side by side and drove out each other.
    #[test]
    fn two_strands_side_by_side_are_looked_at_a_few_times() {
        for max_record_bytes in [50, 1_000, 1 << 20] {
            check_work(&options(true, false, ',', max_record_bytes), &"\n,\",\\".repeat(2_000), true);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn scans_say_the_same_with_and_without_what_was_before(
            data in prop_oneof!["[ab,\"\\\\#\r\n]{0,60}", "[a,\"\n]{0,80}", "(x?\",\"\n?|,\"a?\"|\"\"|\n|\\\\|é){0,30}"],
            delimiter in select(vec![',', ',', 'é', '\u{e8}']),
            escape in any::<bool>(),
            comment in any::<bool>(),
            max_record_bytes in 1usize..40,
            at_end in any::<bool>(),
        ) {
            let dialect = options(escape, comment, delimiter, max_record_bytes).dialect();
            let data = data.as_bytes();
            prop_assert_eq!(
                scans(&dialect, data, at_end, &mut Chain::default(), |_| ()),
                scans(&dialect, data, at_end, &mut Chain::default(), Chain::clear)
            );
        }

        #[test]
        fn whatever_is_repeated_is_looked_at_a_few_times(
            head in "[a,\"\n]{0,5}",
            pattern in prop_oneof!["[ab,\"\\\\\r\n]{1,10}", "[a,\"\n]{1,12}", "(x?\",\"\n?|,\"a?\"|\"\"|\n|\\\\\n){1,6}"],
            tail in "[a,\"\n]{0,5}",
            escape in any::<bool>(),
            max_record_bytes in select(vec![50usize, 1_000, 1 << 20]),
            at_end in any::<bool>(),
        ) {
            let data = format!("{head}{}{tail}", pattern.repeat(400));
            check_work(&options(escape, false, ',', max_record_bytes), &data, at_end);
        }
    }
}
