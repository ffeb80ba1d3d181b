//! The headers of a TCP packet without options: the only packet memory that is touched here.
//!
//! Their length is checked once, and they are read in plain integers, native order: what the
//! compiler makes of wider types costs more than a floor may. Values are read at whatever
//! alignment the packet has: kernels with efficient unaligned access allow it.

use aya_ebpf::programs::XdpContext;
use lb_common::abi::pod::Plain;

/// Length of Ethernet, IPv4 and TCP header.
const LEN: usize = 54;

/// Offset of the destination's hardware address.
pub(crate) const DST_MAC: usize = 0;
/// Offset of the source's hardware address.
pub(crate) const SRC_MAC: usize = 6;
/// Offset of the EtherType.
pub(crate) const ETHERTYPE: usize = 12;
/// Offset of version and header length.
pub(crate) const VERSION: usize = 14;
/// Offset of the protocol.
pub(crate) const PROTOCOL: usize = 23;
/// Offset of the network header's checksum.
pub(crate) const IP_CHECKSUM: usize = 24;
/// Offset of the source address.
pub(crate) const SRC: usize = 26;
/// Offset of the destination address.
pub(crate) const DST: usize = 30;
/// Offset of both ports.
pub(crate) const PORTS: usize = 34;
/// Offset of the transport checksum.
pub(crate) const TCP_CHECKSUM: usize = 50;

/// Memory that is long enough: a frame's, or a map's.
#[derive(Clone, Copy)]
pub(crate) struct Packet(usize);

/// Room for the headers in a map.
pub(crate) type Room = [u64; LEN.div_ceil(8)];

impl Packet {
    /// The frame of a program's run; none where it is too short.
    #[inline(always)]
    pub(crate) fn new(ctx: &XdpContext) -> Option<Self> {
        let start = ctx.data();
        if start + LEN > ctx.data_end() {
            None
        } else {
            Some(Self(start))
        }
    }

    /// The headers in a map.
    #[inline(always)]
    pub(crate) fn in_map(room: &Room) -> Self {
        Self(core::ptr::from_ref(room) as usize)
    }

    /// The value at an offset.
    #[inline(always)]
    pub(crate) fn read<T: Plain, const AT: usize>(self) -> T {
        const { assert!(AT + size_of::<T>() <= LEN) };
        // SAFETY: all of T lies within the headers, which are there; any bits are a T.
        unsafe { *((self.0 + AT) as *const T) }
    }

    /// Overwrites the value at an offset; never in a map.
    #[inline(always)]
    pub(crate) fn write<T: Plain, const AT: usize>(self, value: T) {
        const { assert!(AT + size_of::<T>() <= LEN) };
        // SAFETY: as in `read`; the program owns the packet while it runs.
        unsafe { *((self.0 + AT) as *mut T) = value };
    }
}
