//! One node's tables, clocks and link, all of them a test's to set.

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::vec::Vec;

use lb_common::abi::{
    Affinity, AffinityKey, Answered, Config, Conflict, Endpoint, Flow, FlowKey, Frontend,
    FrontendKey, Handshake, Health, Link, Reverse, SourceRange, Vip,
};
use lb_common::wire::l4::Ports;
use lb_common::wire::{Be16, Be32};
use lb_common::{Mac, V4, bitmap_index, limits};

use super::table::{HostSlot, HostTable};
use crate::place::Search;
use crate::world::{Draft, Entry, Turn, World};

/// The interfaces that packets were redirected to.
pub type Redirect = u32;

/// A node.
#[derive(Debug)]
pub struct HostWorld {
    /// The link that packets come in by.
    pub link: Cell<Link>,
    /// The settings.
    pub config: Cell<Config<V4>>,
    /// Both clocks, in nanoseconds.
    pub now: Cell<u64>,
    /// VIPs.
    pub vips: RefCell<HashMap<V4, Vip>>,
    /// Addresses that the destination bitmap holds.
    pub bitmap: RefCell<Vec<u32>>,
    /// Frontends.
    pub frontends: RefCell<BTreeMap<FrontendKey<V4>, Frontend>>,
    /// Endpoints by id.
    pub endpoints: RefCell<BTreeMap<u32, Endpoint<V4>>>,
    /// Words of the selection array by element and lane.
    pub tables: RefCell<HashMap<(u32, usize), u32>>,
    /// Source ranges with the length of the client's prefix.
    pub source_ranges: RefCell<Vec<(u8, SourceRange<V4>)>>,
    /// Established flows.
    pub flows: HostTable<FlowKey<V4>, Flow<V4>>,
    /// Replies of `Local` flows.
    pub reverse: HostTable<FlowKey<V4>, Reverse<V4>>,
    /// Handshakes.
    pub handshakes: HostTable<FlowKey<V4>, Handshake<V4>>,
    /// Answered handshakes.
    pub answered: HostTable<FlowKey<V4>, Answered>,
    /// Session affinity.
    pub affinity: HostTable<AffinityKey<V4>, Affinity>,
    /// Claims of others to our VIPs.
    pub conflicts: HostTable<V4, Conflict>,
    /// Where the last packet was redirected to.
    pub redirected: Cell<Option<Redirect>>,
    health: RefCell<HashMap<u32, HostSlot<Health>>>,
    refusals: Cell<(u32, u32)>,
    draft: Cell<Draft<V4>>,
}

impl HostWorld {
    /// A node with empty tables.
    pub fn new(link: Link, config: Config<V4>) -> Self {
        Self {
            link: Cell::new(link),
            config: Cell::new(config),
            now: Cell::new(1 << 42),
            vips: RefCell::default(),
            bitmap: RefCell::default(),
            frontends: RefCell::default(),
            endpoints: RefCell::default(),
            tables: RefCell::default(),
            source_ranges: RefCell::default(),
            flows: HostTable::new(),
            reverse: HostTable::new(),
            handshakes: HostTable::new(),
            answered: HostTable::new(),
            affinity: HostTable::new(),
            conflicts: HostTable::new(),
            redirected: Cell::new(None),
            health: RefCell::default(),
            refusals: Cell::new((0, 0)),
            draft: Cell::new(DIRTY),
        }
    }

    /// Lets time pass.
    pub fn advance(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
    }

    /// Sets what is known of an endpoint's health.
    pub fn set_health(&self, id: u32, health: Health) {
        self.slot(id).set(health);
    }

    fn slot(&self, id: u32) -> HostSlot<Health> {
        self.health
            .borrow_mut()
            .entry(id)
            .or_insert_with(|| HostSlot::alone(Health::default()))
            .clone()
    }
}

/// The room for a handshake as another packet has left it: nothing may count on what is there.
const DIRTY: Draft<V4> = Draft {
    handshake: DIRTY_HANDSHAKE,
    frontend: Frontend {
        id: 0xa5a5,
        region: 0xa5a5,
        affinity: 0xa5a5,
        members: 0xa5a5,
        rows_log2: 0xa5,
        verdict: 0xa5,
        source_ranges: 0xa5,
        zero: [0xa5; 3],
    },
    protocol: 0xa5,
    search: Search::NONE,
};

const DIRTY_HANDSHAKE: Handshake<V4> = Handshake {
    vip: V4([0xa5; 4]),
    client: V4([0xa5; 4]),
    ports: Ports {
        src: Be16::new(0xa5a5),
        dst: Be16::new(0xa5a5),
    },
    isn: Be32::new(0xa5a5_a5a5),
    ack: Be32::new(0xa5a5_a5a5),
    started: 0xa5a5_a5a5,
    endpoint: 0xa5a5,
    frontend: 0xa5a5,
    ifindex: 0xa5a5,
    tried: [0xa5a5; 2],
    mac: Mac([0xa5; 6]),
    window: Be16::new(0xa5a5),
    tos: 0xa5,
    ttl: 0xa5,
    flags: 0xa5,
    option_words: 0xa5,
    options: [0xa5a5_a5a5; 10],
};

impl World for HostWorld {
    type Addr = V4;
    type EndpointSlot = HostSlot<Endpoint<V4>>;
    type HealthSlot = HostSlot<Health>;

    fn link(&self) -> Link {
        self.link.get()
    }

    fn config(&self) -> Config<V4> {
        self.config.get()
    }

    fn tick(&self) -> u32 {
        (self.now.get() >> limits::TICK_SHIFT) as u32
    }

    fn millis(&self) -> u32 {
        (self.now.get() >> 20) as u32
    }

    fn boot_ns(&self) -> u64 {
        self.now.get()
    }

    fn random(&self) -> u32 {
        0x5eed
    }

    fn in_bitmap(&self, address: V4) -> bool {
        self.bitmap.borrow().contains(&bitmap_index(address))
    }

    fn vip(&self, address: V4) -> Option<Vip> {
        self.vips.borrow().get(&address).copied()
    }

    fn frontend(&self, key: &FrontendKey<V4>) -> Option<Frontend> {
        self.frontends.borrow().get(key).copied()
    }

    fn endpoint_slot(&self, id: u32) -> Option<HostSlot<Endpoint<V4>>> {
        if id as usize >= limits::ENDPOINTS {
            return None;
        }
        let endpoints = self.endpoints.borrow();
        Some(HostSlot::alone(
            endpoints.get(&id).copied().unwrap_or_default(),
        ))
    }

    fn health(&self, id: u32) -> Option<HostSlot<Health>> {
        Some(self.slot(id))
    }

    fn table_word(&self, element: u32, lane: usize) -> u32 {
        self.tables
            .borrow()
            .get(&(element, lane & 15))
            .copied()
            .unwrap_or(0)
    }

    fn source_allowed(&self, range: SourceRange<V4>) -> bool {
        self.source_ranges.borrow().iter().any(|(prefix, allowed)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(*prefix)).unwrap_or(0);
            let network = |address: V4| u32::from_be_bytes(address.0) & mask;
            allowed.frontend == range.frontend && network(allowed.client) == network(range.client)
        })
    }

    fn flows(&self) -> impl Entry<FlowKey<V4>, Flow<V4>> {
        &self.flows
    }

    fn reverse(&self) -> impl Entry<FlowKey<V4>, Reverse<V4>> {
        &self.reverse
    }

    fn handshakes(&self) -> impl Entry<FlowKey<V4>, Handshake<V4>> {
        &self.handshakes
    }

    fn answered(&self) -> impl Entry<FlowKey<V4>, Answered> {
        &self.answered
    }

    fn affinity(&self) -> impl Entry<AffinityKey<V4>, Affinity> {
        &self.affinity
    }

    fn with_draft<R>(&self, draw: impl FnOnce(&mut Draft<V4>) -> R) -> Option<R> {
        let mut draft = self.draft.get();
        let result = draw(&mut draft);
        self.draft.set(draft);
        Some(result)
    }

    fn repeat(&self, turns: u32, body: &mut impl Turn<Self>) {
        for index in 0..turns {
            if !body.turn(self, index) {
                break;
            }
        }
    }

    fn allow_refusal(&self) -> bool {
        let (tick, count) = self.refusals.get();
        let spent = if tick == self.tick() { count + 1 } else { 1 };
        self.refusals.set((self.tick(), spent));
        spent <= self.config.get().refusals
    }

    fn note_conflict(&self, vip: V4, mac: Mac) {
        let count = self
            .conflicts
            .get(&vip)
            .map_or(0, |conflict| conflict.count);
        let conflict = Conflict {
            count: count + 1,
            seen: self.tick(),
            mac,
            zero: 0,
        };
        // Older claims make room in the kernel's table; this one has no limit.
        (&self.conflicts).insert(&vip, &conflict);
    }

    fn reinject(&self) {
        self.redirected.set(Some(self.link.get().ifindex));
    }

    fn redirect(&self, ifindex: u32) {
        self.redirected.set(Some(ifindex));
    }
}
