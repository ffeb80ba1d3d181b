//! Sweeps the flow table inside the kernel: run by the agent through BPF_PROG_TEST_RUN, never
//! attached. One walk forgets what has ended, marks what lost its endpoint, and counts the flows
//! of each endpoint into `usage`.
//!
//! It is a tracing program for the way in which those are run: as part of the caller's system call,
//! with softirqs on. A walk of an empty table takes 14 ms and of a full one ten times as long: run
//! as a packet program, with softirqs off, it would keep this CPU's packets waiting.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_for_each_map_elem, bpf_ktime_get_ns};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use lb_common::abi::{Flow, FlowKey, Kind};
use lb_common::{V4, limits};
use lb_ebpf::flow::partner;
use lb_ebpf::sweep::{Fate, judge, mark};
use lb_ebpf::world::{Entry, Slot, World};

use super::maps;
use super::world::Kernel;

/// Walks all flows; 0 when it has come to the end.
#[raw_tracepoint]
fn sluice_sweep(_ctx: RawTracePointContext) -> i32 {
    // SAFETY: the map and the callback are this object's, and the callback takes what the
    // helper passes: map, key, value, context (include/uapi/linux/bpf.h).
    let walked = unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&maps::FLOWS).cast_mut().cast(),
            visit as *mut c_void,
            core::ptr::null_mut(),
            0,
        )
    };
    i32::from(walked < 0)
}

extern "C" fn visit(
    _map: *mut c_void,
    key: *const FlowKey<V4>,
    value: *mut Flow<V4>,
    _context: *mut c_void,
) -> i64 {
    // SAFETY: the helper passes a live key and value of this map's types.
    let (key, flow) = unsafe { (*key, *value) };
    let world = Kernel;
    let other_key = partner(&flow, key.protocol);
    let local = flow.kind == Kind::Local as u8;
    let other_seen = if local {
        None
    } else {
        world.flows().find(&other_key).map(|slot| slot.read().seen)
    };
    match judge(
        &key,
        &flow,
        other_seen,
        world.endpoint(flow.endpoint),
        tick(),
    ) {
        Fate::Keep => maps::use_endpoint(flow.endpoint),
        Fate::MarkGone => {
            maps::use_endpoint(flow.endpoint);
            // SAFETY: as above; fields that only this walk and the flow's own packets write.
            mark(unsafe { &mut *value }, tick());
        }
        Fate::Forget => {
            if local {
                world.reverse().remove(&other_key);
            } else {
                world.flows().remove(&other_key);
            }
            world.flows().remove(&key);
        }
    }
    0
}

/// The tick, by the clock that programs of this kind may ask: the same time as the packet
/// programs', read after the flow's stamps and never behind them.
#[inline(always)]
fn tick() -> u32 {
    // SAFETY: the helper takes nothing and touches nothing.
    (unsafe { bpf_ktime_get_ns() } >> limits::TICK_SHIFT) as u32
}
