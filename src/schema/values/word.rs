//! Digits, eight at a time.
//!
//! A [`Word`] holds up to eight characters less `'0'`. The first one is the lowest byte and the last one the
//! highest; where there are fewer than eight, zeros stand in front, which change no number:
//!
//! ```text
//! "4711"    byte 0  1  2  3  4  5  6  7
//!                0  0  0  0  4  7  1  1
//! ```
//!
//! Texts up to seven characters are put together from two halves that overlap, longer ones are covered by
//! words that are shifted until they overlap no more: neither needs a loop, whose end a processor guesses wrongly
//! as soon as numbers differ in length.
//!
//! What isn't wholly digits, with a point at most, gives `None`. That never means a fault: who calls here asks the
//! general path of its type, which knows the whole language and the reason for a refusal.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x80 * ONES;

/// 10 to the power of the index.
pub(super) const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// Up to eight characters less `'0'`.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

impl Word {
    #[inline(always)]
    pub(super) fn new(text: &[u8; 8]) -> Self {
        Self(u64::from_le_bytes(*text) ^ (u64::from(b'0') * ONES))
    }

    /// One to seven characters.
    #[inline(always)]
    fn short(text: &[u8]) -> Option<Self> {
        let len = text.len() as u32;
        // From 8 to 56, so that shifts by it wrap nowhere.
        let free_bits = 64u32.wrapping_sub(8 * len);
        let characters = if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first).wrapping_shl(free_bits) | u64::from(last) << 32
        } else {
            // Of one character this is three times the same one, of two the second one twice.
            let (first, middle, last) = (*text.first()?, *text.get(text.len() / 2)?, *text.last()?);
            u64::from(first).wrapping_shl(free_bits)
                | u64::from(middle).wrapping_shl(free_bits + 8 * (len / 2))
                | u64::from(last) << 56
        };
        Some(Self(characters ^ (u64::from(b'0') * ONES).wrapping_shl(free_bits)))
    }

    /// The first `len` of eight characters, from 0 to 8.
    #[inline(always)]
    fn first(self, len: usize) -> Self {
        Self(self.0.unbounded_shl(64 - 8 * len as u32))
    }

    /// The last `len` of eight characters, from 0 to 8.
    #[inline(always)]
    pub(super) fn last(self, len: usize) -> Self {
        let free_bits = 64 - 8 * len as u32;
        Self(self.0.unbounded_shr(free_bits).unbounded_shl(free_bits))
    }

    /// The number that eight digits are: two neighbours make one of 0 to 99, then all four of them at once.
    #[inline(always)]
    pub(super) fn value(self) -> u64 {
        let pairs = self.0.wrapping_mul(10).wrapping_add(self.0 >> 8);
        let every_second = 0x0000_00FF_0000_00FF;
        let odd = (pairs & every_second).wrapping_mul(100 + (1_000_000 << 32));
        let even = (pairs >> 16 & every_second).wrapping_mul(1 + (10_000 << 32));
        odd.wrapping_add(even) >> 32
    }

    /// Takes the first point out, if there is one: what stood before it moves up by one place. Also returns how many
    /// characters stand behind it.
    #[inline(always)]
    fn without_point(self) -> Option<(Self, u32)> {
        let differences = self.0 ^ (u64::from(b'.' ^ b'0') * ONES);
        // The lowest bit that is set here is the high bit of the first byte that is 0. (Above it a borrow may set more.)
        let zeros = differences.wrapping_sub(ONES) & !differences & HIGH_BITS;
        if zeros == 0 {
            return None;
        }
        let through_point = zeros ^ (zeros - 1);
        let (before, behind) = (self.0 & (through_point >> 8), self.0 & !through_point);
        Some((Self(before << 8 | behind), 7 - zeros.trailing_zeros() / 8))
    }
}

/// Says whether there is nothing but digits in `words`.
#[inline(always)]
pub(super) fn all_digits<const N: usize>(words: [Word; N]) -> bool {
    // From 10 to 127 the sum reaches the high bit; from 128 it is set already.
    let too_high = |word: Word| word.0 | word.0.wrapping_add(0x76 * ONES);
    words.into_iter().fold(0, |faults, word| faults | too_high(word)) & HIGH_BITS == 0
}

/// The number that one to 19 digits are.
#[inline(always)]
pub(super) fn magnitude(text: &[u8]) -> Option<u64> {
    let len = text.len();
    let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) else {
        let word = Word::short(text)?;
        return all_digits([word]).then(|| word.value());
    };
    let (first, last) = (Word::new(first), Word::new(last));
    match len {
        8..=16 => {
            let head = first.first(len - 8);
            all_digits([head, last]).then(|| head.value() * POWERS[8] + last.value())
        }
        17..=19 => {
            let (head, middle) = (first.first(len - 16), Word::new(text[len - 16..].first_chunk()?));
            let value = || (head.value() * POWERS[8] + middle.value()) * POWERS[8] + last.value();
            all_digits([head, middle, last]).then(value)
        }
        _ => None,
    }
}

/// A number without sign and exponent: `digits / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain<T> {
    pub(super) digits: T,
    /// How many of the digits stand behind the point.
    pub(super) scale: u32,
}

/// Up to 19 digits with a point at most, which stands among the first eight or the last eight characters.
#[inline(always)]
pub(super) fn plain(text: &[u8]) -> Option<Plain<u64>> {
    let len = text.len();
    let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) else {
        let word = Word::short(text)?;
        let (digits, scale) = word.without_point().unwrap_or((word, 0));
        // A point alone is no number.
        let is_number = all_digits([digits]) && text != b".";
        return is_number.then(|| Plain { digits: digits.value(), scale });
    };
    let (first, last) = (Word::new(first), Word::new(last));
    if let Some((head, behind)) = first.without_point() {
        // Seven digits, and what follows them.
        let scale = behind + len as u32 - 8;
        return match len {
            8..=16 => {
                let tail = last.last(len - 8);
                let digits = || head.value() * POWERS[len - 8] + tail.value();
                all_digits([head, tail]).then(|| Plain { digits: digits(), scale })
            }
            17..=20 => {
                let middle = Word::new(text[8..].first_chunk()?).first(len - 16);
                let digits = || head.value() * POWERS[len - 8] + middle.value() * POWERS[8] + last.value();
                all_digits([head, middle, last]).then(|| Plain { digits: digits(), scale })
            }
            _ => None,
        };
    }
    if len > 16 {
        return None;
    }
    let head = first.first(len - 8);
    let (tail, power, scale) = match last.without_point() {
        Some((tail, behind)) => (tail, POWERS[7], behind),
        None => (last, POWERS[8], 0),
    };
    all_digits([head, tail]).then(|| Plain { digits: head.value() * power + tail.value(), scale })
}

/// Up to 38 digits with a point at most, anywhere.
pub(super) fn long_plain(text: &[u8]) -> Option<Plain<u128>> {
    let (whole, fraction) = match text.iter().position(|&c| c == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[..0]),
    };
    if !(1..=38).contains(&(whole.len() + fraction.len())) {
        return None;
    }
    let digits = followed_by(followed_by(0, whole)?, fraction)?;
    Some(Plain { digits, scale: fraction.len() as u32 })
}

/// The digits of `value`, and then those of `text`. Both together are no more than 38.
fn followed_by(mut value: u128, text: &[u8]) -> Option<u128> {
    let (eights, rest) = text.as_chunks();
    for eight in eights {
        let word = Word::new(eight);
        if !all_digits([word]) {
            return None;
        }
        value = value * u128::from(POWERS[8]) + u128::from(word.value());
    }
    if rest.is_empty() {
        return Some(value);
    }
    Some(value * u128::from(POWERS[rest.len()]) + u128::from(magnitude(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "98765432109876543210987654321098765432";

    /// One digit after the other.
    fn slow_plain(text: &[u8]) -> Option<Plain<u128>> {
        let mut number = Plain { digits: 0u128, scale: 0 };
        let (mut num_digits, mut point) = (0, false);
        for &c in text {
            match c {
                b'.' if !point => point = true,
                b'0'..=b'9' => {
                    number.digits = number.digits * 10 + u128::from(c - b'0');
                    number.scale += u32::from(point);
                    num_digits += 1;
                }
                _ => return None,
            }
        }
        (num_digits > 0).then_some(number)
    }

    fn widened(number: Plain<u64>) -> Plain<u128> {
        Plain { digits: number.digits.into(), scale: number.scale }
    }

    #[test]
    fn digits_of_every_length_are_read() {
        for len in 1..=19 {
            for text in [&DIGITS[..len], &"0000000000000000001"[19 - len..], &"9999999999999999999"[..len]] {
                assert_eq!(magnitude(text.as_bytes()), Some(text.parse().unwrap()), "{text}");
            }
        }
        assert_eq!(magnitude(b""), None);
        assert_eq!(magnitude(&DIGITS.as_bytes()[..20]), None);
    }

    #[test]
    fn a_byte_that_is_no_digit_is_seen_at_every_place_of_every_length() {
        for len in 1..=19 {
            for at in 0..len {
                for byte in (0..=255).filter(|byte: &u8| !byte.is_ascii_digit()) {
                    let mut text = DIGITS.as_bytes()[..len].to_vec();
                    text[at] = byte;
                    assert_eq!(magnitude(&text), None, "{text:?}");
                    if byte != b'.' {
                        assert_eq!(plain(&text), None, "{text:?}");
                        assert_eq!(long_plain(&text), None, "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_point_may_stand_at_every_place_of_every_length() {
        for len in 1..=38 {
            for at in 0..=len {
                let text = format!("{}.{}", &DIGITS[..at], &DIGITS[at..len]);
                let expected = slow_plain(text.as_bytes());
                assert_eq!(long_plain(text.as_bytes()), expected, "{text}");
                // Of longer ones only those are known whose point stands near one end.
                let known = len < 16 || (len < 20 && at < 8);
                assert_eq!(plain(text.as_bytes()).map(widened), expected.filter(|_| known), "{text}");
            }
        }
    }

    #[test]
    fn two_points_are_no_number_and_one_alone_is_none() {
        for len in 0..=36 {
            for first in 0..=len {
                for second in first..=len {
                    let text = format!("{}.{}.{}", &DIGITS[..first], &DIGITS[first..second], &DIGITS[second..len]);
                    assert_eq!(plain(text.as_bytes()), None, "{text}");
                    assert_eq!(long_plain(text.as_bytes()), None, "{text}");
                }
            }
        }
        assert_eq!((plain(b"."), long_plain(b".")), (None, None));
        assert_eq!((plain(b""), long_plain(b"")), (None, None));
    }
}
