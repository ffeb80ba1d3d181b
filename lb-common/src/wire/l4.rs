//! TCP (RFC 9293) and UDP (RFC 768) headers.

use super::{Be16, Be32};
use crate::plain;

/// Length of a TCP header without options.
pub const TCP_LEN: usize = 20;
/// Length of a UDP header.
pub const UDP_LEN: usize = 8;
/// Offset of TCP's checksum.
pub const TCP_CHECKSUM: usize = 16;
/// Offset of UDP's checksum.
pub const UDP_CHECKSUM: usize = 6;

/// TCP flag: no more data.
pub const FIN: u8 = 0x01;
/// TCP flag: synchronise.
pub const SYN: u8 = 0x02;
/// TCP flag: reset.
pub const RST: u8 = 0x04;
/// TCP flag: acknowledgement is valid.
pub const ACK: u8 = 0x10;

/// Source and destination port, the first four bytes of TCP and UDP alike.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, align(4))]
pub struct Ports {
    /// Source port.
    pub src: Be16,
    /// Destination port.
    pub dst: Be16,
}

impl Ports {
    /// The other direction's ports.
    #[inline(always)]
    pub const fn swapped(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
        }
    }

    /// Sum of the two words, for checksum sums.
    #[inline(always)]
    pub const fn sum(self) -> u32 {
        self.src.word() as u32 + self.dst.word() as u32
    }
}

/// The fixed part of a TCP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Tcp {
    /// Ports.
    pub ports: Ports,
    /// Sequence number of the first byte (or of the SYN).
    pub seq: Be32,
    /// Next sequence number expected.
    pub ack: Be32,
    /// Header length in 32-bit words, in the upper four bits.
    pub data_offset: u8,
    /// Flags.
    pub flags: u8,
    /// Receive window.
    pub window: Be16,
    /// Checksum.
    pub checksum: Be16,
    /// Urgent pointer.
    pub urgent: Be16,
}

impl Tcp {
    /// Header length in bytes: 0 to 60, under 20 is invalid.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        ((self.data_offset >> 4) as usize) * 4
    }
}

/// UDP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Udp {
    /// Ports.
    pub ports: Ports,
    /// Length of header and payload.
    pub length: Be16,
    /// Checksum; 0 means none (IPv4 only).
    pub checksum: Be16,
}

plain! {
    Ports = 4: Be16, Be16;
    Tcp = 20: Ports, Be32, Be32, u8, u8, Be16, Be16, Be16;
    Udp = 8: Ports, Be16, Be16;
}
