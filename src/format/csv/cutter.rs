//! Cuts CSV at record ends.

use memchr::{memchr2, memchr3, memrchr};

use super::record::{Dialect, Scan};
use crate::format::RecordCutter;

/// Finds how much of the data is whole records, quotes respected.
#[derive(Debug)]
pub(crate) struct CsvCutter {
    dialect: Dialect,
}

impl CsvCutter {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect }
    }

    /// Says whether no line end of `data` can be inside a field.
    fn every_line_is_a_record(&self, data: &[u8]) -> bool {
        match (self.dialect.quote, self.dialect.escape) {
            (None, None) => true,
            (Some(quote), Some(escape)) => memchr3(quote, escape, quote, data).is_none(),
            (Some(byte), None) | (None, Some(byte)) => memchr2(byte, byte, data).is_none(),
        }
    }
}

impl RecordCutter for CsvCutter {
    fn cut(&mut self, data: &[u8]) -> usize {
        if self.every_line_is_a_record(data) {
            return memrchr(b'\n', data).map_or(0, |end| end + 1);
        }
        let mut fields = Vec::new();
        let mut at = 0;
        while at < data.len() {
            fields.clear();
            match self.dialect.scan(data, at, false, &mut fields) {
                Scan::Record { next } | Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => {
                    at = next
                }
                Scan::Incomplete => break,
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::CsvOptions;
    use super::*;

    /// Where records start, scanning the whole of `data` at once.
    fn starts(dialect: &Dialect, data: &[u8]) -> Vec<usize> {
        let (mut at, mut starts) = (0, Vec::new());
        while at < data.len() {
            starts.push(at);
            at = match dialect.scan(data, at, true, &mut Vec::new()) {
                Scan::Record { next } | Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => {
                    next
                }
                Scan::Incomplete => panic!("incomplete at the end"),
            };
        }
        starts
    }

    proptest! {
        /// Whatever the pieces in which data arrives, every cut is at a record's start.
        #[test]
        fn any_pieces_are_cut_where_records_start(
            data in "[ab,\"\\\\#\r\n]{0,60}",
            pieces in prop::collection::vec(1usize..9, 0..40),
            escape in any::<bool>(),
            comment in any::<bool>(),
            max_record_bytes in prop::sample::select(vec![3usize, 8, 1 << 20]),
        ) {
            let options = CsvOptions {
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
                done += cutter.cut(&data[done..seen]);
                prop_assert!(done == data.len() || starts.contains(&done), "cut at {} of {:?}", done, data);
            }
        }
    }
}
