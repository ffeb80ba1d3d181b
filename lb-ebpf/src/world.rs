//! Everything a decision may look at besides the packet: tables, clocks, the link.
//!
//! Lookups hand out [`Slot`]s, which read and write a value in place. A slot is good for this
//! packet only and must not be used after its entry was removed.

use lb_common::abi::{
    Affinity, AffinityKey, Answered, Config, Endpoint, Flow, FlowKey, Frontend, FrontendKey,
    Handshake, Health, Link, Reverse, SourceRange, Vip,
};
use lb_common::{Address, Mac};

use crate::health::{self, Failure};
use crate::place::{self, Offer, Search, Terms};

/// A value inside a table.
pub trait Slot<T: Copy> {
    /// A copy; only the fields that are used are loaded.
    fn read(&self) -> T;

    /// Looks at it in place.
    fn get<R>(&self, look: impl FnOnce(&T) -> R) -> R;

    /// Changes it in place. Only plain counters and stamps are changed so: another CPU may do
    /// the same at the same time, and the last one wins.
    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R;
}

/// Outcome of an insertion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Inserted {
    /// The entry is there.
    Yes,
    /// There was one already, left as it is.
    Exists,
    /// No room.
    Full,
}

/// A connection attempt on its way to an endpoint.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Draft<A> {
    /// What is to be remembered of it.
    pub handshake: Handshake<A>,
    /// The frontend that it asks for.
    pub frontend: Frontend,
    /// 6 or 17.
    pub protocol: u32,
    /// The search for its endpoint.
    pub search: Search,
}

/// The body of a loop, and what it works on.
pub trait Turn<W> {
    /// One turn; false when it was the last one.
    fn turn(&mut self, world: &W, index: u32) -> bool;
}

/// A hash table.
pub trait Entry<K, V: Copy> {
    /// What a lookup hands out.
    type Slot: Slot<V>;

    /// Looks a key up.
    fn find(&self, key: &K) -> Option<Self::Slot>;

    /// Inserts unless the key is there.
    fn insert_new(&self, key: &K, value: &V) -> Inserted;

    /// Inserts or replaces.
    fn insert(&self, key: &K, value: &V) -> Inserted;

    /// Removes; a key that is not there is as good.
    fn remove(&self, key: &K);
}

/// The tables and clocks of one node, for one address family.
pub trait World: Sized {
    /// Addresses of the family.
    type Addr: Address;
    /// Endpoint slots.
    type EndpointSlot: Slot<Endpoint<Self::Addr>>;
    /// Health slots.
    type HealthSlot: Slot<Health>;

    /// The link the packet is on.
    fn link(&self) -> Link;
    /// Its index: of the link, the hot path reads no more than it needs.
    #[inline(always)]
    fn link_index(&self) -> u32 {
        self.link().ifindex
    }
    /// Its hardware address.
    #[inline(always)]
    fn link_mac(&self) -> Mac {
        self.link().mac
    }
    /// Its flags.
    #[inline(always)]
    fn link_flags(&self) -> u8 {
        self.link().flags
    }
    /// The settings.
    fn config(&self) -> Config<Self::Addr>;

    /// Monotonic clock in units of 2^30 ns.
    fn tick(&self) -> u32;
    /// Monotonic clock in units of 2^20 ns, wrapping.
    fn millis(&self) -> u32;
    /// Boot clock in nanoseconds.
    fn boot_ns(&self) -> u64;
    /// Pseudo-random bits.
    fn random(&self) -> u32;

    /// False when the address is neither VIP nor SNAT address; true may be wrong.
    fn in_bitmap(&self, address: Self::Addr) -> bool;
    /// The VIP's entry.
    fn vip(&self, address: Self::Addr) -> Option<Vip>;
    /// The frontend's entry.
    fn frontend(&self, key: &FrontendKey<Self::Addr>) -> Option<Frontend>;
    /// An endpoint by id, in place; none for an id out of range.
    fn endpoint_slot(&self, id: u32) -> Option<Self::EndpointSlot>;
    /// An endpoint by id.
    #[inline(always)]
    fn endpoint(&self, id: u32) -> Option<Endpoint<Self::Addr>> {
        self.endpoint_slot(id).map(|slot| slot.read())
    }
    /// What the data plane itself knows of an endpoint.
    fn health(&self, id: u32) -> Option<Self::HealthSlot>;
    /// One word of the selection array; 0 out of range.
    fn table_word(&self, element: u32, lane: usize) -> u32;
    /// True when the frontend's source ranges hold the client.
    fn source_allowed(&self, range: SourceRange<Self::Addr>) -> bool;

    /// Established flows by the packet's tuple.
    fn flows(&self) -> impl Entry<FlowKey<Self::Addr>, Flow<Self::Addr>>;
    /// `Local` flows by the reply's tuple.
    fn reverse(&self) -> impl Entry<FlowKey<Self::Addr>, Reverse<Self::Addr>>;
    /// Handshakes by the reply's tuple.
    fn handshakes(&self) -> impl Entry<FlowKey<Self::Addr>, Handshake<Self::Addr>>;
    /// Answered handshakes by the client's tuple.
    fn answered(&self) -> impl Entry<FlowKey<Self::Addr>, Answered>;
    /// Session affinity.
    fn affinity(&self) -> impl Entry<AffinityKey<Self::Addr>, Affinity>;

    /// Lends room for a connection attempt to be drawn up in: it is too large for the kernel's
    /// stack, and the next step of the same packet finds it there. What stands in it at first is
    /// left from before.
    fn with_draft<R>(&self, draw: impl FnOnce(&mut Draft<Self::Addr>) -> R) -> Option<R>;

    /// Takes so many turns at most. The kernel's verifier looks at one of them only.
    fn repeat(&self, turns: u32, body: &mut impl Turn<Self>);

    /// [`place::offer`], where its stack and the verifier's work are best kept apart.
    #[inline(always)]
    fn offer(&self, id: u32, hash: u32, terms: Terms) -> Offer {
        place::offer(self, id, hash, terms)
    }
    /// [`health::failed`] for the draft's frontend, apart for the same reason.
    #[inline(always)]
    fn failed(&self, id: u32, client: u32, failure: Failure) {
        health::failed(self, id, client, failure);
    }

    /// Takes one refusal from this tick's budget; false when it is spent.
    fn allow_refusal(&self) -> bool;
    /// Notes somebody else's claim to a VIP.
    fn note_conflict(&self, vip: Self::Addr, mac: Mac);
    /// Puts the buffer into this link's ingress when the program ends (egress only).
    fn reinject(&self);
    /// Sends the frame out of another interface when the program ends.
    fn redirect(&self, ifindex: u32);
}
