//! Bytes that both ends can compute: what a download must contain, at any offset, from a seed alone.
//!
//! The receiver compares every byte as it comes, so that a wrong one is found at its place and time, not at the end.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Fills `out` with the stream's bytes from `offset` on.
pub fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    let mut at = offset;
    let mut rest = out;
    while !rest.is_empty() {
        let word = word(seed, at / 8).to_le_bytes();
        let skip = (at % 8) as usize;
        let take = rest.len().min(8 - skip);
        let (head, tail) = rest.split_at_mut(take);
        head.copy_from_slice(&word[skip..skip + take]);
        at += take as u64;
        rest = tail;
    }
}

/// True if `bytes` are the stream's from `offset` on.
pub fn matches(seed: u64, offset: u64, bytes: &[u8]) -> bool {
    let mut want = [0_u8; 4096];
    let mut at = offset;
    bytes.chunks(want.len()).all(|chunk| {
        let want = &mut want[..chunk.len()];
        fill(seed, at, want);
        at += chunk.len() as u64;
        chunk == want
    })
}

/// The SHA-256 of the stream's first `length` bytes, in hex as `sha256sum` prints it.
pub fn sha256(seed: u64, length: u64) -> String {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0_u8; 64 * 1024];
    let mut at = 0;
    while at < length {
        let take = (length - at).min(chunk.len() as u64) as usize;
        fill(seed, at, &mut chunk[..take]);
        hasher.update(&chunk[..take]);
        at += take as u64;
    }
    hex(&hasher.finalize())
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// SplitMix64 of a counter: no state to carry, so any offset is as cheap as the first.
fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_offset_gives_the_same_stream() {
        let mut whole = vec![0; 1000];
        fill(7, 0, &mut whole);
        for (from, to) in [(0, 0), (0, 1), (3, 17), (8, 16), (999, 1000), (5, 1000)] {
            let mut part = vec![0; to - from];
            fill(7, from as u64, &mut part);
            assert_eq!(part, whole[from..to], "{from}..{to}");
            assert!(matches(7, from as u64, &part));
        }
        whole[500] ^= 1;
        assert!(!matches(7, 0, &whole));
        assert!(!matches(8, 0, &whole[..10]));
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        let mut bytes = vec![0; 100_000];
        fill(1, 0, &mut bytes);
        assert_eq!(sha256(1, 100_000), hex(&Sha256::digest(&bytes)));
        assert_eq!(
            sha256(1, 0),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
