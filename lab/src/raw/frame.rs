//! Frames as bytes: TCP, UDP and ARP over Ethernet, with checksums computed the slow and obvious way.
//!
//! Independent of the product's own packet code on purpose: the two must be able to disagree.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bits of the TCP header.
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Opens a connection.
    pub const SYN: u8 = 0x02;
    /// Resets it.
    pub const RST: u8 = 0x04;
    /// Pushes data.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
}

/// All that a TCP frame says; the lengths and checksums follow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TcpFrame {
    /// Sender's MAC address.
    pub src_mac: [u8; 6],
    /// Receiver's MAC address.
    pub dst_mac: [u8; 6],
    /// Source address and port.
    pub from: SocketAddrV4,
    /// Destination address and port.
    pub to: SocketAddrV4,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags, see [`tcp_flags`].
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Options, a multiple of four bytes and at most 40.
    pub options: Vec<u8>,
    /// Data.
    pub payload: Vec<u8>,
}

/// Builds a TCP frame.
///
/// # Panics
/// If the options are no multiple of four bytes, or anything is too long for its length field.
pub fn tcp(frame: &TcpFrame) -> Vec<u8> {
    assert!(
        frame.options.len().is_multiple_of(4) && frame.options.len() <= 40,
        "TCP options of an impossible length"
    );
    let header_words = 5 + (frame.options.len() / 4) as u8;
    let mut segment = Vec::with_capacity(60 + frame.payload.len());
    segment.extend(frame.from.port().to_be_bytes());
    segment.extend(frame.to.port().to_be_bytes());
    segment.extend(frame.seq.to_be_bytes());
    segment.extend(frame.ack.to_be_bytes());
    segment.extend([header_words << 4, frame.flags]);
    segment.extend(frame.window.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(&frame.options);
    segment.extend(&frame.payload);
    let sum = transport_checksum(*frame.from.ip(), *frame.to.ip(), 6, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(
        frame.src_mac,
        frame.dst_mac,
        *frame.from.ip(),
        *frame.to.ip(),
        6,
        &segment,
    )
}

/// Builds a UDP frame.
///
/// # Panics
/// If the payload is too long for its length field.
pub fn udp(
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    from: SocketAddrV4,
    to: SocketAddrV4,
    payload: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).expect("a UDP payload that fits");
    let mut segment = Vec::with_capacity(8 + payload.len());
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend(length.to_be_bytes());
    segment.extend([0; 2]);
    segment.extend(payload);
    let sum = match transport_checksum(*from.ip(), *to.ip(), 17, &segment) {
        // Zero would mean "no checksum" (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    segment[6..8].copy_from_slice(&sum.to_be_bytes());
    ipv4(src_mac, dst_mac, *from.ip(), *to.ip(), 17, &segment)
}

/// Builds an ICMP frame: kind and code, then four bytes and whatever it quotes.
///
/// # Panics
/// If the body is too long for its length field.
pub fn icmp(
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    [from, to]: [Ipv4Addr; 2],
    [kind, code]: [u8; 2],
    body: &[u8],
) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(body);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4(src_mac, dst_mac, from, to, 1, &message)
}

/// All that an ARP frame says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arp {
    /// Sender in the Ethernet header.
    pub src_mac: [u8; 6],
    /// Receiver in the Ethernet header.
    pub dst_mac: [u8; 6],
    /// 1 asks, 2 answers.
    pub operation: u16,
    /// Sender hardware address.
    pub sender_mac: [u8; 6],
    /// Sender protocol address.
    pub sender: Ipv4Addr,
    /// Target hardware address.
    pub target_mac: [u8; 6],
    /// Target protocol address.
    pub target: Ipv4Addr,
}

impl Arp {
    /// The question who has `target`, to everybody.
    pub fn question(sender_mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            src_mac: sender_mac,
            dst_mac: [0xff; 6],
            operation: 1,
            sender_mac,
            sender,
            target_mac: [0; 6],
            target,
        }
    }

    /// A gratuitous request: "I have `address`", which moves a Linux neighbour entry at once.
    pub fn gratuitous(mac: [u8; 6], address: Ipv4Addr) -> Self {
        Self::question(mac, address, address)
    }
}

/// Builds an ARP frame, unpadded as virtual links carry it.
pub fn arp(arp: &Arp) -> Vec<u8> {
    let mut frame = ethernet(arp.src_mac, arp.dst_mac, 0x0806);
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(arp.operation.to_be_bytes());
    frame.extend(arp.sender_mac);
    frame.extend(arp.sender.octets());
    frame.extend(arp.target_mac);
    frame.extend(arp.target.octets());
    frame
}

/// The internet checksum (RFC 1071) over these bytes, complemented.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn transport_checksum(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, segment: &[u8]) -> u16 {
    let mut bytes = Vec::with_capacity(12 + segment.len());
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend([0, protocol]);
    bytes.extend(
        u16::try_from(segment.len())
            .expect("a segment that fits")
            .to_be_bytes(),
    );
    bytes.extend(segment);
    checksum(&bytes)
}

fn ipv4(
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    segment: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(20 + segment.len()).expect("a datagram that fits");
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(src_mac, dst_mac, 0x0800);
    frame.extend(header);
    frame.extend(segment);
    frame
}

fn ethernet(src: [u8; 6], dst: [u8; 6], ether_type: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    frame.extend(dst);
    frame.extend(src);
    frame.extend(ether_type.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_the_rfc() {
        // RFC 1071, section 3.
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
        assert_eq!(checksum(&[0xff]), !0xff00, "an odd byte is the high one");
    }

    #[test]
    fn what_is_built_sums_to_zero() {
        let [from, to] = [1, 2].map(|last| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), 80));
        let frame = udp([1; 6], [2; 6], from, to, b"odd");
        assert_eq!(frame.len(), 14 + 20 + 8 + 3);
        assert_eq!(checksum(&frame[14..34]), 0);
        assert_eq!(
            transport_checksum(*from.ip(), *to.ip(), 17, &frame[34..]),
            0
        );
        let syn = TcpFrame {
            src_mac: [1; 6],
            dst_mac: [2; 6],
            from,
            to,
            seq: 1,
            ack: 2,
            flags: tcp_flags::SYN,
            window: 3,
            options: vec![2, 4, 5, 0xb4],
            payload: b"x".to_vec(),
        };
        let frame = tcp(&syn);
        assert_eq!(frame[46] >> 4, 6, "header length in words");
        assert_eq!(transport_checksum(*from.ip(), *to.ip(), 6, &frame[34..]), 0);
    }
}
