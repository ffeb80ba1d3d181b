//! IPv4 header without options (RFC 791).

use super::Be16;
use crate::{V4, plain};

/// Length of a header without options.
pub const MIN_LEN: usize = 20;
/// Version 4, header without options.
pub const PLAIN: u8 = 0x45;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Offset of the time to live and protocol word within the header.
pub const TTL_OFFSET: usize = 8;
/// Offset of the checksum within the header.
pub const CHECKSUM_OFFSET: usize = 10;
/// Offset of the source address within the header.
pub const SRC_OFFSET: usize = 12;
/// "Don't fragment", as a value of `fragment`.
pub const DONT_FRAGMENT: Be16 = Be16::new(0x4000);

/// The fixed part of an IPv4 header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Ipv4 {
    /// Version (4) and header length in 32-bit words.
    pub version_ihl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload in bytes.
    pub total_len: Be16,
    /// Identification.
    pub id: Be16,
    /// Flags and fragment offset.
    pub fragment: Be16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: Be16,
    /// Source address.
    pub src: V4,
    /// Destination address.
    pub dst: V4,
}

plain! { Ipv4 = 20: u8, u8, Be16, Be16, Be16, u8, u8, Be16, V4, V4; }

impl Ipv4 {
    /// Header length in bytes: 0 to 60, under 20 is invalid.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        ((self.version_ihl & 0x0f) as usize) * 4
    }

    /// True when this packet is a fragment, first or later (RFC 791: MF set or offset not 0).
    #[inline(always)]
    pub const fn is_fragment(&self) -> bool {
        self.fragment.word() & Be16::new(0x3fff).word() != 0
    }

    /// Full checksum of this header, taken to have no options.
    #[inline(always)]
    pub fn computed_checksum(&self) -> Be16 {
        let sum = u32::from(u16::from_ne_bytes([self.version_ihl, self.tos]))
            + u32::from(self.total_len.word())
            + u32::from(self.id.word())
            + u32::from(self.fragment.word())
            + u32::from(u16::from_ne_bytes([self.ttl, self.protocol]))
            + crate::Address::sum(self.src)
            + crate::Address::sum(self.dst);
        Be16::from_word(!crate::checksum::fold(sum))
    }
}
