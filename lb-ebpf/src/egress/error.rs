//! ICMP errors about packets that we steered, from a pod or from the node's own stack.
//!
//! They are swallowed, never translated: translated, one would end the client's connect.

use lb_common::abi::{FlowKey, HANDSHAKE_ANSWERED};
use lb_common::wire::icmp::{self, Icmp};
use lb_common::wire::ipv4::{self, Ipv4};
use lb_common::wire::l4::Ports;
use lb_common::{Address, Reason, V4};

use super::Cause;
use crate::answer::client_key;
use crate::failover;
use crate::family::Network;
use crate::frame::Skb;
use crate::health::Failure;
use crate::world::{Entry, Slot, World};

/// The handshake that an error is about, by its key.
#[inline(always)]
pub(super) fn about_handshake<S: Skb, W: World<Addr = V4>>(
    skb: &S,
    world: &W,
    net: &Network<V4>,
) -> Result<(Cause, FlowKey<V4>), Reason> {
    let message = skb.read::<Icmp>(net.transport).ok_or(Reason::EgressOther)?;
    let at = net.transport + icmp::LEN;
    let quoted = skb.read::<Ipv4>(at).ok_or(Reason::EgressOther)?;
    if quoted.src != net.dst || quoted.header_len() != ipv4::MIN_LEN {
        return Err(Reason::EgressOther);
    }
    let ports = skb
        .read::<Ports>(at + ipv4::MIN_LEN)
        .ok_or(Reason::EgressOther)?;
    let reply = FlowKey::new(quoted.dst, quoted.src, ports.swapped(), quoted.protocol);
    if quoted.protocol == ipv4::UDP {
        return Err(datagram_error(world, &reply, message.code));
    }
    let Some(slot) = world.handshakes().find(&reply) else {
        return Err(Reason::EgressOther);
    };
    if slot.read().flags & HANDSHAKE_ANSWERED != 0 {
        return Err(Reason::SwallowedError);
    }
    Ok((Cause::Error, reply))
}

/// A UDP endpoint's port is closed: its flow is forgotten, so that the next datagram chooses
/// anew, and the refusal counts.
#[inline(always)]
fn datagram_error<W: World<Addr = V4>>(world: &W, reply: &FlowKey<V4>, code: u8) -> Reason {
    let (client, endpoint) = if let Some(slot) = world.reverse().find(reply) {
        let reverse = slot.read();
        let client = FlowKey::new(
            reply.dst,
            reverse.vip,
            reverse.ports.swapped(),
            reply.protocol,
        );
        let Some(flow) = world.flows().find(&client) else {
            return Reason::EgressOther;
        };
        (client, flow.read().endpoint)
    } else {
        let Some(slot) = world.handshakes().find(reply) else {
            return Reason::EgressOther;
        };
        let handshake = slot.read();
        (client_key(&handshake, reply.protocol), handshake.endpoint)
    };
    if code == icmp::PORT {
        world.flows().remove(&client);
        world.reverse().remove(reply);
        world.handshakes().remove(reply);
        if let Some(frontend) = failover::frontend_of(world, &client) {
            world.with_draft(|draft| draft.frontend = frontend);
            world.failed(endpoint, client.src.fold(), Failure::Refused);
        }
    }
    Reason::SwallowedError
}
