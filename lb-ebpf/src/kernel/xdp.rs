//! Packet memory under XDP. The only code that follows a packet pointer there.
//!
//! Every access is checked against the end first; after a change of length the pointers are
//! taken anew. Values are read at whatever alignment the packet has: kernels with efficient
//! unaligned access allow it, and the verifier refuses it elsewhere.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_xdp_adjust_tail;
use aya_ebpf::programs::XdpContext;
use lb_common::abi::pod::Plain;
use lb_common::checksum;
use lb_ebpf::frame::{Bytes, Frame};

/// A frame under XDP.
pub(crate) struct XdpFrame<'a> {
    ctx: &'a XdpContext,
    start: usize,
    end: usize,
}

impl<'a> XdpFrame<'a> {
    /// The frame of a program's run.
    #[inline(always)]
    pub(crate) fn new(ctx: &'a XdpContext) -> Self {
        let (start, end) = bounds(ctx);
        Self { ctx, start, end }
    }

    /// Length on arrival.
    #[inline(always)]
    pub(crate) fn arrived(&self) -> u32 {
        (self.end - self.start) as u32
    }

    #[inline(always)]
    fn pointer<T>(&self, offset: usize) -> Option<*mut T> {
        let pointer = self.start + offset;
        if pointer + size_of::<T>() > self.end {
            None
        } else {
            Some(pointer as *mut T)
        }
    }
}

/// First byte and end of the packet. Volatile, or the optimiser loads them in the caller and
/// passes them on as 32-bit integers, which a packet's end may not become.
#[inline(always)]
fn bounds(ctx: &XdpContext) -> (usize, usize) {
    let md = ctx.ctx;
    // SAFETY: the context of this run; the verifier turns these loads into the pointers.
    unsafe {
        let start = core::ptr::read_volatile(&raw const (*md).data);
        let end = core::ptr::read_volatile(&raw const (*md).data_end);
        (start as usize, end as usize)
    }
}

impl Bytes for XdpFrame<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        // SAFETY: `pointer` has checked that all of T lies inside the packet; T takes any bits.
        self.pointer::<T>(offset).map(|pointer| unsafe { *pointer })
    }
}

/// Bytes that one round of `sum` adds up.
const CHUNK: usize = 32;
/// Most rounds: 4 KiB, more than a page-sized frame holds.
const CHUNKS: usize = 128;

impl Frame for XdpFrame<'_> {
    #[inline(always)]
    fn write<T: Plain>(&mut self, offset: usize, value: T) -> Option<()> {
        // SAFETY: as in `read`; the program owns the packet while it runs.
        self.pointer::<T>(offset)
            .map(|pointer| unsafe { *pointer = value })
    }

    #[inline(always)]
    fn resize(&mut self, len: usize) -> Option<()> {
        let change = len as i64 - self.len() as i64;
        // SAFETY: the context is this run's; the helper checks the room.
        let result = unsafe { bpf_xdp_adjust_tail(self.ctx.as_ptr().cast(), change as i32) };
        (self.start, self.end) = bounds(self.ctx);
        if result == 0 { Some(()) } else { None }
    }

    #[inline(always)]
    fn sum(&self, offset: usize, len: usize) -> Option<u16> {
        if len > CHUNK * CHUNKS {
            return None;
        }
        let folded = sum(self.start, self.end, offset as u32, len as u32);
        if folded > 0xffff {
            None
        } else {
            Some(folded as u16)
        }
    }
}

/// A function of its own: its loop is verified once, not at every use. More than 16 bits mean
/// that the bytes are not all there.
#[inline(never)]
fn sum(start: usize, end: usize, offset: u32, len: u32) -> u32 {
    let mut at = start + (offset & 0x7f) as usize;
    let mut left = len as usize;
    let mut total = 0u64;
    for _ in 0..CHUNKS {
        if left < CHUNK {
            break;
        }
        if at + CHUNK > end {
            return u32::MAX;
        }
        // SAFETY: CHUNK bytes from `at` lie before the end, as was just checked.
        let words = unsafe { *(at as *const [u32; CHUNK / 4]) };
        for word in words {
            total += u64::from(word);
        }
        at += CHUNK;
        left -= CHUNK;
    }
    for _ in 0..CHUNK / 2 {
        if left < 2 {
            break;
        }
        if at + 2 > end {
            return u32::MAX;
        }
        // SAFETY: two bytes from `at` lie before the end.
        total += u64::from(unsafe { *(at as *const u16) });
        at += 2;
        left -= 2;
    }
    if left == 1 {
        if at + 1 > end {
            return u32::MAX;
        }
        // SAFETY: one byte at `at` lies before the end.
        total += u64::from(u16::from_ne_bytes([unsafe { *(at as *const u8) }, 0]));
    }
    u32::from(checksum::fold64(total))
}
