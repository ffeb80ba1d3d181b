//! The packet's memory behind one small interface.
//!
//! Two kinds exist: a [`Frame`] is edited freely and its checksums are ours to keep right (XDP);
//! a [`Skb`] is edited only by operations that know whether a checksum is finished (TCX). All
//! offsets are from the start of the Ethernet header.

use lb_common::V4;
use lb_common::abi::pod::Plain;
use lb_common::wire::Be16;

/// Reading, the same for both kinds.
pub trait Bytes {
    /// Length of the frame in bytes.
    fn len(&self) -> usize;

    /// True when there are `len` bytes at least. Where a frame lies in pieces, only the first can
    /// be read, yet all of them are there.
    fn holds(&self, len: usize) -> bool {
        len <= self.len()
    }

    /// Bytes from the start that can be read: the first piece.
    fn at_hand(&self) -> usize {
        self.len()
    }

    /// A value at `offset`; none past the end.
    fn read<T: Plain>(&self, offset: usize) -> Option<T>;

    /// True for a frame without bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Writing plain bytes, the same for both kinds. On a socket buffer only for a packet whose
/// checksum is finished before and after.
pub trait Rebuild: Bytes {
    /// Overwrites a value at `offset`; none, and nothing written, past the end.
    #[must_use]
    fn write<T: Plain>(&mut self, offset: usize, value: T) -> Option<()>;

    /// Makes the frame `len` bytes long; none, and nothing changed, where that cannot be.
    #[must_use]
    fn resize(&mut self, len: usize) -> Option<()>;

    /// The same for a frame that is written anew from its first byte: what it holds is lost. Room
    /// behind a frame there may be none; in front of it every driver leaves some for XDP.
    #[must_use]
    fn renew(&mut self, len: usize) -> Option<()> {
        self.resize(len)
    }
}

/// A frame as XDP sees it.
pub trait Frame: Rebuild {
    /// One's-complement sum of `len` bytes from `offset`, folded, words in memory order; none
    /// past the end or where it is too long to sum.
    fn sum(&self, offset: usize, len: usize) -> Option<u16>;
}

/// Which checksum of a socket buffer an edit touches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Checksum {
    /// Offset of the transport checksum.
    pub offset: usize,
    /// UDP over IPv4: zero means none and stays, and a computed zero is sent as ones.
    pub udp: bool,
}

/// A frame as TCX sees it.
pub trait Skb: Rebuild {
    /// Replaces an IPv4 address at `offset`, in the header checksum at `header_checksum` and in
    /// the transport checksum.
    #[must_use]
    fn replace_address(
        &mut self,
        offset: usize,
        header_checksum: usize,
        transport: Checksum,
        old: V4,
        new: V4,
    ) -> Option<()>;

    /// Replaces a port at `offset`, in the transport checksum as well.
    #[must_use]
    fn replace_port(
        &mut self,
        offset: usize,
        transport: Checksum,
        old: Be16,
        new: Be16,
    ) -> Option<()>;
}
