//! A socket buffer as TCX sees it, with the kernel's rules for edits of checksums.
//!
//! After `bpf_l3_csum_replace` and `bpf_l4_csum_replace` (net/core/filter.c) and
//! `inet_proto_csum_replace4` (net/core/utils.c): a buffer whose checksum is unfinished
//! (`CHECKSUM_PARTIAL`) holds the pseudo-header's sum, uncomplemented, and takes part in edits
//! of addresses only.

use std::vec::Vec;

use lb_common::V4;
use lb_common::abi::pod::{self, Plain};
use lb_common::wire::Be16;

use super::frame::write;
use crate::frame::{Bytes, Checksum, Rebuild, Skb};

/// What UDP sends for a computed zero.
const MANGLED_ZERO: u16 = 0xffff;

/// A frame under TCX.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostSkb {
    bytes: Vec<u8>,
    partial: bool,
}

impl HostSkb {
    /// A frame; `partial` for `CHECKSUM_PARTIAL`.
    pub fn new(bytes: &[u8], partial: bool) -> Self {
        Self {
            bytes: bytes.to_vec(),
            partial,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// `bpf_l3_csum_replace` with a size of 4.
    fn l3_csum_replace(&mut self, offset: usize, from: u32, to: u32) -> Option<()> {
        let field = self.field(offset)?;
        write(&mut self.bytes, offset, &replaced(field, from, to))
    }

    /// `bpf_l4_csum_replace`; `address` stands for BPF_F_PSEUDO_HDR, `transport.udp` for
    /// BPF_F_MARK_MANGLED_0.
    fn l4_csum_replace(
        &mut self,
        transport: Checksum,
        from: u32,
        to: u32,
        address: bool,
    ) -> Option<()> {
        let mut field = self.field(transport.offset)?;
        if transport.udp && field == 0 {
            return Some(());
        }
        if !self.partial {
            field = replaced(field, from, to);
        } else if address {
            // Not complemented, so the rule for finished ones applies to its complement.
            field = !replaced(!field, from, to);
        }
        if transport.udp && field == 0 {
            field = MANGLED_ZERO;
        }
        write(&mut self.bytes, transport.offset, &field)
    }

    /// A checksum field: at an even offset and inside, as the helpers ask.
    fn field(&self, offset: usize) -> Option<u16> {
        if offset > 0xffff || offset & 1 != 0 {
            return None;
        }
        self.read(offset)
    }
}

/// `csum_replace4`.
fn replaced(field: u16, from: u32, to: u32) -> u16 {
    let sum = csum_add(csum_add(u32::from(!field), !from), to);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// `csum_add`: 32 bits with end-around carry.
fn csum_add(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum.wrapping_add(carry.into())
}

impl Bytes for HostSkb {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        pod::from_bytes(self.bytes.get(offset..)?)
    }
}

impl Rebuild for HostSkb {
    fn write<T: Plain>(&mut self, offset: usize, value: T) -> Option<()> {
        write(&mut self.bytes, offset, &value)
    }

    fn resize(&mut self, len: usize) -> Option<()> {
        // bpf_skb_change_tail keeps the headers and zeroes what it adds (net/core/filter.c).
        if len < 34 {
            return None;
        }
        self.bytes.resize(len, 0);
        Some(())
    }
}

impl Skb for HostSkb {
    fn replace_address(
        &mut self,
        offset: usize,
        header_checksum: usize,
        transport: Checksum,
        old: V4,
        new: V4,
    ) -> Option<()> {
        let (from, to) = (u32::from_ne_bytes(old.0), u32::from_ne_bytes(new.0));
        self.l4_csum_replace(transport, from, to, true)?;
        self.l3_csum_replace(header_checksum, from, to)?;
        write(&mut self.bytes, offset, &new)
    }

    fn replace_port(
        &mut self,
        offset: usize,
        transport: Checksum,
        old: Be16,
        new: Be16,
    ) -> Option<()> {
        self.l4_csum_replace(transport, old.word().into(), new.word().into(), false)?;
        write(&mut self.bytes, offset, &new)
    }
}
