//! Which endpoints a new connection is offered to, in order: the client's sticky one, the row's
//! primary and secondary, then other members on a walk of the connection's own.
//!
//! Every endpoint in here takes new connections now; one that drains, has gone or is ejected is
//! skipped, the table stays as it is. The order is a function of tables and tuple alone, so a
//! repeated SYN walks the same way as the first.

use lb_common::abi::{Endpoint, FlowKey, Frontend, State, verdict};
use lb_common::select::{self, Layout, Slot as Word};

use crate::world::World;

/// Where one connection's offers come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Candidates {
    /// The client's endpoint by affinity, and those of its row; 0 for none.
    pub first: [u32; 3],
    /// Flow hash that they came from.
    pub hash: u32,
    region: u32,
    layout: Layout,
}

/// Most endpoints on the walk. Half of a Service may be ejected: with eight more to look at,
/// hardly a connection finds nothing but those.
pub const WALK: u32 = 8;

impl Candidates {
    /// Nobody.
    pub const NONE: Self = Self {
        first: [0; 3],
        hash: 0,
        region: 0,
        layout: Layout::EMPTY,
    };

    /// The `index`-th offer; 0 for none.
    #[inline(always)]
    pub fn id<W: World>(&self, world: &W, index: u32) -> u32 {
        match index {
            0 => self.first[0],
            1 => self.first[1],
            2 => self.first[2],
            index => self.on_the_walk(world, index - 3),
        }
    }

    /// A member on the connection's walk. All are visited where they are few. Where they are many
    /// the walk jumps: neighbours in the order of addresses are neighbours on a node, and die with
    /// it together.
    #[inline(always)]
    fn on_the_walk<W: World>(&self, world: &W, step: u32) -> u32 {
        let members = self.layout.members();
        if members == 0 {
            return 0;
        }
        let mixed = self.hash.wrapping_mul(0x9e37_79b1);
        let stride = if members <= WALK {
            1
        } else {
            1 + (mixed & 0xffff) % (members - 1)
        };
        let member = ((mixed >> 16) + step * stride) % members;
        word(world, self.layout.member_at(self.region, member))
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
    let mut candidates = Candidates {
        first: [0; 3],
        hash,
        region: frontend.region,
        layout: Layout::EMPTY,
    };
    if frontend.members != 0 && frontend.verdict == verdict::FORWARD {
        let layout = Layout::new(frontend.members, frontend.rows_log2);
        candidates.layout = layout;
        let (primary, secondary) = choice(world, frontend, layout, layout.row_of(hash));
        candidates.first = [sticky, primary, secondary];
    }
    candidates
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
