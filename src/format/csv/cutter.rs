//! Cuts CSV at record ends.

use memchr::{memchr, memrchr};

use super::chain::Chain;
use super::index::{BLOCK_BYTES, Found, Index, Irregular, Kernel, Visitor};
use super::record::{Dialect, Scan};
use crate::format::RecordCutter;

/// Finds how much of the data is whole records, quotes respected.
///
/// By the index as long as quotes are well-formed; a record of which it can't be sure is scanned by the reference.
#[derive(Debug)]
pub(crate) struct CsvCutter {
    dialect: Dialect,
    kernel: Kernel,
    /// Of what the last call left, and the next one begins with.
    chain: Chain,
}

impl CsvCutter {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, kernel: Kernel::detect(), chain: Chain::default() }
    }

    /// Where the last record ends of those that are regular from `at` on; `at` if there is none.
    fn regular_end(&mut self, data: &[u8], at: usize) -> usize {
        let first_quote = self.dialect.quote.and_then(|quote| memchr(quote, &data[at..]));
        // Up to the first quote every line is a record.
        let lines = &data[..first_quote.map_or(data.len(), |len| at + len)];
        let start = memrchr(b'\n', &lines[at..]).map_or(at, |len| at + len + 1);
        if first_quote.is_none() {
            return start;
        }
        let mut last = LastEnd { end: start, max_record_bytes: self.dialect.max_record_bytes };
        // Whether it came to the end or stopped before, `last` has the last record of which it was sure.
        let mut index = Index::new(self.kernel, &self.dialect, start);
        let _ = index.advance(data, usize::MAX, &mut last);
        #[cfg(test)]
        (self.chain.num_looked_at += index.at() - at);
        last.end
    }
}

/// Where the last record ended so far.
struct LastEnd {
    end: usize,
    max_record_bytes: usize,
}

impl Visitor for LastEnd {
    #[inline(always)]
    fn visit(&mut self, found: Found) -> Result<(), Irregular> {
        let block_end = found.base + BLOCK_BYTES;
        // Of a record that may be longer the reference knows whether its quotes close in time.
        if block_end - self.end > self.max_record_bytes {
            return Err(Irregular);
        }
        if found.record_ends != 0 {
            self.end = block_end - found.record_ends.leading_zeros() as usize;
        }
        Ok(())
    }
}

impl RecordCutter for CsvCutter {
    fn cut(&mut self, data: &[u8]) -> usize {
        let is_indexable = self.dialect.is_indexable(data);
        let mut fields = Vec::new();
        let mut at = 0;
        loop {
            // Along the chain the index would go as far in vain, too.
            if is_indexable && !self.chain.reaches(at) {
                at = self.regular_end(data, at);
            }
            if at == data.len() {
                break;
            }
            fields.clear();
            match self.dialect.scan(data, at, false, &mut fields, &mut self.chain) {
                Scan::Record { next } | Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => {
                    at = next
                }
                Scan::Incomplete => break,
            }
        }
        self.chain.move_down(at);
        at
    }
}

#[cfg(any(test, fuzzing))]
impl CsvCutter {
    /// Cuts by another index.
    pub(super) fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::CsvOptions;
    use super::super::twins::cut_by_record;
    use super::*;

    /// Where records start, scanning the whole of `data` at once.
    fn starts(dialect: &Dialect, data: &[u8]) -> Vec<usize> {
        let (mut at, mut starts) = (0, Vec::new());
        while at < data.len() {
            starts.push(at);
            at = match dialect.scan(data, at, true, &mut Vec::new(), &mut Chain::default()) {
                Scan::Record { next } | Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => {
                    next
                }
                Scan::Incomplete => panic!("incomplete at the end"),
            };
        }
        starts
    }

    /// By the index and by the reference, a piece after the other. The index looks further than the limit by one block.
    #[test]
    fn quoted_fields_over_many_lines_and_pieces_are_looked_at_a_few_times() {
        let note = ",\"some \"\"text\"\" of a long note\n and so on\"";
        for data in ["x\",\"\n".repeat(10_000), format!("1{}", note.repeat(1_200))] {
            for (max_record_bytes, piece) in [(1_000, 1_000), (10_000, 500), (20_000, 100), (1 << 20, 100)] {
                let mut cutter = CsvCutter::new(CsvOptions { max_record_bytes, ..CsvOptions::default() }.dialect());
                let (mut done, mut seen) = (0, 0);
                while seen < data.len() {
                    seen = data.len().min(seen + piece);
                    done += cutter.cut(&data.as_bytes()[done..seen]);
                }
                let (looked_at, len) = (cutter.chain.num_looked_at, data.len());
                assert!(looked_at <= 8 * len, "{looked_at} of {len} bytes, {piece} of {max_record_bytes} at once");
            }
        }
    }

    proptest! {
        /// Whatever the pieces in which data arrives, every cut is at a record's start, and where the reference cuts.
        #[test]
        fn any_pieces_are_cut_where_records_start(
            data in prop_oneof!["[abé,\"\\\\#\r\n]{0,60}", "(x?\",\"\n?|,\"a?\"|\"\"|\n|\\\\|é){0,30}"],
            delimiter in prop::sample::select(vec![',', 'é', '\u{e8}']),
            pieces in prop::collection::vec(1usize..9, 0..40),
            escape in any::<bool>(),
            comment in any::<bool>(),
            max_record_bytes in prop::sample::select(vec![3usize, 8, 20, 1 << 20]),
        ) {
            let options = CsvOptions {
                delimiter: Some(delimiter),
                escape: escape.then_some(b'\\'),
                comment: comment.then_some(b'#'),
                max_record_bytes,
                ..CsvOptions::default()
            };
            let data = data.as_bytes();
            let starts = starts(&options.dialect(), data);
            let mut cutter = CsvCutter::new(options.dialect());
            let (mut done, mut seen) = (0, 0);
            for piece in pieces {
                seen = data.len().min(seen + piece);
                let cut = cutter.cut(&data[done..seen]);
                prop_assert_eq!(cut, cut_by_record(&options.dialect(), &data[done..seen]));
                done += cut;
                prop_assert!(done == data.len() || starts.contains(&done), "cut at {} of {:?}", done, data);
            }
        }
    }
}
