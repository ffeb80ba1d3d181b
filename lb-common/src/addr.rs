//! Addresses of either family as map keys and packet fields.
//!
//! The pipeline is generic over [`Address`], so that a second family means another
//! implementation here and in `lb-ebpf`'s `family`, not copied stages.

use crate::plain;

/// An IP address in wire order.
pub trait Address: crate::abi::pod::Plain + crate::select::Address + Eq + core::fmt::Debug {
    /// The unspecified address.
    const UNSPECIFIED: Self;

    /// One's-complement sum of the address as 16-bit words in memory order; at most 20 bits.
    fn sum(self) -> u32;

    /// 32 bits of the address for hashing; all of it for IPv4, folded for longer ones.
    fn fold(self) -> u32;

    /// False for addresses that no sender can have: unspecified, loopback, multicast, broadcast.
    fn is_unicast(self) -> bool;
}

/// IPv4 address, wire order.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(C, align(4))]
pub struct V4(pub [u8; 4]);

plain! { V4 = 4: [u8; 4]; }

impl Address for V4 {
    const UNSPECIFIED: Self = Self([0; 4]);

    #[inline(always)]
    fn sum(self) -> u32 {
        let word = u32::from_ne_bytes(self.0);
        (word & 0xffff) + (word >> 16)
    }

    #[inline(always)]
    fn fold(self) -> u32 {
        u32::from_ne_bytes(self.0)
    }

    #[inline(always)]
    fn is_unicast(self) -> bool {
        let first = self.0[0];
        first != 0 && first != 127 && first < 224
    }
}

impl crate::select::Address for V4 {
    #[inline(always)]
    fn fold_pair(state: u64, source: Self, destination: Self) -> u64 {
        crate::select::Address::fold_pair(state, source.0, destination.0)
    }
}

impl From<core::net::Ipv4Addr> for V4 {
    fn from(address: core::net::Ipv4Addr) -> Self {
        Self(address.octets())
    }
}

impl From<V4> for core::net::Ipv4Addr {
    fn from(address: V4) -> Self {
        Self::from(address.0)
    }
}
