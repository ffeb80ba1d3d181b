//! What the kernel should hold, from all sources: the model, the timers, the neighbours, the
//! owner of each VIP.
//!
//! [`Target`] only borrows; nothing is decided here but what follows from the sources alone. Only
//! IPv4 goes to the kernel: everything else is left out with a reason.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use ipnet::{IpNet, Ipv4Net};
use lb_common::V4;
use lb_common::abi::{self, Config, State};
use lb_common::limits::TICK_SHIFT;

use super::order::LeftOutReason;
use crate::desired::{self, Desired, EndpointState, FrontendKey, FrontendVerdict, Tier, Via};

/// Where a frame for a `Nat` endpoint goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextHop {
    /// The neighbour: a gateway, or the endpoint itself.
    pub ip: Ipv4Addr,
    /// Interface it is behind.
    pub ifindex: u32,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The interface's own.
    pub own_mac: [u8; 6],
}

/// What the timers and the node's own watch know of an endpoint beyond the slices; also of one
/// that the slices no longer list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Life {
    /// Which life at its address: another one is another endpoint with another id.
    pub incarnation: u32,
    /// `Gone` takes it out of selection and ends its flows; anything else keeps its flows.
    pub state: EndpointState,
    /// False when it gets none whatever the slices say.
    pub new_connections: bool,
    /// How it is (or was) reached.
    pub via: Via,
}

/// Endpoints with a life beyond the slices, by frontend.
pub type Lives = BTreeMap<FrontendKey, BTreeMap<SocketAddr, Life>>;

/// Everything that decides what the kernel should hold.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// From the model.
    pub desired: &'a Desired,
    /// From the timers.
    pub lives: &'a Lives,
    /// Resolved next hops by endpoint address.
    pub next_hops: &'a BTreeMap<Ipv4Addr, NextHop>,
    /// Until when each VIP is answered for; a VIP without one by its tier: always, or never when
    /// this node is excluded.
    pub leases: &'a BTreeMap<Ipv4Addr, abi::Vip>,
    /// Seed, SNAT and limits.
    pub config: Config<V4>,
    /// Reads words of a region back from the array, which makes changes of large tables cheap.
    pub words: Option<&'a dyn Fn(abi::Frontend) -> Option<Vec<u32>>>,
}

impl<'a> Target<'a> {
    /// The model's wishes alone.
    pub fn new(desired: &'a Desired, config: Config<V4>) -> Self {
        static LIVES: Lives = BTreeMap::new();
        static NEXT_HOPS: BTreeMap<Ipv4Addr, NextHop> = BTreeMap::new();
        static LEASES: BTreeMap<Ipv4Addr, abi::Vip> = BTreeMap::new();
        Self {
            desired,
            lives: &LIVES,
            next_hops: &NEXT_HOPS,
            leases: &LEASES,
            config,
            words: None,
        }
    }

    /// Every frontend that should be there, also those that only have old flows.
    pub(super) fn frontends(&self) -> impl Iterator<Item = FrontendKey> {
        let lingering = self
            .lives
            .iter()
            .filter(|(key, lives)| !lives.is_empty() && !self.desired.frontends.contains_key(*key));
        self.desired
            .frontends
            .keys()
            .chain(lingering.map(|(key, _)| key))
            .copied()
    }

    /// Every address to answer for, and until when.
    pub(super) fn vips(&self) -> BTreeMap<V4, abi::Vip> {
        let lease = |address: Ipv4Addr, tier: Tier| {
            let default = match tier {
                Tier::Ready | Tier::Draining | Tier::Any => u64::MAX,
                Tier::Excluded => 0,
            };
            let by_tier = abi::Vip {
                answer_until: default,
                epoch: 0,
                zero: 0,
            };
            (
                V4::from(address),
                self.leases.get(&address).copied().unwrap_or(by_tier),
            )
        };
        let wanted = self
            .desired
            .vips
            .iter()
            .filter_map(|(address, vip)| match address {
                IpAddr::V4(address) => Some(lease(*address, vip.tier)),
                IpAddr::V6(_) => None,
            });
        let lingering = self
            .lives
            .iter()
            .filter_map(|(key, lives)| match key.address {
                IpAddr::V4(address) => (!lives.is_empty()).then(|| lease(address, Tier::Any)),
                IpAddr::V6(_) => None,
            });
        lingering.chain(wanted).collect()
    }

    /// What a frontend should be; `None` when it should not be at all.
    pub(super) fn frontend(&self, key: &FrontendKey) -> Option<Wanted> {
        let frontend = self.desired.frontends.get(key);
        let lives = self.lives.get(key).filter(|lives| !lives.is_empty());
        let mut wanted = Wanted::default();
        if let Some(frontend) = frontend {
            wanted.describe(frontend);
            for endpoint in &frontend.endpoints {
                let life = lives.and_then(|lives| lives.get(&endpoint.address));
                let gone = life.is_some_and(|life| life.state == EndpointState::Gone);
                let shunned = life.is_some_and(|life| !life.new_connections);
                let state = match (gone, endpoint.new_connections && !shunned) {
                    (true, _) => State::Gone,
                    (false, true) => State::Active,
                    (false, false) => State::Draining,
                };
                let incarnation = life.map_or(0, |life| life.incarnation);
                wanted.endpoint(endpoint.address, state, endpoint.via, incarnation);
            }
        } else {
            lives?;
            wanted.verdict = abi::verdict::REJECT;
        }
        for (address, life) in lives.into_iter().flatten() {
            let gone = life.state == EndpointState::Gone;
            let state = if gone { State::Gone } else { State::Draining };
            if !wanted.knows(*address) {
                wanted.endpoint(*address, state, life.via, life.incarnation);
            }
        }
        let no_member = !wanted
            .endpoints
            .values()
            .any(|endpoint| endpoint.state == State::Active);
        if no_member && wanted.verdict == abi::verdict::FORWARD {
            wanted.verdict = abi::verdict::REJECT;
        }
        Some(wanted)
    }
}

/// One frontend as it should be.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) verdict: u8,
    pub(super) affinity: u32,
    /// None: every client may come.
    pub(super) ranges: Option<Vec<Ipv4Net>>,
    pub(super) endpoints: BTreeMap<SocketAddrV4, WantedEndpoint>,
    pub(super) left_out: Vec<LeftOutReason>,
}

/// One endpoint as it should be; new connections go to the active ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedEndpoint {
    pub(super) state: State,
    pub(super) via: Via,
    /// Which life at its address; 0 when nobody says.
    pub(super) incarnation: u32,
}

impl Wanted {
    fn describe(&mut self, frontend: &desired::Frontend) {
        self.verdict = match frontend.verdict {
            FrontendVerdict::Forward => abi::verdict::FORWARD,
            FrontendVerdict::Drop => abi::verdict::DROP,
            FrontendVerdict::Reject => abi::verdict::REJECT,
        };
        self.affinity = frontend.affinity.map_or(0, |timeout| {
            let ticks = timeout.as_nanos().div_ceil(1 << TICK_SHIFT).max(1);
            u32::try_from(ticks).unwrap_or(u32::MAX)
        });
        self.ranges = (!frontend.source_ranges.is_empty()).then(|| {
            let v4 = frontend
                .source_ranges
                .iter()
                .filter_map(|range| match range {
                    IpNet::V4(range) => Some(range.trunc()),
                    IpNet::V6(_) => None,
                });
            v4.collect()
        });
    }

    fn endpoint(&mut self, address: SocketAddr, state: State, via: Via, incarnation: u32) {
        match address {
            SocketAddr::V4(address) => {
                let endpoint = WantedEndpoint {
                    state,
                    via,
                    incarnation,
                };
                self.endpoints.insert(address, endpoint);
            }
            SocketAddr::V6(_) => self.left_out.push(LeftOutReason::Ipv6Endpoint { address }),
        }
    }

    fn knows(&self, address: SocketAddr) -> bool {
        match address {
            SocketAddr::V4(address) => self.endpoints.contains_key(&address),
            // Reported with the slices' endpoints, if at all.
            SocketAddr::V6(_) => true,
        }
    }
}

/// The kernel's key of a frontend; `None` for IPv6.
pub fn kernel_key(key: &FrontendKey) -> Option<abi::FrontendKey<V4>> {
    match key.address {
        IpAddr::V4(address) => Some(abi::FrontendKey {
            address: V4::from(address),
            port: key.port,
            protocol: key.protocol.number(),
            zero: 0,
        }),
        IpAddr::V6(_) => None,
    }
}
