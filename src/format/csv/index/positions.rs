//! A list of positions that is filled from bit masks.

/// Positions at once, without asking after each one whether it was the last.
const GROUP: usize = 8;

/// Positions in rising order.
#[derive(Debug, Default)]
pub(in super::super) struct Positions {
    /// Has room behind what is filled, so that whole groups can be written.
    room: Vec<u32>,
    len: usize,
}

impl Positions {
    pub(in super::super) fn as_slice(&self) -> &[u32] {
        &self.room[..self.len]
    }

    /// Forgets all, and begins with `first`.
    pub(in super::super) fn restart(&mut self, first: u32) {
        self.len = 0;
        self.push(first);
    }

    pub(in super::super) fn push(&mut self, position: u32) {
        if self.room.len() == self.len {
            self.make_room();
        }
        self.room[self.len] = position;
        self.len += 1;
    }

    /// Adds `base + i` for each bit i that is set.
    #[inline(always)]
    pub(in super::super) fn push_bits(&mut self, base: u32, mut bits: u64) {
        if self.room.len() - self.len < 64 {
            self.make_room();
        }
        let count = bits.count_ones() as usize;
        let (groups, _) = self.room[self.len..].as_chunks_mut::<GROUP>();
        for group in groups.iter_mut().take(count.div_ceil(GROUP)) {
            for position in group {
                // When none is left this writes what is overwritten later.
                *position = base + bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
            }
        }
        self.len += count;
    }

    /// Drops the first `count`.
    pub(in super::super) fn drop_first(&mut self, count: usize) {
        self.room.copy_within(count..self.len, 0);
        self.len -= count;
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        let len = (2 * self.len).max(self.len + 64);
        self.room.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_positions_in_order() {
        let mut positions = Positions::default();
        positions.restart(3);
        let mut expected = vec![3];
        let masks = [0, 1, u64::MAX, 1 << 63, 0xff, 0x1ff, 0x8000_0000_0000_0001, 0x5555_5555_5555_5555, 0];
        for (mask, base) in masks.into_iter().zip((10..).step_by(64)) {
            positions.push_bits(base, mask);
            expected.extend((0..64).filter(|place| mask >> place & 1 == 1).map(|place| base + place));
        }
        positions.push(9999);
        expected.push(9999);
        assert_eq!(positions.as_slice(), expected);
        positions.drop_first(70);
        assert_eq!(positions.as_slice(), &expected[70..]);
        positions.restart(5);
        assert_eq!(positions.as_slice(), [5]);
    }
}
