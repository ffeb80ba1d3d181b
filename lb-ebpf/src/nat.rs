//! Source ports of full NAT: which to try, and whether one is free.

use lb_common::abi::FlowKey;
use lb_common::wire::Be16;

use crate::world::{Entry, Slot, World};

/// The port of the `attempt`-th try for a flow: pseudo-random, but the same again for a repeated
/// packet. `range` includes both ends.
#[inline(always)]
pub fn port(range: [u16; 2], hash: u32, attempt: u32) -> Be16 {
    let [first, last] = range;
    let count = u32::from(last)
        .wrapping_sub(u32::from(first))
        .wrapping_add(1);
    let mixed = hash
        .wrapping_add(attempt.wrapping_mul(0x9e37_79b1))
        .wrapping_mul(0x85eb_ca6b)
        >> 16;
    Be16::new(first.wrapping_add(((mixed * count) >> 16) as u16))
}

/// True when an established connection other than the client's has the reply tuple.
#[inline(always)]
pub fn taken<W: World>(
    world: &W,
    reply: &FlowKey<W::Addr>,
    local: bool,
    client: &FlowKey<W::Addr>,
) -> bool {
    if local {
        let Some(slot) = world.reverse().find(reply) else {
            return false;
        };
        let holder = slot.read();
        holder.vip != client.dst || holder.ports != client.ports.swapped()
    } else {
        world.flows().find(reply).is_some()
    }
}
