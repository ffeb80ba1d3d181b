//! Ethernet II header (IEEE 802.3).

use super::{Be16, Mac};
use crate::plain;

/// Length of the header; where the network header starts.
pub const LEN: usize = 14;
/// Offset of the source.
pub const SRC_OFFSET: usize = 6;
/// Offset of the EtherType.
pub const ETHERTYPE_OFFSET: usize = 12;
/// EtherType of IPv4.
pub const IPV4: Be16 = Be16::new(0x0800);
/// EtherType of ARP.
pub const ARP: Be16 = Be16::new(0x0806);

/// Ethernet header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Ethernet {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// EtherType of what follows.
    pub ethertype: Be16,
}

plain! { Ethernet = 14: Mac, Mac, Be16; }
