//! Which endpoint has which id.
//!
//! An endpoint is its frontend, address and port, and the pod behind them: another pod under the
//! same address is another endpoint with another id, so that the old pod's flows can be reset. An
//! id stays with an endpoint that left until nothing holds it, and is found again when the
//! endpoint comes back.

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
    /// 0 for the first pod seen under this address, else a hash of the pod's uid.
    pub(super) generation: u64,
}

impl EndpointKey {
    pub(super) fn new(frontend: u32, address: SocketAddrV4, generation: u64) -> Self {
        Self {
            frontend,
            address: V4::from(*address.ip()),
            port: address.port(),
            generation,
        }
    }
}

/// An endpoint's id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) id: u32,
    pub(super) key: EndpointKey,
    /// Hash of the pod's uid; 0 while unknown.
    pub(super) pod: u64,
}

/// The slots of one frontend; of several pods under one address, the last.
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
        pod: u64,
    ) -> Result<Slot, IdError> {
        let known = self
            .slots
            .get(&frontend)
            .and_then(|slots| slots.get(&address))
            .copied();
        let same = |slot: &Slot| slot.pod == 0 || pod == 0 || slot.pod == pod;
        let (key, pod) = match known {
            Some(slot) if same(&slot) => (slot.key, slot.pod.max(pod)),
            Some(slot) => {
                self.leave(frontend, &slot, State::Gone);
                (EndpointKey::new(frontend, address, pod), pod)
            }
            None => (EndpointKey::new(frontend, address, 0), pod),
        };
        let id = self.endpoint_ids.assign(&key)?;
        self.leaving.remove(&(frontend, id));
        let slot = Slot { id, key, pod };
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
