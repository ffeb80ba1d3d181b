//! The destination bitmap: one bit tells most packets that are not ours apart, before any hash
//! lookup. A false positive costs a lookup and nothing else.

use crate::{Address, limits};

/// Bit of an address in map `dest_bitmap`: word `index >> 6`, bit `index & 63`.
#[inline(always)]
pub fn bitmap_index<A: Address>(address: A) -> u32 {
    // Multiplicative hashing with 2^32 / the golden ratio.
    address.fold().wrapping_mul(0x9e37_79b1) >> (32 - limits::BITMAP_BITS)
}
