//! The state of a node as data, and what it means in map entries.

use lb_common::abi::{
    Config, Endpoint, Frontend, FrontendKey, Kind, LINK_NONE, Link, SourceRange, State, Vip,
    verdict,
};
use lb_common::select::{self, Layout};
use lb_common::{Mac, V4, limits};

use super::packet::{NODE_MAC, SERVER_MAC};

pub const VIP: [u8; 4] = [192, 0, 2, 10];
pub const VIP2: [u8; 4] = [192, 0, 2, 11];
pub const CLIENT: [u8; 4] = [192, 0, 2, 50];
pub const CLIENT2: [u8; 4] = [198, 51, 100, 7];
/// Source of full NAT: the uplink's own address.
pub const SNAT: [u8; 4] = [192, 0, 2, 2];
pub const PODS: [[u8; 4]; 3] = [[10, 1, 1, 11], [10, 1, 1, 12], [10, 1, 1, 13]];
pub const SERVERS: [[u8; 4]; 3] = [[192, 0, 2, 21], [192, 0, 2, 22], [192, 0, 2, 23]];
pub const UPLINK: u32 = 7;
pub const OTHER_LINK: u32 = 9;
/// The only port of most nodes here, so that a case knows it.
pub const SNAT_PORT: u16 = 61_000;
pub const SEED: u64 = 0x736c_7569_6365;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Room in the flow tables, here and in the kernel.
pub const FLOWS: usize = 64;

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    pub flags: u8,
    pub failover: bool,
    pub refusals: u32,
    pub snat_ports: [u16; 2],
    /// VIPs, and whether this node answers for them now.
    pub vips: Vec<([u8; 4], bool)>,
    pub frontends: Vec<Service>,
    pub endpoints: Vec<(u32, Endpoint<V4>)>,
}

/// A frontend and its table.
#[derive(Clone, Debug)]
pub struct Service {
    pub id: u32,
    pub vip: [u8; 4],
    pub port: u16,
    pub protocol: u8,
    /// Endpoint ids.
    pub members: Vec<u32>,
    /// Primary and secondary of each row, as indices of `members`; a power of two of rows.
    pub rows: Vec<(u32, Option<u32>)>,
    /// Affinity in coarse ticks.
    pub affinity: u32,
    pub verdict: u8,
    /// Allowed clients; none for all.
    pub ranges: Vec<([u8; 4], u8)>,
}

impl Service {
    /// One row: the first member is primary, the second its secondary.
    pub fn new(id: u32, vip: [u8; 4], port: u16, protocol: u8, members: &[u32]) -> Self {
        Self {
            id,
            vip,
            port,
            protocol,
            members: members.to_vec(),
            rows: vec![(0, (members.len() > 1).then_some(1))],
            affinity: 0,
            verdict: verdict::FORWARD,
            ranges: vec![],
        }
    }
}

/// An endpoint on this node.
pub fn pod(frontend: u32, index: usize, port: u16) -> Endpoint<V4> {
    Endpoint {
        address: V4(PODS[index]),
        port,
        via: Kind::Local as u8,
        state: State::Active as u8,
        ifindex: 0,
        next_hop: Mac([0; 6]),
        own_mac: Mac([0; 6]),
        frontend,
        incarnation: 1,
    }
}

/// An endpoint without an agent, reached by full NAT over the uplink.
pub fn server(frontend: u32, index: usize, port: u16) -> Endpoint<V4> {
    Endpoint {
        address: V4(SERVERS[index]),
        via: Kind::Nat as u8,
        ifindex: UPLINK,
        next_hop: Mac(SERVER_MAC),
        own_mac: Mac(NODE_MAC),
        ..pod(frontend, 0, port)
    }
}

impl Node {
    /// Owns both VIPs and has nothing behind them.
    pub fn bare() -> Self {
        Self {
            flags: LINK_NONE,
            failover: false,
            refusals: 1_000_000,
            snat_ports: [SNAT_PORT, SNAT_PORT],
            vips: vec![(VIP, true), (VIP2, true)],
            frontends: vec![],
            endpoints: vec![],
        }
    }

    /// VIP:80/TCP and VIP:53/UDP with one pod each (endpoints 1 and 4).
    pub fn local() -> Self {
        Self::bare()
            .service(Service::new(1, VIP, 80, TCP, &[1]))
            .service(Service::new(2, VIP, 53, UDP, &[4]))
            .endpoint(1, pod(1, 0, 8080))
            .endpoint(4, pod(2, 0, 5353))
    }

    /// The same with servers behind full NAT.
    pub fn nat() -> Self {
        Self::bare()
            .service(Service::new(1, VIP, 80, TCP, &[1]))
            .service(Service::new(2, VIP, 53, UDP, &[4]))
            .endpoint(1, server(1, 0, 8080))
            .endpoint(4, server(2, 0, 5353))
    }

    #[must_use]
    pub fn service(mut self, service: Service) -> Self {
        self.frontends.push(service);
        self
    }

    #[must_use]
    pub fn endpoint(mut self, id: u32, endpoint: Endpoint<V4>) -> Self {
        self.endpoints.push((id, endpoint));
        self
    }

    #[must_use]
    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    #[must_use]
    pub fn with(mut self, change: impl Fn(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn link(&self) -> Link {
        Link {
            ifindex: UPLINK,
            mac: Mac(NODE_MAC),
            flags: self.flags,
            zero: 0,
        }
    }

    pub fn config(&self) -> Config<V4> {
        Config {
            seed: SEED,
            snat: V4(SNAT),
            snat_ports: self.snat_ports,
            refusals: self.refusals,
            failover: self.failover.into(),
        }
    }

    /// Entries of map `vips`.
    pub fn vips(&self) -> Vec<(V4, Vip)> {
        let entry = |owned| Vip {
            answer_until: if owned { u64::MAX } else { 1 },
            epoch: 1,
            zero: 0,
        };
        self.vips
            .iter()
            .map(|&(vip, owned)| (V4(vip), entry(owned)))
            .collect()
    }

    /// Bits of the destination bitmap.
    pub fn bits(&self) -> Vec<u32> {
        self.vips
            .iter()
            .map(|&(vip, _)| vip)
            .chain([SNAT])
            .map(|address| lb_common::bitmap_index(V4(address)))
            .collect()
    }

    /// Entries of map `frontends`; each one's region begins at 16 times its id.
    pub fn frontends(&self) -> Vec<(FrontendKey<V4>, Frontend)> {
        let entry = |service: &Service| {
            let key = FrontendKey {
                address: V4(service.vip),
                port: service.port,
                protocol: service.protocol,
                zero: 0,
            };
            let value = Frontend {
                id: service.id,
                region: service.id * 16,
                affinity: service.affinity,
                members: service.members.len() as u16,
                rows_log2: service.rows.len().trailing_zeros() as u8,
                verdict: service.verdict,
                source_ranges: (!service.ranges.is_empty()).into(),
                zero: [0; 3],
            };
            (key, value)
        };
        self.frontends.iter().map(entry).collect()
    }

    /// Words of the selection array that are not zero, by element and lane.
    pub fn words(&self) -> Vec<((u32, usize), u32)> {
        let mut words = std::collections::BTreeMap::new();
        for service in &self.frontends {
            assert!(service.rows.len().is_power_of_two());
            let layout = Layout::new(
                service.members.len() as u16,
                service.rows.len().trailing_zeros() as u8,
            );
            let region = service.id * 16;
            if service.members.is_empty() {
                continue;
            }
            for (index, &id) in service.members.iter().enumerate() {
                let at = layout.member_at(region, index as u32);
                words.insert((at.element, at.lane), id);
            }
            for (row, &(primary, secondary)) in service.rows.iter().enumerate() {
                let at = layout.row_at(region, row as u32);
                let choice = select::Choice { primary, secondary };
                *words.entry((at.slot.element, at.slot.lane)).or_default() |=
                    layout.pack(choice, at.shift);
            }
        }
        words.into_iter().collect()
    }

    /// Entries of map `source_ranges`, with the length of the client's prefix.
    pub fn ranges(&self) -> Vec<(u8, SourceRange<V4>)> {
        self.frontends
            .iter()
            .flat_map(|service| service.ranges.iter().map(move |range| (service.id, range)))
            .map(|(id, &(client, prefix))| {
                let range = SourceRange {
                    frontend: id.to_be(),
                    client: V4(client),
                };
                (prefix, range)
            })
            .collect()
    }
}

/// A client port whose connection falls into row `row` of `rows`.
pub fn port_in_row(client: [u8; 4], vip: ([u8; 4], u16), protocol: u8, row: u32, rows: u32) -> u16 {
    (40_000..50_000)
        .find(|&port| {
            select::flow_hash(V4(client), port, V4(vip.0), vip.1, protocol, SEED) & (rows - 1)
                == row
        })
        .expect("10,000 ports fall into every row")
}

/// Milliseconds (of 2^20 ns) that outlast the patience with a silent endpoint.
pub const IMPATIENT: u32 = limits::SYN_PATIENCE_MS + 100;
