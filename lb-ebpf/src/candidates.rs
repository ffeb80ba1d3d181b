//! Which endpoints a new connection is offered to, in order: the client's sticky one, the row's
//! primary and secondary, then the primary of a following row.
//!
//! Every endpoint in here takes new connections now; one that drains, has gone or is ejected is
//! skipped, the table stays as it is. The order is a function of tables and tuple alone, so a
//! repeated SYN walks the same way as the first.

use lb_common::abi::{Endpoint, FlowKey, Frontend, State, verdict};
use lb_common::select::{self, Layout, Slot as Word};

use crate::world::World;

/// Offers of one connection, as endpoint ids; 0 for none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Candidates {
    /// The ids, best first.
    pub ids: [u32; 4],
    /// Flow hash that they came from.
    pub hash: u32,
}

impl Candidates {
    /// The `index`-th offer; 0 for none.
    #[inline(always)]
    pub fn id(&self, index: u32) -> u32 {
        match index {
            0 => self.ids[0],
            1 => self.ids[1],
            2 => self.ids[2],
            _ => self.ids[3],
        }
    }
}

/// Candidates of a connection, the client's sticky endpoint first where there is one.
#[inline(always)]
pub fn of<W: World>(
    world: &W,
    frontend: &Frontend,
    client: &FlowKey<W::Addr>,
    sticky: u32,
) -> Candidates {
    let hash = select::flow_hash(
        client.src,
        client.ports.src.get(),
        client.dst,
        client.ports.dst.get(),
        client.protocol,
        world.config().seed,
    );
    let layout = Layout::new(frontend.members, frontend.rows_log2);
    if frontend.members == 0 || frontend.verdict != verdict::FORWARD {
        return Candidates { ids: [0; 4], hash };
    }
    let row = layout.row_of(hash);
    let (primary, secondary) = choice(world, frontend, layout, row);
    let (mut third, fourth) = choice(world, frontend, layout, layout.row_of(row.wrapping_add(1)));
    if third == primary || third == secondary {
        third = fourth;
    }
    if third == primary || third == secondary {
        third = 0;
    }
    Candidates {
        ids: [sticky, primary, secondary, third],
        hash,
    }
}

/// The endpoints of one row.
#[inline(always)]
fn choice<W: World>(world: &W, frontend: &Frontend, layout: Layout, row: u32) -> (u32, u32) {
    let at = layout.row_at(frontend.region, row);
    let choice = layout.unpack(word(world, at.slot), at.shift);
    let member = |index| word(world, layout.member_at(frontend.region, index));
    (member(choice.primary), choice.secondary.map_or(0, member))
}

/// A word of the selection array.
#[inline(always)]
pub fn word<W: World>(world: &W, slot: Word) -> u32 {
    world.table_word(slot.element, slot.lane)
}

/// The endpoint, if it takes new connections of this frontend now.
#[inline(always)]
pub fn usable<W: World>(world: &W, frontend: &Frontend, id: u32) -> Option<Endpoint<W::Addr>> {
    if id == 0 {
        return None;
    }
    let endpoint = world.endpoint(id)?;
    if State::from_u8(endpoint.state) != State::Active || endpoint.frontend != frontend.id {
        return None;
    }
    Some(endpoint)
}
