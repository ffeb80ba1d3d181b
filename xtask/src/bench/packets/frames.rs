//! Frames that go in, and whether what comes out is still a sound packet.
//!
//! Built and summed from scratch: a bench that shared the checksum code of what it measures would
//! not notice when that is fast and wrong.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Result, ensure};

/// A hardware address.
pub(super) type Mac = [u8; 6];

/// Length of Ethernet, IPv4 and TCP header without options.
pub(super) const HEADERS: usize = 54;
const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
/// What Linux sends: MSS, SACK permitted, time stamps, window scale.
const SYN_OPTIONS: [u8; 20] = [
    2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
];

/// Who sends a frame to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Source and destination hardware address.
    pub(super) macs: (Mac, Mac),
    /// Source.
    pub(super) src: SocketAddrV4,
    /// Destination.
    pub(super) dst: SocketAddrV4,
}

/// A segment of an established connection, with a little data.
pub(super) fn segment(way: Way) -> Vec<u8> {
    tcp(way, ACK, &[], b"GET /")
}

/// A connection's first.
pub(super) fn syn(way: Way) -> Vec<u8> {
    tcp(way, SYN, &SYN_OPTIONS, &[])
}

fn tcp(way: Way, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(way.src.port().to_be_bytes());
    segment.extend(way.dst.port().to_be_bytes());
    segment.extend(0x1000_0001_u32.to_be_bytes());
    segment.extend(0x2000_0001_u32.to_be_bytes());
    let words = 5 + options.len() / 4;
    segment.extend([(words as u8) << 4, flags]);
    segment.extend(64_240_u16.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(options);
    segment.extend(data);
    let sum = !sum(&[
        &pseudo(*way.src.ip(), *way.dst.ip(), segment.len()),
        &segment,
    ]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());

    let mut header = vec![0x45, 0];
    header.extend((20 + segment.len() as u16).to_be_bytes());
    header.extend([0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
    header.extend(way.src.ip().octets());
    header.extend(way.dst.ip().octets());
    let sum = !self::sum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());

    let (from, to) = way.macs;
    let mut frame = [to.as_slice(), &from, &[8, 0], &header, &segment].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// What a program has made of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Seen {
    /// Destination hardware address.
    pub(super) next_hop: Mac,
    /// Source.
    pub(super) src: SocketAddrV4,
    /// Destination.
    pub(super) dst: SocketAddrV4,
    /// Time to live.
    pub(super) ttl: u8,
}

/// Reads a frame back; an error unless both checksums are right.
pub(super) fn read(frame: &[u8]) -> Result<Seen> {
    ensure!(frame.len() >= HEADERS, "{} bytes only", frame.len());
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let packet = frame.get(14..14 + total).unwrap_or_default();
    ensure!(packet.len() >= 40, "a total length of {total}");
    let (header, segment) = packet.split_at(20);
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let (src, dst) = (address(12), address(16));
    ensure!(sum(&[header]) == 0xffff, "the IPv4 checksum is wrong");
    ensure!(
        sum(&[&pseudo(src, dst, segment.len()), segment]) == 0xffff,
        "the TCP checksum is wrong"
    );
    Ok(Seen {
        next_hop: [frame[0], frame[1], frame[2], frame[3], frame[4], frame[5]],
        src: SocketAddrV4::new(src, port(0)),
        dst: SocketAddrV4::new(dst, port(2)),
        ttl: header[8],
    })
}

fn pseudo(src: Ipv4Addr, dst: Ipv4Addr, len: usize) -> Vec<u8> {
    let [high, low] = (len as u16).to_be_bytes();
    [src.octets(), dst.octets(), [0, 6, high, low]].concat()
}

/// One's-complement sum of parts that each begin at an even offset.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::{Way, read, segment, syn};

    #[test]
    fn frames_read_back_as_built_and_damage_is_seen() {
        let way = Way {
            macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
            src: "198.18.0.1:40000".parse().unwrap(),
            dst: "192.0.2.10:80".parse().unwrap(),
        };
        for frame in [segment(way), syn(way)] {
            let seen = read(&frame).unwrap();
            assert_eq!((seen.src, seen.dst, seen.ttl), (way.src, way.dst, 64));
            assert_eq!(seen.next_hop, way.macs.1);
            for at in [22, 26, 33, 36, 50] {
                let mut damaged = frame.clone();
                damaged[at] ^= 1;
                assert!(read(&damaged).is_err(), "byte {at}");
            }
        }
    }
}
