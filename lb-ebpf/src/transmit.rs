//! Sends an edited frame: hardware addresses, then out of the same or another interface.

use lb_common::abi::Link;
use lb_common::wire::eth;
use lb_common::{Mac, Reason};

use crate::frame::Frame;
use crate::world::World;

/// The same event under its two names: sent from the interface it came in by, or redirected.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Out of the interface it came in by.
    pub transmit: Reason,
    /// Out of another one.
    pub redirect: Reason,
}

/// Towards a next hop.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Interface to leave by.
    pub ifindex: u32,
    /// The next hop's hardware address.
    pub next: Mac,
    /// The interface's own.
    pub own: Mac,
}

/// Writes the hardware addresses and chooses the interface.
#[inline(always)]
pub fn send<F: Frame, W: World>(
    frame: &mut F,
    world: &W,
    link: Link,
    hop: Hop,
    names: Names,
) -> Result<Reason, Reason> {
    let ((next, next_end), (own, own_end)) = (hop.next.pieces(), hop.own.pieces());
    frame
        .write(0, next)
        .and_then(|()| frame.write(4, next_end))
        .and_then(|()| frame.write(eth::SRC_OFFSET, own))
        .and_then(|()| frame.write(eth::SRC_OFFSET + 4, own_end))
        .ok_or(Reason::HalfEdited)?;
    if hop.ifindex == link.ifindex {
        return Ok(names.transmit);
    }
    world.redirect(hop.ifindex);
    Ok(names.redirect)
}
