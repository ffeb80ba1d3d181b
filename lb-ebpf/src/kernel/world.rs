//! The kernel's tables and clocks as the pipeline's [`World`].

use core::ffi::c_void;

use aya_ebpf::bindings::BPF_F_INGRESS;
use aya_ebpf::helpers::generated::{
    bpf_get_prandom_u32, bpf_jiffies64, bpf_ktime_get_boot_ns, bpf_ktime_get_coarse_ns, bpf_loop,
    bpf_redirect,
};
use lb_common::abi::{
    Affinity, AffinityKey, Answered, Config, Conflict, Endpoint, Flow, FlowKey, Frontend,
    FrontendKey, Handshake, Health, Link, Reverse, SourceRange, Vip,
};
use lb_common::{Mac, V4, bitmap_index, limits};
use lb_ebpf::health::Failure;
use lb_ebpf::place::{Offer, Terms};
use lb_ebpf::world::{Draft, Entry, Slot, Turn, World};

use super::maps::{self, MapSlot, Table, slot};

/// The kernel.
pub(crate) struct Kernel;

impl World for Kernel {
    type Addr = V4;
    type EndpointSlot = MapSlot<Endpoint<V4>>;
    type HealthSlot = MapSlot<Health>;

    #[inline(always)]
    fn link(&self) -> Link {
        super::link()
    }

    #[inline(always)]
    fn link_index(&self) -> u32 {
        super::link_word(0)
    }

    #[inline(always)]
    fn link_mac(&self) -> Mac {
        super::link_mac()
    }

    #[inline(always)]
    fn link_flags(&self) -> u8 {
        super::link_word(2).to_ne_bytes()[2]
    }

    #[inline(always)]
    fn config(&self) -> Config<V4> {
        slot(&maps::CONFIG, 0).map_or(Config::EMPTY, |slot| slot.read())
    }

    #[inline(always)]
    fn tick(&self) -> u32 {
        maps::TICK.get(jiffies(), || (coarse_ns() >> limits::TICK_SHIFT) as u32)
    }

    #[inline(always)]
    fn millis(&self) -> u32 {
        maps::MILLIS.get(jiffies(), || (coarse_ns() >> 20) as u32)
    }

    #[inline(always)]
    fn boot_ns(&self) -> u64 {
        // SAFETY: the helper takes nothing and touches nothing.
        unsafe { bpf_ktime_get_boot_ns() }
    }

    #[inline(always)]
    fn random(&self) -> u32 {
        // SAFETY: the helper takes nothing and touches nothing.
        unsafe { bpf_get_prandom_u32() }
    }

    #[inline(always)]
    fn in_bitmap(&self, address: V4) -> bool {
        let index = bitmap_index(address);
        slot(&maps::DEST_BITMAP, index >> 6)
            .is_some_and(|word| word.read() >> (index & 63) & 1 != 0)
    }

    #[inline(always)]
    fn vip(&self, address: V4) -> Option<Vip> {
        Table(&maps::VIPS).find(&address).map(|slot| slot.read())
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey<V4>) -> Option<Frontend> {
        Table(&maps::FRONTENDS).find(key).map(|slot| slot.read())
    }

    #[inline(always)]
    fn endpoint_slot(&self, id: u32) -> Option<MapSlot<Endpoint<V4>>> {
        slot(&maps::ENDPOINTS, id)
    }

    #[inline(always)]
    fn health(&self, id: u32) -> Option<MapSlot<Health>> {
        slot(&maps::HEALTH, id)
    }

    #[inline(always)]
    fn table_word(&self, element: u32, lane: usize) -> u32 {
        maps::table_word(element, lane)
    }

    #[inline(always)]
    fn source_allowed(&self, range: SourceRange<V4>) -> bool {
        maps::source_allowed(range)
    }

    #[inline(always)]
    fn flows(&self) -> impl Entry<FlowKey<V4>, Flow<V4>> {
        Table(&maps::FLOWS)
    }

    #[inline(always)]
    fn reverse(&self) -> impl Entry<FlowKey<V4>, Reverse<V4>> {
        Table(&maps::REVERSE)
    }

    #[inline(always)]
    fn handshakes(&self) -> impl Entry<FlowKey<V4>, Handshake<V4>> {
        Table(&maps::HANDSHAKES)
    }

    #[inline(always)]
    fn answered(&self) -> impl Entry<FlowKey<V4>, Answered> {
        Table(&maps::ANSWERED)
    }

    #[inline(always)]
    fn affinity(&self) -> impl Entry<AffinityKey<V4>, Affinity> {
        Table(&maps::AFFINITY)
    }

    #[inline(always)]
    fn with_draft<R>(&self, draw: impl FnOnce(&mut Draft<V4>) -> R) -> Option<R> {
        maps::draft().map(|slot| slot.update(draw))
    }

    #[inline(always)]
    fn repeat(&self, turns: u32, body: &mut impl Turn<Self>) {
        repeat(turns, body);
    }

    #[inline(always)]
    fn offer(&self, id: u32, hash: u32, terms: Terms) -> Offer {
        Offer::unpack(super::sluice_offer(id, hash, terms as u32))
    }

    #[inline(always)]
    fn failed(&self, id: u32, client: u32, failure: Failure) {
        let refused = u32::from(failure as u8 == Failure::Refused as u8);
        super::sluice_failed(id, client, refused);
    }

    #[inline(always)]
    fn allow_refusal(&self) -> bool {
        // The tick is 1.07 s, near enough to a second; two CPUs may both count the last one.
        let (tick, limit) = (self.tick(), self.config().refusals);
        slot(&maps::REFUSALS, 0).is_some_and(|slot| {
            slot.update(|spent| {
                if spent.tick != tick {
                    *spent = maps::Refusals { tick, count: 0 };
                }
                spent.count += 1;
                spent.count <= limit
            })
        })
    }

    #[inline(always)]
    fn note_conflict(&self, vip: V4, mac: Mac) {
        let table = Table(&maps::CONFLICTS);
        let tick = self.tick();
        if let Some(slot) = table.find(&vip) {
            slot.update(|conflict| {
                conflict.count += 1;
                conflict.seen = tick;
                conflict.mac = mac;
            });
        } else {
            table.insert(
                &vip,
                &Conflict {
                    count: 1,
                    seen: tick,
                    mac,
                    zero: 0,
                },
            );
        }
    }

    #[inline(always)]
    fn reinject(&self) {
        // SAFETY: the helper only notes the interface for when the program ends.
        unsafe { bpf_redirect(super::link().ifindex, u64::from(BPF_F_INGRESS)) };
    }

    #[inline(always)]
    fn redirect(&self, ifindex: u32) {
        // SAFETY: the helper only notes the interface for when the program ends.
        unsafe { bpf_redirect(ifindex, 0) };
    }
}

#[inline(always)]
fn repeat<T: Turn<Kernel>>(turns: u32, body: &mut T) {
    extern "C" fn one<T: Turn<Kernel>>(index: u32, body: &mut T) -> i64 {
        i64::from(!body.turn(&Kernel, index))
    }
    let (step, data) = (one::<T> as *mut c_void, core::ptr::from_mut(body).cast());
    // SAFETY: the step takes what the helper passes: the turn's number and this pointer.
    unsafe { bpf_loop(turns, step, data, 0) };
}

#[inline(always)]
fn jiffies() -> u32 {
    // SAFETY: the helper takes nothing and touches nothing.
    unsafe { bpf_jiffies64() as u32 }
}

#[inline(always)]
fn coarse_ns() -> u64 {
    // SAFETY: the helper takes nothing and touches nothing.
    unsafe { bpf_ktime_get_coarse_ns() }
}
