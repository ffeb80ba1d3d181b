//! ARP for IPv4 over Ethernet (RFC 826).

use super::{Be16, Mac};
use crate::{V4, plain};

/// Length of an Ethernet/IPv4 ARP message.
pub const LEN: usize = 28;
/// Operation: request.
pub const REQUEST: Be16 = Be16::new(1);
/// Operation: reply.
pub const REPLY: Be16 = Be16::new(2);

/// IPv4 address at two-byte alignment, as it stands in ARP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C, align(2))]
pub struct ArpAddress(pub [u8; 4]);

impl ArpAddress {
    /// As an address.
    #[inline(always)]
    pub const fn v4(self) -> V4 {
        V4(self.0)
    }
}

/// ARP message for Ethernet and IPv4.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Arp {
    /// Hardware type: 1.
    pub hardware: Be16,
    /// Protocol type: 0x0800.
    pub protocol: Be16,
    /// Length of a hardware address: 6.
    pub hardware_len: u8,
    /// Length of a protocol address: 4.
    pub protocol_len: u8,
    /// Request or reply.
    pub operation: Be16,
    /// Sender's hardware address.
    pub sender_mac: Mac,
    /// Sender's protocol address.
    pub sender: ArpAddress,
    /// Target's hardware address.
    pub target_mac: Mac,
    /// Target's protocol address.
    pub target: ArpAddress,
}

plain! {
    ArpAddress = 4: [u8; 4];
    Arp = 28: Be16, Be16, u8, u8, Be16, Mac, ArpAddress, Mac, ArpAddress;
}

impl Arp {
    /// True for the one combination of types and lengths that this layout describes.
    #[inline(always)]
    pub fn is_ethernet_ipv4(&self) -> bool {
        self.hardware == Be16::new(1)
            && self.protocol == super::eth::IPV4
            && self.hardware_len == 6
            && self.protocol_len == 4
    }
}
