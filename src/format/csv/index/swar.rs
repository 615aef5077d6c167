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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_set_for_just_the_bytes_that_are_equal() {
        for byte in 0..=255u8 {
            for other in 0..=255u8 {
                // Neighbours of every kind: a carry would reach them.
                let bytes = [byte, other, byte, 0, other, 255, byte ^ 0x80, other];
                let expected = (0..8).filter(|place| bytes[*place] == byte).map(|place| 1u64 << place).sum::<u64>();
                assert_eq!(equal_bytes(u64::from_le_bytes(bytes), byte), expected, "{byte} in {bytes:?}");
            }
        }
    }

    #[test]
    fn parity_counts_up_to_and_including_a_bit() {
        for bits in [0, 1, u64::MAX, 1 << 63, 0x8000_0001_0100_0080, 0x0123_4567_89ab_cdef] {
            let expected = (0..64).map(|place| u64::from((bits << (63 - place)).count_ones() % 2) << place);
            assert_eq!(prefix_xor(bits), expected.sum::<u64>(), "{bits:x}");
        }
    }
}
