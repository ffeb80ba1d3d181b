//! Which endpoint has which id.
//!
//! An endpoint is its frontend, address and port, and which life it lives there: another pod under
//! the same address, or one that returns from the dead, is another endpoint with another id, so
//! that the flows of the one before can be reset. The timers say which life it is. An id stays
//! with an endpoint that left until nothing holds it, and is found again when the endpoint comes
//! back.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use lb_common::V4;
use lb_common::abi::State;

use super::Planner;
use super::ids::IdError;

/// Key of an endpoint's id.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct EndpointKey {
    pub(super) frontend: u32,
    pub(super) address: V4,
    pub(super) port: u16,
    pub(super) incarnation: u32,
}

impl EndpointKey {
    pub(super) fn new(frontend: u32, address: SocketAddrV4, incarnation: u32) -> Self {
        Self {
            frontend,
            address: V4::from(*address.ip()),
            port: address.port(),
            incarnation,
        }
    }
}

/// An endpoint's id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) id: u32,
    pub(super) key: EndpointKey,
    /// Which life at its address; 0 while nobody has said.
    pub(super) incarnation: u32,
}

/// The slots of one frontend; of several lives at one address, the last.
pub(super) type ByAddress = BTreeMap<SocketAddrV4, Slot>;

/// An endpoint that is no longer wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) key: EndpointKey,
    /// What becomes of its flows: kept or reset.
    pub(super) state: State,
}

impl Planner {
    /// The slot of a wanted endpoint.
    pub(super) fn slot(
        &mut self,
        frontend: u32,
        address: SocketAddrV4,
        incarnation: u32,
    ) -> Result<Slot, IdError> {
        let known = self
            .slots
            .get(&frontend)
            .and_then(|slots| slots.get(&address))
            .copied();
        let same = |slot: &Slot| {
            slot.incarnation == 0 || incarnation == 0 || slot.incarnation == incarnation
        };
        let (key, incarnation) = match known {
            Some(slot) if same(&slot) => (slot.key, slot.incarnation.max(incarnation)),
            Some(slot) => {
                self.leave(frontend, &slot, State::Gone);
                (
                    EndpointKey::new(frontend, address, incarnation),
                    incarnation,
                )
            }
            None => (
                EndpointKey::new(frontend, address, incarnation),
                incarnation,
            ),
        };
        let id = self.endpoint_ids.assign(&key)?;
        self.leaving.remove(&(frontend, id));
        let slot = Slot {
            id,
            key,
            incarnation,
        };
        self.slots
            .entry(frontend)
            .or_default()
            .insert(address, slot);
        Ok(slot)
    }

    /// Marks an endpoint as no longer wanted; what is to be reset stays so.
    pub(super) fn leave(&mut self, frontend: u32, slot: &Slot, state: State) {
        let leaving = self.leaving.entry((frontend, slot.id)).or_insert(Leaving {
            key: slot.key,
            state,
        });
        if state == State::Gone {
            leaving.state = state;
        }
    }

    /// The ids of endpoints that are leaving a frontend.
    pub(super) fn leaving_of(&self, frontend: u32) -> impl Iterator<Item = (u32, State)> {
        self.leaving
            .range((frontend, 0)..=(frontend, u32::MAX))
            .map(|((_, id), leaving)| (*id, leaving.state))
    }
}
