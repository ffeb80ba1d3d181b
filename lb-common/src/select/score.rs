//! Who wins a row: the score of one endpoint for one row.
//!
//! Plain rendezvous hashing draws every score independently; an endpoint then has more or fewer
//! high scores by luck, and that luck is half of the imbalance. Here an endpoint's scores over the
//! rows are a keyed *permutation* of `0..rows`: each value exactly once. Every row still ranks all
//! endpoints by a function of the endpoint alone, so nothing of rendezvous hashing is lost.
//! A score must never depend on which other endpoints exist.

use core::net::{IpAddr, SocketAddr};

/// What an endpoint is to the tables: its address and port. Ordered: this is the canonical order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Identity {
    address: [u8; 16],
    port: u16,
}

impl Identity {
    /// Identity of an endpoint; an IPv4 address counts as its IPv4-mapped IPv6 address.
    pub fn new(endpoint: SocketAddr) -> Self {
        let address = match endpoint.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self {
            address: address.octets(),
            port: endpoint.port(),
        }
    }

    fn halves(&self) -> [u64; 2] {
        let (halves, _) = self.address.as_chunks::<8>();
        [0, 1].map(|half: usize| {
            halves
                .get(half)
                .map_or(0, |bytes| u64::from_be_bytes(*bytes))
        })
    }
}

impl From<SocketAddr> for Identity {
    fn from(endpoint: SocketAddr) -> Self {
        Self::new(endpoint)
    }
}

/// The key of one endpoint's permutation, derived from the cluster's seed and its identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScoreKey {
    multiply: [u32; 3],
    add: [u32; 4],
    tie: u32,
}

impl ScoreKey {
    /// Derives the key; every node of a cluster derives the same.
    pub fn new(seed: u64, identity: &Identity) -> Self {
        let mut state = seed;
        let [upper, lower] = identity.halves();
        for word in [upper, lower, u64::from(identity.port)] {
            state = finish(state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ word);
        }
        let draw = |n: u64| finish(state ^ n.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let low = |x: u64| x as u32;
        let high = |x: u64| (x >> 32) as u32;
        let [a, b, c, d] = [draw(1), draw(2), draw(3), draw(4)];
        Self {
            multiply: [low(a) | 1, high(a) | 1, low(b) | 1],
            add: [high(b), low(c), high(c), low(d)],
            tie: high(d),
        }
    }

    /// The endpoint's place for `row` among `1 << rows_log2` rows: a permutation of the rows.
    ///
    /// Each step is a bijection on `rows_log2` bits: adding, multiplying by an odd number, and
    /// folding the upper half into the lower one.
    #[inline]
    pub fn stratum(&self, row: u32, rows_log2: u32) -> u32 {
        let mask = (1 << rows_log2) - 1;
        let fold = rows_log2.div_ceil(2);
        let mut x = row;
        for (multiply, add) in self.multiply.iter().zip(&self.add) {
            x = x.wrapping_add(*add).wrapping_mul(*multiply) & mask;
            x ^= x >> fold;
        }
        x.wrapping_add(self.add[3]) & mask
    }

    /// Score for `row`: the stratum in the upper bits, a hash to break ties in the lower 32.
    #[inline]
    pub fn score(&self, row: u32, rows_log2: u32) -> u64 {
        let tie = (row ^ self.tie).wrapping_mul(0x9e37_79b1);
        let tie = (tie ^ tie >> 15).wrapping_mul(self.multiply[0]);
        u64::from(self.stratum(row, rows_log2)) << 32 | u64::from(tie)
    }
}

/// Finalizer of splitmix64 (Steele, Lea and Flood, 2014).
fn finish(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strata_are_a_permutation(seed: u64, host: u32, port: u16, rows_log2 in 0u32..=16) {
            let endpoint = SocketAddr::new(IpAddr::from(host.to_be_bytes()), port);
            let key = ScoreKey::new(seed, &Identity::new(endpoint));
            let mut seen = vec![false; 1 << rows_log2];
            for row in 0..1 << rows_log2 {
                let stratum = key.stratum(row, rows_log2) as usize;
                prop_assert!(!seen[stratum]);
                seen[stratum] = true;
            }
        }
    }

    #[test]
    fn mapped_addresses_are_one_endpoint() {
        let four = Identity::new("192.0.2.1:80".parse().expect("literal"));
        let mapped = Identity::new("[::ffff:192.0.2.1]:80".parse().expect("literal"));
        let port = Identity::new("192.0.2.1:81".parse().expect("literal"));
        assert_eq!(four, mapped);
        assert_ne!(ScoreKey::new(1, &four), ScoreKey::new(1, &port));
        assert_ne!(ScoreKey::new(1, &four), ScoreKey::new(2, &four));
    }
}
