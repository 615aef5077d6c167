//! What an index has to say, found byte by byte: to hold both kernels against.

use super::{Found, Index, Irregular, Kernel, Visitor};
use crate::format::csv::record::Dialect;

/// What an index says of some data: positions, and whether all of it is regular.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Said {
    pub(super) structural: Vec<usize>,
    pub(super) record_ends: Vec<usize>,
    pub(super) doubled: Vec<usize>,
    pub(super) is_regular: bool,
    pub(super) ends_inside: bool,
    pub(super) has_quotes: bool,
}

impl Visitor for Said {
    fn visit(&mut self, found: Found) -> Result<(), Irregular> {
        let Self { structural, record_ends, doubled, .. } = self;
        for (list, mask) in [(structural, found.structural), (record_ends, found.record_ends), (doubled, found.doubled)]
        {
            list.extend((0..64).filter(|place| mask >> place & 1 == 1).map(|place| found.base + place));
        }
        Ok(())
    }
}

pub(super) fn indexed(kernel: Kernel, dialect: &Dialect, data: &[u8], step: usize) -> Said {
    let (mut said, mut index) = (Said::default(), Index::new(kernel, dialect, 0));
    said.is_regular = loop {
        if index.advance(data, step, &mut said).is_err() {
            break false;
        }
        if index.at() == data.len() {
            break true;
        }
    };
    if said.is_regular {
        (said.ends_inside, said.has_quotes) = (index.is_inside(), index.has_quotes());
    }
    said
}

/// The same, byte by byte.
pub(super) fn byte_by_byte(dialect: &Dialect, data: &[u8]) -> Said {
    let mut said = Said { is_regular: true, ..Said::default() };
    let mut field_start = true;
    for (at, byte) in data.iter().enumerate() {
        let is_quote = dialect.quote == Some(*byte);
        let is_structural = !said.ends_inside && (*byte == dialect.delimiter.first() || *byte == b'\n');
        let is_behind_closing = at > 0 && dialect.quote == Some(data[at - 1]) && !said.ends_inside;
        let is_crlf = data[at..].starts_with(b"\r\n");
        let opens = is_quote && !said.ends_inside;
        if (opens && !field_start && !is_behind_closing)
            || (is_behind_closing && !is_quote && !is_structural && !is_crlf)
        {
            return Said { is_regular: false, ends_inside: false, has_quotes: false, ..said };
        }
        if opens && is_behind_closing {
            said.doubled.push(at);
        }
        if is_structural {
            said.structural.push(at);
        }
        if is_structural && *byte == b'\n' {
            said.record_ends.push(at);
        }
        said.has_quotes |= is_quote;
        said.ends_inside ^= is_quote;
        field_start = is_structural;
    }
    said
}

fn kernels() -> [Kernel; 2] {
    [Kernel::Swar, Kernel::detect()]
}

/// Holds both kernels against single bytes.
#[track_caller]
pub(in super::super) fn check(dialect: &Dialect, data: &[u8], step: usize) {
    let expected = byte_by_byte(dialect, data);
    for kernel in kernels() {
        assert_eq!(indexed(kernel, dialect, data, step), expected, "{kernel:?}, {step} bytes a step: {data:?}");
    }
}
