//! The same few packets and openings, that most cases begin with.

use lb_common::Reason;

use super::case::{Case, case};
use super::node::{CLIENT, Node, PODS, SERVERS, SNAT, SNAT_PORT, VIP};
use super::packet::{ACK, CLIENT_MAC, L4, NODE_MAC, P, PSH, SERVER_MAC, SYN};

/// The client's port.
pub const PORT: u16 = 40_000;
/// The client's first sequence number.
pub const ISN: u32 = 0xffff_ffff;
/// The endpoint's.
pub const ENDPOINT_ISN: u32 = 0x7000_0000;

/// The client's SYN to VIP:80.
pub fn syn() -> P {
    P::tcp((CLIENT, PORT), (VIP, 80), SYN, ISN, 0)
}

/// The client's ACK of the endpoint's SYN-ACK.
pub fn ack() -> P {
    P::tcp(
        (CLIENT, PORT),
        (VIP, 80),
        ACK,
        ISN.wrapping_add(1),
        ENDPOINT_ISN + 1,
    )
}

/// A client's packet with data, and any flags.
pub fn data(flags: u8) -> P {
    P::tcp(
        (CLIENT, PORT),
        (VIP, 80),
        flags,
        ISN.wrapping_add(1),
        ENDPOINT_ISN + 1,
    )
    .data(b"GET / HTTP/1.0\r\n\r\n!")
}

/// The pod's packet towards the client, as it leaves.
pub fn from_pod(flags: u8) -> P {
    let seq = if flags & SYN == 0 {
        ENDPOINT_ISN + 1
    } else {
        ENDPOINT_ISN
    };
    P::tcp(
        (PODS[0], 8080),
        (CLIENT, PORT),
        flags,
        seq,
        ISN.wrapping_add(1),
    )
    .macs(CLIENT_MAC, NODE_MAC)
}

/// The server's packet towards the node.
pub fn from_server(flags: u8) -> P {
    from_pod(flags)
        .from(SERVERS[0], 8080)
        .to(SNAT, SNAT_PORT)
        .macs(NODE_MAC, SERVER_MAC)
}

/// A client's packet as pod `index` gets it.
pub fn at_pod(packet: &P, index: usize) -> P {
    packet.clone().to(PODS[index], 8080)
}

/// A client's packet as server `index` gets it.
pub fn at_server(packet: &P, index: usize) -> P {
    let ttl = packet.ttl - 1;
    packet
        .clone()
        .from(SNAT, SNAT_PORT)
        .to(SERVERS[index], 8080)
        .macs(SERVER_MAC, NODE_MAC)
        .ttl(ttl)
}

/// A pod's packet as the client gets it.
pub fn at_client(packet: &P) -> P {
    packet.clone().from(VIP, 80)
}

/// A server's packet as the client gets it.
pub fn back_at_client(packet: &P) -> P {
    let ttl = packet.ttl - 1;
    packet
        .clone()
        .from(VIP, 80)
        .to(CLIENT, PORT)
        .macs(CLIENT_MAC, NODE_MAC)
        .ttl(ttl)
}

/// Opens a connection to pod 0.
pub fn connected(name: &'static str, node: Node) -> Case {
    let answer = from_pod(SYN | ACK);
    case(name, node)
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0))
}

/// Opens a connection to server 0.
pub fn connected_nat(name: &'static str, node: Node) -> Case {
    let answer = from_server(SYN | ACK);
    case(name, node)
        .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
        .edited(&answer, Reason::ReplyNat, &back_at_client(&answer))
        .edited(&ack(), Reason::FlowNat, &at_server(&ack(), 0))
}

/// The RST that a VIP sends: a fresh packet, nothing of the refused one but its tuple.
pub fn reset(refused: &P, flags: u8, seq: u32, ack: u32) -> P {
    let mut rst =
        P::tcp(refused.dst, refused.src, flags, seq, ack).macs(refused.src_mac, refused.dst_mac);
    rst.id = 0;
    if let L4::Tcp { window, .. } = &mut rst.l4 {
        *window = 0;
    }
    rst
}

/// The port unreachable that a VIP sends.
pub fn unreachable(refused: &P) -> P {
    let quoted = &refused.bytes()[14..14 + 20 + 8];
    let mut error = P::icmp(refused.dst.0, refused.src.0, 3, 3, [0; 4])
        .data(quoted)
        .macs(refused.src_mac, refused.dst_mac);
    error.id = 0;
    error
}

pub const DATA: u8 = ACK | PSH;
