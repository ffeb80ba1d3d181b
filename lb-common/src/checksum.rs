//! Internet checksum arithmetic (RFC 1071, RFC 1624), on 16-bit words in memory order.
//!
//! One's-complement sums do not care about byte order as long as every word is loaded the
//! same way, so nothing here swaps bytes. A *delta* is what a change adds to the
//! uncomplemented sum: `sum(new) + !sum(old)`.
//!
//! A checksum field comes in two kinds on virtual links: *full* (the complement of the sum)
//! and *partial* (`CHECKSUM_PARTIAL`: the uncomplemented pseudo-header sum, which a later
//! device completes). They want different updates: [`update_full`] and [`update_partial`].

use crate::Address;

/// Folds a sum of 16-bit words into 16 bits. Never returns 0 for a non-zero sum.
#[inline(always)]
pub const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Folds a sum of 32-bit words into 16 bits.
#[inline(always)]
pub const fn fold64(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = sum as u32;
    fold((sum & 0xffff) + (sum >> 16))
}

/// Delta of replacing words that sum to `old` by words that sum to `new` (both at most 20 bits).
#[inline(always)]
pub const fn delta(old: u32, new: u32) -> u16 {
    fold(new + (!fold(old)) as u32)
}

/// Sum of two deltas.
#[inline(always)]
pub const fn add(a: u16, b: u16) -> u16 {
    fold(a as u32 + b as u32)
}

/// New value of a full checksum field after a change (RFC 1624, equation 3).
#[inline(always)]
pub const fn update_full(field: u16, delta: u16) -> u16 {
    !fold((!field) as u32 + delta as u32)
}

/// The same after two changes.
#[inline(always)]
pub const fn update_twice(field: u16, one: u16, other: u16) -> u16 {
    !fold((!field) as u32 + one as u32 + other as u32)
}

/// New value of a partial checksum field after a change of addresses. Ports and payload are
/// not part of it: the device adds them later.
#[inline(always)]
pub const fn update_partial(field: u16, address_delta: u16) -> u16 {
    fold(field as u32 + address_delta as u32)
}

/// Uncomplemented sum of the pseudo-header: what a partial field holds.
#[inline(always)]
pub fn pseudo<A: Address>(src: A, dst: A, protocol: u8, length: u16) -> u16 {
    let [protocol, length] = [protocol.into(), length].map(|word: u16| u32::from(word.to_be()));
    fold(src.sum() + dst.sum() + protocol + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow_sum(words: &[u16]) -> u16 {
        let mut sum = words.iter().map(|&w| u64::from(w)).sum::<u64>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// 0 and 0xffff are one value in one's complement.
    fn same(a: u16, b: u16) -> bool {
        a == b || (a.min(b) == 0 && a.max(b) == 0xffff)
    }

    proptest! {
        #[test]
        fn incremental_update_equals_recomputation(
            mut words in proptest::collection::vec(any::<u16>(), 2..40),
            new in any::<[u16; 2]>(),
        ) {
            let field = !slow_sum(&words);
            let old = [words[0], words[1]];
            let change = delta(
                u32::from(words[0]) + u32::from(words[1]),
                u32::from(new[0]) + u32::from(new[1]),
            );
            words[..2].copy_from_slice(&new);
            prop_assert!(same(update_full(field, change), !slow_sum(&words)));
            let [a, b] = [0, 1].map(|at| delta(u32::from(old[at]), u32::from(new[at])));
            prop_assert_eq!(update_twice(field, a, b), update_full(field, change));
        }

        #[test]
        fn wide_fold_equals_narrow_fold(words in proptest::collection::vec(any::<u16>(), 0..200)) {
            let wide = words
                .chunks(2)
                .map(|c| u64::from(c[0]) | (u64::from(c.get(1).copied().unwrap_or(0)) << 16))
                .sum();
            prop_assert!(same(fold64(wide), slow_sum(&words)));
        }
    }
}
