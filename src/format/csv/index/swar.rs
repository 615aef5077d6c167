//! The masks by 64-bit arithmetic, eight bytes in a register: for every processor.

use super::{Block, Masks, Special};

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

#[inline(always)]
pub(super) fn masks(block: &Block, special: Special) -> Masks {
    let mut masks = Masks { delimiter: 0, newline: 0, quote: 0 };
    let (words, _) = block.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        masks.delimiter |= equal_bytes(word, special.delimiter) << (8 * place);
        masks.newline |= equal_bytes(word, b'\n') << (8 * place);
        masks.quote |= equal_bytes(word, special.quote) << (8 * place);
    }
    masks
}

/// A bit for each of the eight bytes of `word`, set if it is `byte`.
#[inline(always)]
fn equal_bytes(word: u64, byte: u8) -> u64 {
    let different = word ^ (LOW_BITS * u64::from(byte));
    // The high bit of each byte that isn't 0: adding carries into it from the low seven, and nowhere else.
    let not_zero = ((different & !HIGH_BITS) + !HIGH_BITS) | different;
    let equal = (!not_zero & HIGH_BITS) >> 7;
    // Bit 8i goes to bit 56 + i; no two products meet.
    equal.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Bit i becomes the parity of the bits up to and including i.
#[inline(always)]
pub(super) fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}
