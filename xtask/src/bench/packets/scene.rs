//! The node whose packets are measured: two frontends with a hundred endpoints each, one kind
//! behind either, and 64k established flows of each kind.

use std::net::{Ipv4Addr, SocketAddrV4};

use lb_common::abi::{
    Config, Endpoint, Flow, FlowKey, Frontend, FrontendKey, Handshake, Kind, State, Vip, verdict,
};
use lb_common::select::{self, Layout};
use lb_common::wire::l4::Ports;
use lb_common::{Address as _, Be16, Be32, Mac, V4, checksum, limits};

use super::frames::{self, Way};

/// The uplink. Nothing is sent, so the index means nothing to this machine.
pub(super) const UPLINK: u32 = 2;
pub(super) const NODE_MAC: frames::Mac = [2, 0, 0, 0, 0, 1];
pub(super) const CLIENT_MAC: frames::Mac = [2, 0, 0, 0, 0, 0xc0];
pub(super) const SERVER_MAC: frames::Mac = [2, 0, 0, 0, 0, 0x21];

pub(super) const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
pub(super) const SNAT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// An address of nobody here.
const STRANGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// Source ports of established flows; of those that the harness numbers it is 0.
const PORT: u16 = 40_000;
const SNAT_PORT: u16 = 61_000;
/// Endpoints behind each frontend.
const ENDPOINTS: u16 = 100;
/// Established flows of each kind: one per source that the harness can choose.
pub(super) const FLOWS: u32 = 65_536;

/// A kind of established flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FlowKind {
    /// From a client to a local endpoint.
    Local,
    /// From a client to an endpoint by full NAT.
    Nat,
    /// Back from there.
    Reply,
}

impl FlowKind {
    /// Its flow number `index`.
    pub(super) fn flow(self, index: u32) -> (FlowKey<V4>, Flow<V4>) {
        match self {
            Self::Local => LOCAL.flow(index),
            Self::Nat => NAT.flow(index),
            Self::Reply => reply_flow(index),
        }
    }
}

/// Established flows in the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flows {
    /// One of each kind.
    OneEach,
    /// As many of one kind as the harness can choose from, and no others.
    Many(FlowKind),
}

impl Flows {
    /// Their entries.
    pub(super) fn entries(self) -> Vec<(FlowKey<V4>, Flow<V4>)> {
        match self {
            Self::OneEach => [FlowKind::Local, FlowKind::Nat, FlowKind::Reply]
                .map(|kind| kind.flow(0))
                .to_vec(),
            Self::Many(kind) => (0..FLOWS).map(|index| kind.flow(index)).collect(),
        }
    }
}

/// A frontend and what is behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Its port, and its id.
    port: u16,
    id: u32,
    via: Kind,
}

/// Endpoints on this node.
pub(super) const LOCAL: Service = Service {
    port: 80,
    id: 1,
    via: Kind::Local,
};
/// Endpoints by full NAT.
pub(super) const NAT: Service = Service {
    port: 81,
    id: 2,
    via: Kind::Nat,
};

/// Source number `index` in a network.
fn source(net: [u8; 2], index: u32) -> Ipv4Addr {
    let [a, b] = net;
    let [.., c, d] = index.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

fn client(index: u32) -> SocketAddrV4 {
    SocketAddrV4::new(source([198, 18], index), PORT)
}

fn server(index: u32) -> SocketAddrV4 {
    SocketAddrV4::new(source([198, 19], index), 8080)
}

impl Service {
    fn vip(self) -> SocketAddrV4 {
        SocketAddrV4::new(VIP, self.port)
    }

    /// From a client's first address and a port of its own, or from one that the harness
    /// numbers.
    fn client_way(self, port: u16) -> Way {
        Way {
            macs: (CLIENT_MAC, NODE_MAC),
            src: SocketAddrV4::new(*client(0).ip(), port),
            dst: self.vip(),
        }
    }

    /// A packet of its established flow number 0.
    pub(super) fn segment(self) -> Vec<u8> {
        frames::segment(self.client_way(PORT))
    }

    /// A new connection; the harness gives it a source.
    pub(super) fn syn(self) -> Vec<u8> {
        frames::syn(self.client_way(0))
    }

    /// True for endpoints on this node.
    pub(super) fn is_local(self) -> bool {
        matches!(self.via, Kind::Local)
    }

    fn endpoint_id(self, index: u32) -> u32 {
        (self.id - 1) * u32::from(ENDPOINTS) + 1 + index % u32::from(ENDPOINTS)
    }

    fn layout() -> Layout {
        Layout::new(ENDPOINTS, select::rows_log2_for(2, ENDPOINTS.into()))
    }

    /// Each region has a quarter of the array.
    fn region(self) -> u32 {
        self.id * (select::layout::ELEMENTS / 4)
    }

    /// Its entry in map `frontends`.
    pub(super) fn frontend(self) -> (FrontendKey<V4>, Frontend) {
        let key = FrontendKey {
            address: VIP.into(),
            port: self.port,
            protocol: 6,
            zero: 0,
        };
        let value = Frontend {
            id: self.id,
            region: self.region(),
            affinity: 0,
            members: ENDPOINTS,
            rows_log2: Self::layout().rows_log2() as u8,
            verdict: verdict::FORWARD,
            source_ranges: 0,
            zero: [0; 3],
        };
        (key, value)
    }

    /// Its elements of map `tables`: rows with every pair of neighbours, in no order that a
    /// predictor could learn.
    pub(super) fn table(self) -> Vec<(u32, [u32; 16])> {
        let layout = Self::layout();
        let mut elements = vec![[0u32; 16]; layout.elements() as usize];
        for member in 0..ENDPOINTS.into() {
            let at = layout.member_at(0, member);
            elements[at.element as usize][at.lane] = self.endpoint_id(member);
        }
        for row in 0..layout.rows() {
            let primary = row.wrapping_mul(0x9e37_79b1) >> 16;
            let choice = select::Choice {
                primary: primary % u32::from(ENDPOINTS),
                secondary: Some((primary + 1) % u32::from(ENDPOINTS)),
            };
            let at = layout.row_at(0, row);
            elements[at.slot.element as usize][at.slot.lane] |= layout.pack(choice, at.shift);
        }
        (self.region()..).zip(elements).collect()
    }

    /// Its entries of map `endpoints`.
    pub(super) fn endpoints(self) -> impl Iterator<Item = (u32, Endpoint<V4>)> {
        (0..ENDPOINTS.into()).map(move |index| (self.endpoint_id(index), self.endpoint(index)))
    }

    fn endpoint(self, index: u32) -> Endpoint<V4> {
        let net = if self.is_local() { 244 } else { 96 };
        let nat = u32::from(!self.is_local());
        Endpoint {
            address: source([10, net], index + 1).into(),
            port: 8080,
            via: self.via as u8,
            state: State::Active as u8,
            ifindex: nat * UPLINK,
            next_hop: Mac(SERVER_MAC),
            own_mac: Mac(NODE_MAC),
            frontend: self.id,
            incarnation: 1,
        }
    }

    /// Its established flow number `index`.
    pub(super) fn flow(self, index: u32) -> (FlowKey<V4>, Flow<V4>) {
        let id = self.endpoint_id(index);
        let endpoint = self.endpoint(index % u32::from(ENDPOINTS));
        let to = SocketAddrV4::new(endpoint.address.into(), endpoint.port);
        let from = if self.is_local() {
            client(index)
        } else {
            SocketAddrV4::new(SNAT, SNAT_PORT)
        };
        entry((client(index), self.vip()), (from, to), self.via, id)
    }
}

/// An answer of a server behind full NAT, of flow number 0.
pub(super) fn reply() -> Vec<u8> {
    frames::segment(Way {
        macs: (SERVER_MAC, NODE_MAC),
        src: server(0),
        dst: SocketAddrV4::new(SNAT, SNAT_PORT),
    })
}

/// The flow of such an answer, number `index`.
fn reply_flow(index: u32) -> (FlowKey<V4>, Flow<V4>) {
    entry(
        (server(index), SocketAddrV4::new(SNAT, SNAT_PORT)),
        (NAT.vip(), client(index)),
        Kind::NatReply,
        NAT.endpoint_id(index),
    )
}

/// The number of a new connection's packet, as the harness counts them: the lower half of its
/// address, and its port above.
pub(super) fn number(handshake: &Handshake<V4>) -> (u16, u16) {
    let V4([.., c, d]) = handshake.client;
    (handshake.ports.src.word(), u16::from_ne_bytes([c, d]))
}

/// A packet that is not ours.
pub(super) fn not_ours() -> Vec<u8> {
    frames::segment(Way {
        macs: (CLIENT_MAC, NODE_MAC),
        src: client(0),
        dst: SocketAddrV4::new(STRANGER, 443),
    })
}

type Pair = (SocketAddrV4, SocketAddrV4);

fn entry(old: Pair, new: Pair, kind: Kind, endpoint: u32) -> (FlowKey<V4>, Flow<V4>) {
    let tuple = |(src, dst): Pair| {
        let ports = Ports {
            src: Be16::new(src.port()),
            dst: Be16::new(dst.port()),
        };
        (V4::from(*src.ip()), V4::from(*dst.ip()), ports)
    };
    let sums = |(src, dst): Pair| V4::from(*src.ip()).sum() + V4::from(*dst.ip()).sum();
    let ((src, dst, ports), (new_src, new_dst, new_ports)) = (tuple(old), tuple(new));
    let flow = Flow {
        src: new_src,
        dst: new_dst,
        ports: new_ports,
        address_delta: checksum::delta(sums(old), sums(new)),
        port_delta: checksum::delta(ports.sum(), new_ports.sum()),
        endpoint,
        frontend: if kind as u8 == Kind::Local as u8 {
            LOCAL.id
        } else {
            NAT.id
        },
        seen: 0,
        replied: 0,
        ack: Be32::new(0),
        ifindex: UPLINK,
        mac: Mac(CLIENT_MAC),
        kind: kind as u8,
        state: 0,
    };
    (FlowKey::new(src, dst, ports, 6), flow)
}

/// The only slot of map `config`.
pub(super) fn config() -> Config<V4> {
    let (first, last) = limits::SNAT_PORTS;
    Config {
        seed: 0x736c_7569_6365,
        snat: SNAT.into(),
        snat_ports: [first, last],
        refusals: limits::REFUSALS_PER_SECOND,
        failover: 1,
    }
}

/// The VIP's entry of map `vips`.
pub(super) fn vip() -> (V4, Vip) {
    let owned = Vip {
        answer_until: u64::MAX,
        epoch: 1,
        zero: 0,
    };
    (VIP.into(), owned)
}

/// Bits of map `dest_bitmap`.
pub(super) fn bits() -> [u32; 2] {
    [VIP, SNAT].map(|address| lb_common::bitmap_index(V4::from(address)))
}

#[cfg(test)]
mod tests {
    use super::{STRANGER, bits};
    use lb_common::V4;

    #[test]
    fn the_stranger_shares_no_bit_with_us() {
        assert!(!bits().contains(&lb_common::bitmap_index(V4::from(STRANGER))));
    }
}
