//! ARP questions for VIPs (RFC 826): answered in place, silently dropped where another node
//! answers, and left to the node's stack for every other address.

use lb_common::wire::arp::{self, Arp, ArpAddress};
use lb_common::wire::eth::{self, Ethernet};
use lb_common::{Reason, V4};

use crate::frame::Frame;
use crate::world::World;

/// Answers a question for a VIP that this node owns now.
#[inline(always)]
pub fn question<F: Frame, W: World<Addr = V4>>(
    frame: &mut F,
    world: &W,
    ethernet: Ethernet,
) -> Result<Reason, Reason> {
    let ask = frame.read::<Arp>(eth::LEN).ok_or(Reason::TooShort)?;
    if !ask.is_ethernet_ipv4() {
        return Err(Reason::OtherArp);
    }
    let own = world.link().mac;
    if ask.sender_mac != own && world.vip(ask.sender.v4()).is_some() {
        world.note_conflict(ask.sender.v4(), ask.sender_mac);
        return Err(Reason::ArpConflict);
    }
    if ask.operation != arp::REQUEST {
        return Err(Reason::OtherArp);
    }
    let target = ask.target;
    let vip = world.vip(target.v4()).ok_or(Reason::OtherArp)?;
    if !ethernet.dst.is_group() && ethernet.dst != own {
        return Err(Reason::OtherStation);
    }
    if world.boot_ns() >= vip.answer_until {
        return Err(Reason::VipNotOwned);
    }
    let reply = Arp {
        operation: arp::REPLY,
        sender_mac: own,
        sender: target,
        target_mac: ask.sender_mac,
        target: ArpAddress(ask.sender.0),
        ..ask
    };
    let header = Ethernet {
        dst: ethernet.src,
        src: own,
        ethertype: eth::ARP,
    };
    frame
        .write(eth::LEN, reply)
        .and_then(|()| frame.write(0, header))
        .ok_or(Reason::HalfEdited)?;
    Ok(Reason::AnsweredArp)
}
