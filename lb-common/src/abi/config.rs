//! Settings of the data plane: one array slot that changes while running, and one constant
//! per attached program that says which link it serves.

use crate::{Address, Mac, V4, plain};

/// Settings shared by all programs; the only slot of map `config`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Config<A> {
    /// Cluster-wide seed of the flow hash.
    pub seed: u64,
    /// Source address of full NAT.
    pub snat: A,
    /// First and last SNAT port, host order.
    pub snat_ports: [u16; 2],
    /// Refusals per second.
    pub refusals: u32,
    /// 1 while SYN failover is on.
    pub failover: u32,
}

plain! { Config<V4> = 24: u64, V4, [u16; 2], u32, u32; }

impl<A: Address> Config<A> {
    /// Nothing configured: no SNAT address, no refusals.
    pub const EMPTY: Self = Self {
        seed: 0,
        snat: A::UNSPECIFIED,
        snat_ports: [0; 2],
        refusals: 0,
        failover: 0,
    };
}

/// Nothing special about the link.
pub const LINK_NONE: u8 = 0;
/// Frames may carry unfinished checksums (veth, virtio, tap).
pub const LINK_VIRTUAL: u8 = 1;
/// The program runs on socket buffers (generic XDP): sent frames keep their checksum's kind.
pub const LINK_GENERIC: u8 = 2;

/// The link a program is attached to; a read-only constant of each loaded program, so it
/// costs a packet nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Link {
    /// Interface index.
    pub ifindex: u32,
    /// Its hardware address; frames for another one are not ours.
    pub mac: Mac,
    /// Bits `LINK_*`.
    pub flags: u8,
    /// Zero.
    pub zero: u8,
}

plain! { Link = 12: u32, Mac, u8, u8; }
