//! Which bit of the destination bitmap stands for an address.
//!
//! The bitmap is the first question asked of every packet, so it is one multiplication and one
//! array read. Several addresses may share a bit: a set bit means "look further", never "ours".
//! Agent and data plane must agree on it, so it exists once, here.

use crate::{V4, limits};

/// Elements of 64 bits that the bitmap has.
pub const ELEMENTS: u32 = 1 << (limits::BITMAP_BITS - 6);

/// The bit that stands for `address`: element `bit >> 6`, bit `bit & 63` of it.
#[inline(always)]
pub const fn bitmap_index(address: V4) -> u32 {
    u32::from_ne_bytes(address.0).wrapping_mul(0x9E37_79B1) >> (32 - limits::BITMAP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_get_bits_of_their_own() {
        let mut seen = [0u64; ELEMENTS as usize];
        for last in 0..=255 {
            let bit = bitmap_index(V4([192, 0, 2, last]));
            let element = &mut seen[(bit >> 6) as usize];
            assert_eq!(
                *element >> (bit & 63) & 1,
                0,
                "address {last} shares bit {bit}"
            );
            *element |= 1 << (bit & 63);
        }
    }
}
