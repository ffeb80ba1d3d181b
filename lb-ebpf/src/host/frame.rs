//! A frame as XDP sees it, in a vector.

use std::vec::Vec;

use lb_common::abi::pod::{self, Plain};
use lb_common::checksum;

use crate::frame::{Bytes, Frame, Rebuild};

/// What new bytes hold: a driver's memory is not cleared, and nothing may count on it.
const POISON: u8 = 0xa5;
/// Bytes that the kernel's frame sums at most.
const LONGEST_SUM: usize = 4096;

/// A frame under XDP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostFrame {
    bytes: Vec<u8>,
    room: usize,
}

impl HostFrame {
    /// A frame with a whole page's room behind it.
    pub fn new(bytes: &[u8]) -> Self {
        Self::with_room(bytes, 4096)
    }

    /// A frame that can grow by `room` bytes.
    pub fn with_room(bytes: &[u8], room: usize) -> Self {
        Self {
            bytes: bytes.to_vec(),
            room,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bytes for HostFrame {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        pod::from_bytes(self.bytes.get(offset..)?)
    }
}

impl Rebuild for HostFrame {
    fn write<T: Plain>(&mut self, offset: usize, value: T) -> Option<()> {
        write(&mut self.bytes, offset, &value)
    }

    fn resize(&mut self, len: usize) -> Option<()> {
        // The kernel keeps an Ethernet header (bpf_xdp_adjust_tail, net/core/filter.c).
        if len < 14 || len > self.bytes.len() + self.room {
            return None;
        }
        self.room = self.bytes.len() + self.room - len;
        self.bytes.resize(len, POISON);
        Some(())
    }

    fn renew(&mut self, len: usize) -> Option<()> {
        if self.resize(len).is_none() {
            self.bytes.clear();
            self.bytes.resize(len, POISON);
        }
        Some(())
    }
}

impl Frame for HostFrame {
    fn sum(&self, offset: usize, len: usize) -> Option<u16> {
        if len > LONGEST_SUM {
            return None;
        }
        let bytes = self.bytes.get(offset..offset.checked_add(len)?)?;
        Some(checksum::fold64(
            bytes
                .chunks(2)
                .map(|pair| u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
                .map(u64::from)
                .sum(),
        ))
    }
}

/// Overwrites a value; nothing past the end.
pub(super) fn write<T: Plain>(bytes: &mut [u8], offset: usize, value: &T) -> Option<()> {
    let value = pod::as_bytes(value);
    bytes
        .get_mut(offset..offset.checked_add(value.len())?)?
        .copy_from_slice(value);
    Some(())
}
