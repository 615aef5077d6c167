//! Where delimiters and record ends are: a structural index, made 64 bytes at a time.
//!
//! Each block of 64 bytes becomes three bit masks: delimiters, line feeds, quotes. Whether a byte is inside quotes
//! is the parity of the quotes up to it, which is one carry-less multiplication for 64 bytes:
//!
//! ```text
//! bytes        1,"a,""b",2⏎
//! quotes       ..1..11.1...
//! inside       ..111.11....
//! structural   .1.......1.1      delimiters and line feeds that aren't inside
//! ```
//!
//! Parity alone can't be trusted: a quote inside an unquoted field is data. So an index goes on only while the text
//! is *regular*: a quote that opens stands at a field's start or right behind one that closes (a doubled quote), and
//! one that closes stands before a delimiter, a record's end or a quote. At the first violation it stops. The records
//! that it saw end before are exactly those of the reference (`record`): a quote elsewhere would have stopped it.
//!
//! Things it doesn't know, and leaves to those who make one: a delimiter of several bytes, and escapes and comments,
//! which the data must not have ([`Dialect::is_indexable`]); and that a quote has to close in time, so a record with quotes that is longer than
//! `max_record_bytes` has to be shown to the reference.
//!
//! The masks are made by AVX2 where the processor has it (`x86`), and everywhere by plain 64-bit arithmetic
//! (`swar`); tests hold the two against each other and against single bytes.

#[cfg(any(test, fuzzing))]
pub(super) mod oracle;
mod positions;
mod swar;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use positions::Positions;

use super::record::Dialect;

/// Bytes that become one word of each mask.
pub(super) const BLOCK_BYTES: usize = 64;

type Block = [u8; BLOCK_BYTES];

/// Which instructions make the masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Swar,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
}

impl Kernel {
    /// The fastest that this processor has.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = x86::Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Swar
    }
}

/// The bytes that the masks are made of.
#[derive(Clone, Copy, Debug)]
struct Special {
    delimiter: u8,
    quote: u8,
    /// All ones if there are quotes at all.
    has_quotes: u64,
}

/// Where the special bytes of a block are; bit 0 is its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Masks {
    delimiter: u64,
    newline: u64,
    quote: u64,
}

/// What was found in one block; bit 0 is the byte at `base`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) base: usize,
    /// Delimiters and line feeds outside quotes.
    pub(super) structural: u64,
    /// The line feeds among them.
    pub(super) record_ends: u64,
    /// The second quote of each doubled one.
    pub(super) doubled: u64,
}

/// Takes what is found.
///
/// Not a closure: it has to be inlined into the walk, which is compiled for other instructions than its caller.
pub(super) trait Visitor {
    /// Takes what was found in the next block.
    ///
    /// # Errors
    /// [`Irregular`] if no more is wanted.
    fn visit(&mut self, found: Found) -> Result<(), Irregular>;
}

/// The text stopped being regular, or the visitor wanted no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Irregular;

/// Walks over data from a record's start.
#[derive(Clone, Debug)]
pub(super) struct Index {
    kernel: Kernel,
    special: Special,
    /// The next byte to be looked at.
    at: usize,
    state: State,
}

/// What a block has to know of those before it.
#[derive(Clone, Copy, Debug)]
struct State {
    /// All ones if the byte before was inside quotes.
    inside: u64,
    /// 1 if a field starts here.
    field_start: u64,
    /// 1 if the byte before is a quote that closes.
    behind_closing: u64,
    /// All quotes so far, or'ed.
    quotes: u64,
}

impl Index {
    /// Begins at `at`, where a record starts.
    pub(super) fn new(kernel: Kernel, dialect: &Dialect, at: usize) -> Self {
        let special = Special {
            delimiter: dialect.delimiter.first(),
            quote: dialect.quote.unwrap_or_default(),
            has_quotes: if dialect.quote.is_some() { u64::MAX } else { 0 },
        };
        let state = State { inside: 0, field_start: 1, behind_closing: 0, quotes: 0 };
        Self { kernel, special, at, state }
    }

    /// The next byte to be looked at.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Says whether there was a quote so far.
    pub(super) fn has_quotes(&self) -> bool {
        self.state.quotes != 0
    }

    /// Says whether what comes next is inside quotes.
    pub(super) fn is_inside(&self) -> bool {
        self.state.inside != 0
    }

    /// Looks at about `num_bytes` more of `data`, whole blocks, or what is left, and shows `visitor` what is in each.
    ///
    /// # Errors
    /// [`Irregular`] at the first violation, after a visit with what stands before it; or if a visit returned it. An
    /// index is of no further use then.
    pub(super) fn advance(
        &mut self,
        data: &[u8],
        num_bytes: usize,
        visitor: &mut impl Visitor,
    ) -> Result<(), Irregular> {
        match self.kernel {
            Kernel::Swar => {
                let special = self.special;
                self.walk(data, num_bytes, |block| swar::masks(block, special), swar::prefix_xor, visitor)
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(avx2) => avx2.advance(self, data, num_bytes, visitor),
        }
    }

    /// The walk, for certain instructions. Inlined into each kernel, so that all of it is compiled for them.
    #[inline(always)]
    fn walk(
        &mut self,
        data: &[u8],
        num_bytes: usize,
        masks: impl Fn(&Block) -> Masks,
        prefix_xor: impl Fn(u64) -> u64,
        visitor: &mut impl Visitor,
    ) -> Result<(), Irregular> {
        let (mut at, mut state) = (self.at, self.state);
        let (blocks, tail) = data.get(at..).unwrap_or_default().as_chunks::<BLOCK_BYTES>();
        let num_blocks = num_bytes.div_ceil(BLOCK_BYTES);
        let mut outcome = Ok(());
        for block in blocks.iter().take(num_blocks) {
            let masks = self.special.without_missing_quotes(masks(block));
            outcome = visit_block(&mut state, data, at, masks, &prefix_xor, visitor);
            at += BLOCK_BYTES;
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_ok() && num_blocks >= blocks.len() && !tail.is_empty() {
            let mut padded = [0; BLOCK_BYTES];
            padded[..tail.len()].copy_from_slice(tail);
            let masks = self.special.without_missing_quotes(masks(&padded)).first(tail.len());
            outcome = visit_block(&mut state, data, at, masks, &prefix_xor, visitor);
            at = data.len();
        }
        (self.at, self.state) = (at, state);
        outcome
    }
}

impl Special {
    #[inline(always)]
    fn without_missing_quotes(self, masks: Masks) -> Masks {
        Masks { quote: masks.quote & self.has_quotes, ..masks }
    }
}

impl Masks {
    /// Without what stands behind the first `len` bytes, which are fewer than a block.
    fn first(self, len: usize) -> Self {
        let kept = (1 << len) - 1;
        Self { delimiter: self.delimiter & kept, newline: self.newline & kept, quote: self.quote & kept }
    }
}

/// Tells what is structural in the block at `base`, and checks its quotes.
#[inline(always)]
fn visit_block(
    state: &mut State,
    data: &[u8],
    base: usize,
    Masks { delimiter, newline, quote }: Masks,
    prefix_xor: impl Fn(u64) -> u64,
    visitor: &mut impl Visitor,
) -> Result<(), Irregular> {
    if quote | state.inside | state.behind_closing == 0 {
        let structural = delimiter | newline;
        state.field_start = structural >> 63;
        return visitor.visit(Found { base, structural, record_ends: newline, doubled: 0 });
    }
    let inside = prefix_xor(quote) ^ state.inside;
    let structural = (delimiter | newline) & !inside;
    let (opening, closing) = (quote & inside, quote & !inside);
    let field_starts = structural << 1 | state.field_start;
    let behind_closing = closing << 1 | state.behind_closing;
    let text_behind = behind_closing & !(structural | quote);
    let violations = opening & !(field_starts | behind_closing) | without_line_ends(data, base, text_behind);
    // All bits below the first violation.
    let regular = if violations == 0 { u64::MAX } else { (1 << violations.trailing_zeros()) - 1 };
    *state = State {
        inside: ((inside as i64) >> 63) as u64,
        field_start: structural >> 63,
        behind_closing: closing >> 63,
        quotes: state.quotes | quote,
    };
    visitor.visit(Found {
        base,
        structural: structural & regular,
        record_ends: newline & structural & regular,
        doubled: opening & behind_closing & regular,
    })?;
    if violations == 0 { Ok(()) } else { Err(Irregular) }
}

/// Without the bytes behind a closing quote that end its record in another way than by a line feed: a CRLF, or
/// the end of the data. They are few enough to be looked at one by one.
#[inline(always)]
fn without_line_ends(data: &[u8], base: usize, text_behind: u64) -> u64 {
    let (mut left, mut text) = (text_behind, text_behind);
    while left != 0 {
        let place = left.trailing_zeros();
        left &= left - 1;
        if matches!(data.get(base + place as usize..), None | Some([] | [b'\r', b'\n', ..])) {
            text &= !(1 << place);
        }
    }
    text
}

impl Dialect {
    /// Says whether an index understands all of `data`: a delimiter of one byte, and no escapes or comments.
    pub(super) fn is_indexable(&self, data: &[u8]) -> bool {
        self.delimiter.is_one_byte()
            && [self.escape, self.comment].iter().flatten().all(|byte| memchr::memchr(*byte, data).is_none())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::CsvOptions;
    use super::oracle::{byte_by_byte, check, indexed};
    use super::*;

    /// Numbers that look random and are the same in every run.
    fn noise(seed: u64) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(seed | 1), |state| {
            let state = state ^ (state << 13);
            let state = state ^ (state >> 7);
            Some(state ^ (state << 17))
        })
        .map(|state| (state >> 32) as usize)
    }

    #[test]
    fn text_is_told_from_structure() {
        // So that a run under valgrind says what it looked at.
        println!("the fastest here: {:?}", Kernel::detect());
        let said = indexed(Kernel::detect(), &CsvOptions::default().dialect(), b"1,\"a,\"\"b\",2\n", 64);
        assert_eq!((said.structural, said.record_ends, said.doubled), (vec![1, 9, 11], vec![11], vec![6]));
        assert!(said.is_regular && !said.ends_inside);
    }

    #[test]
    fn both_kernels_see_what_single_bytes_say_at_every_alignment_and_length() {
        let dialect = CsvOptions::default().dialect();
        let alphabets: [&[u8]; 3] = [b",\n\"a", b"\"\"\"a,\n\r", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,\n\""];
        for (alphabet, seed) in alphabets.into_iter().zip(1u64..) {
            let data: Vec<u8> = noise(seed).map(|n| alphabet[n % alphabet.len()]).take(64 + 140).collect();
            for offset in 0..64 {
                for len in 0..=140 {
                    // Nothing may be read behind its end: there valgrind looks.
                    let data = data[..offset + len].to_vec();
                    check(&dialect, &data[offset..], if len % 2 == 0 { 64 } else { usize::MAX });
                }
            }
        }
    }

    #[test]
    fn regular_text_is_seen_whole_at_every_alignment_and_length() {
        let dialect = CsvOptions::default().dialect();
        let fields: [&[u8]; 6] =
            [b"1,", b"\"a,\n\",", b"\"\"\"b\"\"\"\n", b"\"\",", b"\"\"\"\"\r\n", b"text without end,"];
        for seed in 1..20 {
            let data: Vec<u8> = noise(seed).take(60).flat_map(|n| fields[n % fields.len()]).copied().collect();
            assert!(byte_by_byte(&dialect, &data).is_regular);
            for len in 0..=data.len() {
                check(&dialect, &data[..len], 1);
            }
        }
    }

    #[test]
    fn every_byte_may_be_the_delimiter_or_the_quote() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for (delimiter, quote) in [(0u8, Some(0x7f)), (0x7f, Some(1)), (b',', None), (b'|', Some(b'\''))] {
            let dialect = CsvOptions { delimiter: Some(delimiter.into()), quote, ..CsvOptions::default() }.dialect();
            check(&dialect, &all, usize::MAX);
            for byte in 0..=255 {
                check(&dialect, &[byte; 3], usize::MAX);
                check(&dialect, &[b'a', byte, b'\n', delimiter], usize::MAX);
            }
        }
    }

    proptest! {
        #[test]
        fn both_kernels_see_what_single_bytes_say(
            data in prop::collection::vec(prop::sample::select(b"\"\",,\n\ra'".to_vec()), 0..300),
            quote in prop::sample::select(vec![Some(b'"'), Some(b'\''), None]),
            step in 1usize..200,
        ) {
            check(&CsvOptions { quote, ..CsvOptions::default() }.dialect(), &data, step);
        }
    }
}
