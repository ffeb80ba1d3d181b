//! ICMP errors about packets that we steered, from a pod or from the node's own stack.
//!
//! They are swallowed, never translated: translated, one would end the client's connect.

use lb_common::abi::{FlowKey, HANDSHAKE_ANSWERED};
use lb_common::wire::ipv4;
use lb_common::{Reason, V4};

use super::Cause;
use crate::closed;
use crate::family::{Family, Network, V4Family};
use crate::frame::Skb;
use crate::world::{Entry, Slot, World};

/// The handshake that an error is about, by its key.
#[inline(always)]
pub(super) fn about_handshake<S: Skb, W: World<Addr = V4>>(
    skb: &S,
    world: &W,
    net: &Network<V4>,
) -> Result<(Cause, FlowKey<V4>), Reason> {
    let quoted = V4Family::quoted(skb, net).ok_or(Reason::EgressOther)?;
    let sent = quoted.sent;
    if sent.protocol == ipv4::UDP {
        return Err(if closed::note(world, &quoted) {
            Reason::SwallowedError
        } else {
            Reason::EgressOther
        });
    }
    let reply = FlowKey::new(sent.dst, sent.src, sent.ports.swapped(), sent.protocol);
    let Some(slot) = world.handshakes().find(&reply) else {
        return Err(Reason::EgressOther);
    };
    if slot.read().flags & HANDSHAKE_ANSWERED != 0 {
        return Err(Reason::SwallowedError);
    }
    Ok((Cause::Error, reply))
}
