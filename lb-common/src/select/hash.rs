//! The flow hash: which row of a table a connection belongs to.
//!
//! Computed for every new connection in the kernel and by the agent when it traces one, and equal
//! on every node of a cluster, so that any of them picks the same row. Per 64 bits of input one
//! xor, one multiplication and one fold: IPv4 costs three multiplications. It is keyed, but it is
//! no cryptographic hash: it must never be the only thing between an attacker and a resource.

/// Odd constants with no structure of their own: from the golden ratio, and `MurmurHash3`'s finalizer.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
const FINISH: u64 = 0xff51_afd7_ed55_8ccd;

/// An address as it stands in the packet, as an input of [`flow_hash`].
pub trait Address: Copy {
    /// Mixes source and destination into `state`.
    #[must_use]
    fn fold_pair(state: u64, source: Self, destination: Self) -> u64;
}

impl Address for [u8; 4] {
    #[inline(always)]
    fn fold_pair(state: u64, source: Self, destination: Self) -> u64 {
        let [s0, s1, s2, s3] = source;
        let [d0, d1, d2, d3] = destination;
        fold(state, u64::from_le_bytes([s0, s1, s2, s3, d0, d1, d2, d3]))
    }
}

impl Address for [u8; 16] {
    #[inline(always)]
    fn fold_pair(state: u64, source: Self, destination: Self) -> u64 {
        let state = fold(state, half(source, 0));
        let state = fold(state, half(source, 8));
        let state = fold(state, half(destination, 0));
        fold(state, half(destination, 8))
    }
}

/// Hash of a connection, uniform in each of its 32 bits. Ports are in host order.
#[inline(always)]
pub fn flow_hash<A: Address>(
    source: A,
    source_port: u16,
    destination: A,
    destination_port: u16,
    protocol: u8,
    seed: u64,
) -> u32 {
    let state = A::fold_pair(seed, source, destination);
    let rest =
        u64::from(source_port) | u64::from(destination_port) << 16 | u64::from(protocol) << 32;
    let state = fold(state, rest).wrapping_mul(FINISH);
    (state >> 32) as u32
}

#[inline(always)]
fn fold(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(FOLD);
    product ^ (product >> 32)
}

#[inline(always)]
fn half(address: [u8; 16], at: usize) -> u64 {
    u64::from_le_bytes([
        address[at],
        address[at + 1],
        address[at + 2],
        address[at + 3],
        address[at + 4],
        address[at + 5],
        address[at + 6],
        address[at + 7],
    ])
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const SEED: u64 = 0x736c_7569_6365_0001;

    /// Standard deviations by which the chi-square statistic of `hashes` over `rows` rows is off.
    fn chi_square_z(hashes: impl Iterator<Item = u32>, rows: u32, shift: u32) -> f64 {
        let mut counts = vec![0u32; rows as usize];
        let mut total = 0u32;
        for hash in hashes {
            counts[(hash >> shift & (rows - 1)) as usize] += 1;
            total += 1;
        }
        let expected = f64::from(total) / f64::from(rows);
        let chi: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - expected).powi(2) / expected)
            .sum();
        let freedom = f64::from(rows - 1);
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    fn v6(last: u32) -> [u8; 16] {
        let mut address = [0; 16];
        address[0] = 0x20;
        address[1] = 1;
        address[12..].copy_from_slice(&last.to_be_bytes());
        address
    }

    /// Inputs as real clients make them: runs of ports, of addresses, and both.
    fn sets() -> Vec<(&'static str, Vec<u32>)> {
        let vip = [192, 0, 2, 10];
        let ports = |seed| {
            (0..1u32 << 16).map(move |p| flow_hash([198, 51, 100, 7], p as u16, vip, 443, 6, seed))
        };
        let even = (0..1u32 << 16).map(|p| {
            flow_hash(
                [198, 51, 100, (p >> 15) as u8],
                (p << 1) as u16,
                vip,
                443,
                6,
                SEED,
            )
        });
        let hosts = (0..1u32 << 18)
            .map(|a| flow_hash((0x0a00_0000 + a).to_be_bytes(), 40_000, vip, 443, 6, SEED));
        let both = (0..1u32 << 18).map(|i| {
            let address = 0xc633_6400 + (i >> 10);
            flow_hash(
                address.to_be_bytes(),
                32_768 + (i & 1023) as u16,
                vip,
                80,
                17,
                SEED,
            )
        });
        let networks = (0..1u32 << 16)
            .map(|a| flow_hash((a << 16 | 1).to_be_bytes(), 40_000, vip, 443, 6, SEED));
        let services = (0..1u32 << 16).map(|i| {
            let vip = 0xc000_0200 + (i >> 8);
            flow_hash(
                [198, 51, 100, 7],
                40_000,
                vip.to_be_bytes(),
                (i & 255) as u16,
                6,
                SEED,
            )
        });
        let six = (0..1u32 << 18).map(|i| {
            flow_hash(
                v6(i >> 6),
                40_000 + (i & 63) as u16,
                v6(0xffff_0000),
                443,
                6,
                SEED,
            )
        });
        vec![
            ("ports", ports(SEED).collect()),
            ("ports, seed 0", ports(0).collect()),
            ("ports, seed 1", ports(1).collect()),
            ("even ports", even.collect()),
            ("hosts", hosts.collect()),
            ("hosts x ports", both.collect()),
            ("networks", networks.collect()),
            ("vips x ports", services.collect()),
            ("IPv6", six.collect()),
        ]
    }

    #[test]
    fn sequential_inputs_are_uniform_over_rows() {
        for (name, hashes) in sets() {
            for rows_log2 in [0, 1, 8, 10, 11, 14] {
                for shift in [0, 32 - rows_log2] {
                    let rows = 1 << rows_log2;
                    if rows == 1 {
                        continue;
                    }
                    let z = chi_square_z(hashes.iter().copied(), rows, shift);
                    assert!(
                        z < 5.0,
                        "{name}: {rows} rows, bits from {shift}: z = {z:.1}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_bit_of_input_flips_half_of_the_output() {
        let mut flips = [0u32; 97];
        let rounds = 2000u32;
        for round in 0..rounds {
            let a = round.wrapping_mul(0x9e37_79b1).to_be_bytes();
            let base = flow_hash(a, round as u16, [192, 0, 2, 1], 80, 6, SEED);
            for (bit, flipped) in flips.iter_mut().enumerate().take(96) {
                let mut words = [
                    u32::from_be_bytes(a),
                    0xc000_0201,
                    (round & 0xffff) << 16 | 0x50,
                ];
                words[bit / 32] ^= 1 << (bit % 32);
                let hash = flow_hash(
                    words[0].to_be_bytes(),
                    (words[2] >> 16) as u16,
                    words[1].to_be_bytes(),
                    words[2] as u16,
                    6,
                    SEED,
                );
                *flipped += (hash ^ base).count_ones();
            }
        }
        for (bit, &flipped) in flips.iter().enumerate().take(96) {
            let mean = f64::from(flipped) / f64::from(rounds);
            assert!(
                (13.0..19.0).contains(&mean),
                "input bit {bit} flips {mean:.2} of 32"
            );
        }
    }

    #[test]
    fn every_field_counts() {
        let (a, b, other) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 9]);
        let base = flow_hash(a, 1000, b, 2000, 6, SEED);
        let changed = [
            flow_hash(other, 1000, b, 2000, 6, SEED),
            flow_hash(a, 1001, b, 2000, 6, SEED),
            flow_hash(a, 1000, other, 2000, 6, SEED),
            flow_hash(a, 1000, b, 2001, 6, SEED),
            flow_hash(a, 1000, b, 2000, 17, SEED),
            flow_hash(a, 1000, b, 2000, 6, SEED + 1),
            flow_hash(b, 2000, a, 1000, 6, SEED),
        ];
        assert!(!changed.contains(&base), "{changed:?} contains {base}");
    }

    #[test]
    fn values_are_part_of_the_contract_between_nodes() {
        let four = flow_hash([198, 51, 100, 7], 40_000, [192, 0, 2, 10], 443, 6, SEED);
        let six = flow_hash(v6(1), 40_000, v6(2), 443, 6, SEED);
        assert_eq!((four, six), (4_102_619_993, 4_081_194_181));
    }
}
