//! Packet memory under XDP. The only code that follows a packet pointer there.
//!
//! Every access is checked against the end first; after a change of length the pointers are
//! taken anew. Values are read at whatever alignment the packet has: kernels with efficient
//! unaligned access allow it, and the verifier refuses it elsewhere.

use core::ffi::c_void;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::generated::{
    bpf_csum_diff, bpf_loop, bpf_xdp_adjust_head, bpf_xdp_adjust_tail, bpf_xdp_get_buff_len,
};
use aya_ebpf::programs::XdpContext;
use lb_common::abi::pod::Plain;
use lb_common::checksum;
use lb_ebpf::frame::{Bytes, Frame, Rebuild};

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
        // SAFETY: the context is this run's; the helper only reads it.
        unsafe { bpf_xdp_get_buff_len(self.ctx.as_ptr().cast()) as usize }
    }

    #[inline(always)]
    fn holds(&self, len: usize) -> bool {
        // Nearly always the first piece is all: the helper is asked about the others only.
        len <= self.end - self.start || len <= self.len()
    }

    #[inline(always)]
    fn at_hand(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        // SAFETY: `pointer` has checked that all of T lies inside the packet; T takes any bits.
        self.pointer::<T>(offset).map(|pointer| unsafe { *pointer })
    }
}

/// Most bytes that are summed: more than a page-sized frame holds.
const LONGEST_SUM: usize = 4096;

impl Rebuild for XdpFrame<'_> {
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
    fn renew(&mut self, len: usize) -> Option<()> {
        if self.resize(len).is_some() {
            return Some(());
        }
        let change = self.len() as i64 - len as i64;
        // SAFETY: as above; a positive change, which would cut bytes off, leaves none behind.
        let result = unsafe { bpf_xdp_adjust_head(self.ctx.as_ptr().cast(), change as i32) };
        (self.start, self.end) = bounds(self.ctx);
        if result == 0 { Some(()) } else { None }
    }
}

impl Frame for XdpFrame<'_> {
    #[inline(always)]
    fn sum(&self, offset: usize, len: usize) -> Option<u16> {
        // What is not in the first piece of a frame cannot be summed either.
        if len > LONGEST_SUM || self.start + offset + len > self.end {
            return None;
        }
        let folded = sluice_sum(self.ctx.as_ptr().cast(), offset as u32, len as u32);
        if folded > 0xffff {
            None
        } else {
            Some(folded as u16)
        }
    }
}

/// A sum under way: of the packet, from `offset` on.
struct Sum {
    start: usize,
    end: usize,
    offset: usize,
    total: u64,
}

impl Sum {
    /// Address of LEN bytes that begin so many after `offset`, if they are there.
    #[inline(always)]
    fn at<const LEN: usize>(&self, after: usize) -> Option<usize> {
        // The mask tells the verifier a bound that it does not see.
        let at = self.start + (self.offset.wrapping_add(after) & (2 * LONGEST_SUM - 1));
        if at + LEN > self.end { None } else { Some(at) }
    }

    /// Adds LEN bytes, a multiple of four; false when they are not there.
    #[inline(always)]
    fn add<const LEN: usize>(&mut self, after: usize) -> bool {
        let Some(at) = self.at::<LEN>(after) else {
            return false;
        };
        let nothing = core::ptr::null_mut();
        // SAFETY: LEN bytes from `at` lie before the end, as was just checked; the helper reads.
        let sum = unsafe { bpf_csum_diff(nothing, 0, at as *mut u32, LEN as u32, 0) };
        self.total += u64::from(sum as u32);
        true
    }
}

/// Bytes that one round of each loop adds.
const MANY: usize = 256;
const FEW: usize = 16;
const NOT_THERE: u32 = u32::MAX;

extern "C" fn add_many(round: u32, sum: &mut Sum) -> i64 {
    i64::from(!sum.add::<MANY>(round as usize * MANY))
}

extern "C" fn add_few(round: u32, sum: &mut Sum) -> i64 {
    i64::from(!sum.add::<FEW>(round as usize * FEW))
}

/// Runs a body so many times. One that lacks its bytes ends the loop: the caller has looked.
#[inline(always)]
fn repeat(rounds: usize, body: extern "C" fn(u32, &mut Sum) -> i64, sum: &mut Sum) {
    let (body, data) = (body as *mut c_void, core::ptr::from_mut(sum).cast());
    // SAFETY: the body takes what the helper passes: the round and this pointer.
    unsafe { bpf_loop(rounds as u32, body, data, 0) };
}

/// A global function: the verifier walks it once, with any arguments, and believes it afterwards.
/// Walked anew for every caller's state, its loops took a program for virtual links past the limit
/// of a million instructions. More than 16 bits say that the bytes are not there.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sluice_sum(ctx: *mut xdp_md, offset: u32, len: u32) -> u32 {
    let (start, end) = bounds(&XdpContext::new(ctx));
    let mut sum = Sum {
        start,
        end,
        offset: offset as usize,
        total: 0,
    };
    let len = len as usize;
    repeat(len / MANY, add_many, &mut sum);
    sum.offset += len / MANY * MANY;
    repeat(len % MANY / FEW, add_few, &mut sum);
    sum.offset += len % MANY / FEW * FEW;
    let there = (len & 8 == 0 || sum.add::<8>(0)) && (len & 4 == 0 || sum.add::<4>(len & 8));
    if !there {
        return NOT_THERE;
    }
    if len & 2 != 0 {
        let Some(at) = sum.at::<2>(len & 0xc) else {
            return NOT_THERE;
        };
        // SAFETY: two bytes from `at` lie before the end.
        sum.total += u64::from(unsafe { *(at as *const u16) });
    }
    if len & 1 != 0 {
        let Some(at) = sum.at::<1>(len & 0xe) else {
            return NOT_THERE;
        };
        // SAFETY: one byte at `at` lies before the end.
        let last = unsafe { *(at as *const u8) };
        sum.total += u64::from(u16::from_ne_bytes([last, 0]));
    }
    u32::from(checksum::fold64(sum.total))
}
