//! Sweeps the flow table inside the kernel: run by the agent through BPF_PROG_TEST_RUN, never
//! attached. One walk forgets what has ended, marks what lost its endpoint, and counts the flows
//! of each endpoint into `usage`.

use core::ffi::c_void;

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use lb_common::V4;
use lb_common::abi::{Flow, FlowKey, Kind};
use lb_ebpf::flow::partner;
use lb_ebpf::sweep::{Fate, judge, mark};
use lb_ebpf::world::{Entry, Slot, World};

use super::maps;
use super::world::Kernel;

/// Walks all flows.
#[xdp]
fn sluice_sweep(_ctx: XdpContext) -> u32 {
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
    if walked < 0 {
        xdp_action::XDP_ABORTED
    } else {
        xdp_action::XDP_PASS
    }
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
        world.tick(),
    ) {
        Fate::Keep => maps::use_endpoint(flow.endpoint),
        Fate::MarkGone => {
            maps::use_endpoint(flow.endpoint);
            // SAFETY: as above; fields that only this walk and the flow's own packets write.
            mark(unsafe { &mut *value }, world.tick());
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
