//! The masks by AVX2, and parity by a carry-less multiplication: the one place of this folder that is unsafe.
#![expect(unsafe_code, reason = "instructions that not every processor has, and loads of 32 bytes")]

use std::arch::x86_64::{
    __m256i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi8, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
};

use super::{Block, Index, Irregular, Masks, Special, Visitor};

/// Exists only where the processor has what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("popcnt");
        has_all.then_some(Self(()))
    }

    pub(super) fn advance(
        self,
        index: &mut Index,
        data: &[u8],
        num_bytes: usize,
        visitor: &mut impl Visitor,
    ) -> Result<(), Irregular> {
        // SAFETY: there is a `self` only if `detect` found every feature that `advance` is compiled for.
        unsafe { advance(index, data, num_bytes, visitor) }
    }
}

#[target_feature(enable = "avx2,pclmulqdq,bmi1,popcnt")]
fn advance(index: &mut Index, data: &[u8], num_bytes: usize, visitor: &mut impl Visitor) -> Result<(), Irregular> {
    let special = index.special;
    index.walk(data, num_bytes, |block| masks(block, special), |bits| prefix_xor(bits), visitor)
}

#[target_feature(enable = "avx2")]
#[inline]
fn masks(block: &Block, special: Special) -> Masks {
    let (halves, _) = block.as_chunks::<32>();
    let [low, high] = [load(&halves[0]), load(&halves[1])];
    let equal = |byte: u8| {
        let byte = _mm256_set1_epi8(byte as i8);
        let bits = |half: __m256i| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(half, byte)) as u32);
        bits(low) | bits(high) << 32
    };
    Masks { delimiter: equal(special.delimiter), newline: equal(b'\n'), quote: equal(special.quote) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to 32 bytes that may be read, and the load wants no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Bit i becomes the parity of the bits up to and including i: the low half of the product with all ones.
#[target_feature(enable = "pclmulqdq")]
#[inline]
fn prefix_xor(bits: u64) -> u64 {
    let product = _mm_clmulepi64_si128::<0>(_mm_set_epi64x(0, bits as i64), _mm_set1_epi8(-1));
    _mm_cvtsi128_si64(product) as u64
}
