//! Gives a packet another tuple and keeps every checksum right.
//!
//! A transport checksum on a virtual link may be *partial* (`CHECKSUM_PARTIAL`): the field holds
//! the pseudo-header's sum and a later device adds the rest. XDP cannot see which kind it has,
//! so: a field that differs from the pseudo-header's sum is full; one that equals it is summed
//! once to tell, unless its flow is known to send such. Passed packets, and all of generic XDP,
//! keep the kind; a packet that native XDP sends is completed, for nobody does it later.
//! All checks come before the first write; after it, a failure can only drop.

use lb_common::abi::{LINK_GENERIC, LINK_VIRTUAL, Link};
use lb_common::wire::l4::Ports;
use lb_common::wire::{Be16, ipv4};
use lb_common::{Address, Reason, checksum};

use crate::family::{Family, Hop};
use crate::frame::Frame;
use crate::packet::Packet;

/// A new tuple, with what it changes in checksums.
#[derive(Clone, Copy, Debug)]
pub struct Edit<A> {
    /// New source address.
    pub src: A,
    /// New destination address.
    pub dst: A,
    /// New ports.
    pub ports: Ports,
    /// Delta of the addresses.
    pub address_delta: u16,
    /// Delta of the ports.
    pub port_delta: u16,
}

impl<A: Address> Edit<A> {
    /// The edit that turns one tuple into another.
    #[inline(always)]
    pub fn between(old: (A, A, Ports), new: (A, A, Ports)) -> Self {
        Self {
            src: new.0,
            dst: new.1,
            ports: new.2,
            address_delta: checksum::delta(old.0.sum() + old.1.sum(), new.0.sum() + new.1.sum()),
            port_delta: checksum::delta(old.2.sum(), new.2.sum()),
        }
    }
}

/// What is known of a transport checksum before the edit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChecksumKind {
    /// UDP without one.
    None,
    /// Finished.
    Full,
    /// The pseudo-header's sum only.
    Partial,
}

/// Where the packet goes after the edit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// To the node's stack.
    Pass,
    /// Out, by us.
    Send,
}

/// Tells the kind of a packet's transport checksum. `sender_leaves_partial` says that the flow
/// has proved it before.
#[inline(always)]
pub fn kind_of<F: Frame, A: Address>(
    frame: &F,
    link: Link,
    packet: &Packet<A>,
    sender_leaves_partial: bool,
) -> ChecksumKind {
    let field = packet.checksum.word();
    if field == 0 && packet.net.protocol == ipv4::UDP {
        return ChecksumKind::None;
    }
    if link.flags & LINK_VIRTUAL == 0 {
        return ChecksumKind::Full;
    }
    let len = packet.net.payload_len;
    let pseudo = checksum::pseudo(
        packet.net.src,
        packet.net.dst,
        packet.net.protocol,
        len as u16,
    );
    if field != pseudo {
        return ChecksumKind::Full;
    }
    if sender_leaves_partial {
        return ChecksumKind::Partial;
    }
    // Only super-packets of the stack are too long to sum, and those are partial always.
    let Some(sum) = frame.sum(packet.net.transport, len) else {
        return ChecksumKind::Partial;
    };
    if checksum::add(sum, pseudo) == 0xffff {
        ChecksumKind::Full
    } else {
        ChecksumKind::Partial
    }
}

/// The transport checksum after the edit.
#[inline(always)]
pub fn checksum_after<F: Frame, A: Address>(
    frame: &F,
    link: Link,
    packet: &Packet<A>,
    edit: &Edit<A>,
    kind: ChecksumKind,
    way: Way,
) -> Result<Be16, Reason> {
    let field = packet.checksum.word();
    let delta = checksum::add(edit.address_delta, edit.port_delta);
    let new = match kind {
        ChecksumKind::None => return Ok(Be16::new(0)),
        ChecksumKind::Full => checksum::update_full(field, delta),
        ChecksumKind::Partial if way == Way::Pass || link.flags & LINK_GENERIC != 0 => {
            return Ok(Be16::from_word(checksum::update_partial(
                field,
                edit.address_delta,
            )));
        }
        ChecksumKind::Partial => {
            // The field itself is the old pseudo-header's sum, so the segment's sum lacks
            // nothing but the edit.
            let sum = frame
                .sum(packet.net.transport, packet.net.payload_len)
                .ok_or(Reason::TooLongToSum)?;
            !checksum::add(sum, delta)
        }
    };
    // Zero means "none" in UDP: its other representation is sent (RFC 768).
    let new = if new == 0 && packet.net.protocol == ipv4::UDP {
        0xffff
    } else {
        new
    };
    Ok(Be16::from_word(new))
}

/// Applies an edit whose new checksum is known.
#[inline(always)]
pub fn apply<F: Frame, N: Family>(
    frame: &mut F,
    packet: &Packet<N::Addr>,
    edit: &Edit<N::Addr>,
    new_checksum: Be16,
    hop: Hop,
) -> Result<(), Reason> {
    N::rewrite(
        frame,
        &packet.net,
        edit.src,
        edit.dst,
        edit.address_delta,
        hop,
    )
    .and_then(|()| frame.write(packet.net.transport, edit.ports))
    .and_then(|()| frame.write(packet.checksum_at, new_checksum))
    .ok_or(Reason::HalfEdited)
}
