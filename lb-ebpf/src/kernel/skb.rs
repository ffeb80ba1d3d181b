//! Packet memory under TCX. Reading is direct where the header is in the linear part, by helper
//! else; edits go through the kernel's checksum helpers, which know whether a checksum is
//! finished.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR};
use aya_ebpf::helpers::generated::{bpf_skb_change_tail, bpf_skb_load_bytes};
use aya_ebpf::programs::TcContext;
use lb_common::V4;
use lb_common::abi::pod::Plain;
use lb_common::wire::Be16;
use lb_ebpf::frame::{Bytes, Checksum, Rebuild, Skb};

/// A frame under TCX.
pub(crate) struct SkbFrame<'a> {
    ctx: &'a TcContext,
}

impl<'a> SkbFrame<'a> {
    /// The frame of a program's run.
    #[inline(always)]
    pub(crate) fn new(ctx: &'a TcContext) -> Self {
        Self { ctx }
    }
}

impl Bytes for SkbFrame<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.ctx.len() as usize
    }

    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        let pointer = self.ctx.data() + offset;
        if pointer + size_of::<T>() <= self.ctx.data_end() {
            // SAFETY: all of T lies inside the linear part, as was just checked.
            return Some(unsafe { *(pointer as *const T) });
        }
        let mut value = core::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the helper fills all of `value` or fails.
        unsafe {
            let read = bpf_skb_load_bytes(
                self.ctx.as_ptr().cast(),
                offset as u32,
                value.as_mut_ptr().cast(),
                size_of::<T>() as u32,
            );
            if read == 0 {
                Some(value.assume_init())
            } else {
                None
            }
        }
    }
}

fn flags(transport: Checksum) -> u64 {
    if transport.udp {
        u64::from(BPF_F_MARK_MANGLED_0)
    } else {
        0
    }
}

impl Rebuild for SkbFrame<'_> {
    #[inline(always)]
    fn write<T: Plain>(&mut self, offset: usize, value: T) -> Option<()> {
        self.ctx.store(offset, &value, 0).ok()
    }

    #[inline(always)]
    fn resize(&mut self, len: usize) -> Option<()> {
        // SAFETY: the context is this run's; the helper checks the room, and every access after
        // it takes the pointers anew.
        let result = unsafe { bpf_skb_change_tail(self.ctx.as_ptr().cast(), len as u32, 0) };
        if result == 0 { Some(()) } else { None }
    }
}

impl Skb for SkbFrame<'_> {
    #[inline(always)]
    fn replace_address(
        &mut self,
        offset: usize,
        header_checksum: usize,
        transport: Checksum,
        old: V4,
        new: V4,
    ) -> Option<()> {
        let (from, to) = (
            u32::from_ne_bytes(old.0).into(),
            u32::from_ne_bytes(new.0).into(),
        );
        let pseudo = flags(transport) | u64::from(BPF_F_PSEUDO_HDR) | 4;
        self.ctx
            .l4_csum_replace(transport.offset, from, to, pseudo)
            .ok()?;
        self.ctx
            .l3_csum_replace(header_checksum, from, to, 4)
            .ok()?;
        self.ctx.store(offset, &new, 0).ok()
    }

    #[inline(always)]
    fn replace_port(
        &mut self,
        offset: usize,
        transport: Checksum,
        old: Be16,
        new: Be16,
    ) -> Option<()> {
        let (from, to) = (u64::from(old.word()), u64::from(new.word()));
        self.ctx
            .l4_csum_replace(transport.offset, from, to, flags(transport) | 2)
            .ok()?;
        self.ctx.store(offset, &new, 0).ok()
    }
}
