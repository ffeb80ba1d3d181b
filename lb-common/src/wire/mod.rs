//! Header layouts, as they stand in the packet.
//!
//! Every header is a plain struct in wire order that is read and written whole; the accessors
//! convert. None of them checks a length: that is done where the bytes are read.

pub mod arp;
pub mod eth;
pub mod icmp;
pub mod ipv4;
pub mod l4;

use crate::plain;

/// 16-bit integer in wire order.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(C, align(2))]
pub struct Be16([u8; 2]);

impl Be16 {
    /// From host order.
    #[inline(always)]
    pub const fn new(value: u16) -> Self {
        Self(value.to_be_bytes())
    }

    /// To host order.
    #[inline(always)]
    pub const fn get(self) -> u16 {
        u16::from_be_bytes(self.0)
    }

    /// The bytes as a native word, for checksum sums.
    #[inline(always)]
    pub const fn word(self) -> u16 {
        u16::from_ne_bytes(self.0)
    }

    /// From a native word of a checksum sum.
    #[inline(always)]
    pub const fn from_word(word: u16) -> Self {
        Self(word.to_ne_bytes())
    }
}

/// 32-bit integer in wire order.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, align(4))]
pub struct Be32([u8; 4]);

impl Be32 {
    /// From host order.
    #[inline(always)]
    pub const fn new(value: u32) -> Self {
        Self(value.to_be_bytes())
    }

    /// To host order.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        u32::from_be_bytes(self.0)
    }

    /// Sum of its two native words, for checksum sums.
    #[inline(always)]
    pub const fn sum(self) -> u32 {
        let word = u32::from_ne_bytes(self.0);
        (word & 0xffff) + (word >> 16)
    }
}

/// Ethernet hardware address.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(C, align(2))]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Its bytes in two native integers: copied as bytes, an address takes a detour by the stack.
    #[inline(always)]
    pub const fn pieces(&self) -> (u32, u16) {
        let bytes = self.0;
        (
            u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            u16::from_ne_bytes([bytes[4], bytes[5]]),
        )
    }

    /// True for group addresses (broadcast and multicast).
    #[inline(always)]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

plain! {
    Be16 = 2: [u8; 2];
    Be32 = 4: [u8; 4];
    Mac = 6: [u8; 6];
}
