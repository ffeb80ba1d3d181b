//! Flows and handshakes.
//!
//! A *handshake* is keyed by the reply tuple (endpoint first), because the answer is what it
//! waits for. When the endpoint has answered, an *answered* entry under the client's tuple
//! waits for the client's ACK; that ACK makes the *flow* (client's tuple) and, for an endpoint
//! on this node, the *reverse* entry (reply tuple). A `Nat` flow is two flows.

use crate::wire::l4::Ports;
use crate::{Be16, Be32, Mac, V4, plain};

/// Tuple of a packet as it arrives.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct FlowKey<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Ports, wire order.
    pub ports: Ports,
    /// 6 or 17.
    pub protocol: u8,
    /// Zero.
    pub zero: u8,
    /// Zero. Not one array of three bytes: the compiler would call a function to clear it.
    pub zeros: u16,
}

impl<A: Copy> FlowKey<A> {
    /// A key from its parts.
    #[inline(always)]
    pub const fn new(src: A, dst: A, ports: Ports, protocol: u8) -> Self {
        Self {
            src,
            dst,
            ports,
            protocol,
            zero: 0,
            zeros: 0,
        }
    }
}

/// What a flow entry does with its packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// Client to an endpoint on this node.
    Local = 0,
    /// Client to an endpoint by full NAT.
    Nat = 1,
    /// Endpoint behind full NAT back to the client.
    NatReply = 2,
}

impl Kind {
    /// From the map's byte; unknown values count as `Local`.
    #[inline(always)]
    pub const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Nat,
            2 => Self::NatReply,
            _ => Self::Local,
        }
    }
}

/// The client has sent FIN.
pub const STATE_FIN_CLIENT: u8 = 1;
/// The endpoint has sent FIN.
pub const STATE_FIN_ENDPOINT: u8 = 2;
/// One side has sent RST.
pub const STATE_RST: u8 = 4;
/// The endpoint is gone: the next packet draws a RST.
pub const STATE_GONE: u8 = 8;
/// The sender leaves checksums partial: a match needs no proof.
pub const STATE_PARTIAL: u8 = 16;
/// Another connection of its tuple has been answered since: an ACK may complete that handshake.
pub const STATE_REOPENED: u8 = 32;

/// An established flow: the packet's new tuple, and what changes with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Flow<A> {
    /// New source address.
    pub src: A,
    /// New destination address.
    pub dst: A,
    /// New ports, wire order.
    pub ports: Ports,
    /// Checksum delta of the addresses, native words.
    pub address_delta: u16,
    /// Checksum delta of the ports, native words.
    pub port_delta: u16,
    /// Endpoint id.
    pub endpoint: u32,
    /// Frontend id.
    pub frontend: u32,
    /// Coarse tick of the last packet of this direction.
    pub seen: u32,
    /// Coarse tick of the last packet of the endpoint (UDP; with `Local`).
    pub replied: u32,
    /// The client's last acknowledgement number, as of `seen`.
    pub ack: Be32,
    /// `NatReply`: interface towards the client.
    pub ifindex: u32,
    /// `NatReply`: the client's next hop.
    pub mac: Mac,
    /// A [`Kind`].
    pub kind: u8,
    /// Bits `STATE_*`.
    pub state: u8,
}

/// Reply tuple of a `Local` flow, to the VIP's side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Reverse<A> {
    /// The VIP: the reply's new source address.
    pub vip: A,
    /// Source port the VIP's, destination port the client's own.
    pub ports: Ports,
    /// Coarse tick of the last reply.
    pub seen: u32,
}

/// Bit of [`Handshake::flags`]: a SYN-ACK has passed, the SYN is never steered again.
pub const HANDSHAKE_ANSWERED: u8 = 1;

/// Bit of [`Handshake::flags`]: UDP, and the endpoint's port is closed; the client goes elsewhere.
pub const HANDSHAKE_REFUSED: u8 = 2;

/// Bits of [`Handshake::flags`]: the SYN's ECE and CWR, where TCP has them (RFC 3168).
pub const HANDSHAKE_ECN: u8 = 0xc0;

/// A connection attempt (or one-way UDP exchange) under way to one endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Handshake<A> {
    /// Where the client wants to go.
    pub vip: A,
    /// The client.
    pub client: A,
    /// Ports as the client sent them.
    pub ports: Ports,
    /// The client's initial sequence number.
    pub isn: Be32,
    /// The acknowledgement that the client must send, once answered.
    pub ack: Be32,
    /// Start, in units of 2^20 ns.
    pub started: u32,
    /// Endpoint id.
    pub endpoint: u32,
    /// Frontend id.
    pub frontend: u32,
    /// Interface the SYN came in by.
    pub ifindex: u32,
    /// Endpoints tried before this one, 0 for none.
    pub tried: [u32; 2],
    /// The client's next hop.
    pub mac: Mac,
    /// The SYN's window.
    pub window: Be16,
    /// The SYN's TOS byte.
    pub tos: u8,
    /// The SYN's time to live.
    pub ttl: u8,
    /// Bits `HANDSHAKE_*`.
    pub flags: u8,
    /// Length of `options` in 32-bit words, 0 to 10.
    pub option_words: u8,
    /// The SYN's TCP options.
    pub options: [u32; 10],
}

/// A handshake that its endpoint has answered, under the client's tuple.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Answered {
    /// Endpoint id.
    pub endpoint: u32,
    /// Frontend id.
    pub frontend: u32,
    /// The acknowledgement number that completes the handshake.
    pub ack: Be32,
    /// The client's initial sequence number.
    pub isn: Be32,
    /// Ports of the reply tuple (endpoint's, then client's or SNAT's).
    pub reply_ports: Ports,
    /// Coarse tick of the first answer.
    pub seen: u32,
}

plain! {
    FlowKey<V4> = 16: V4, V4, Ports, u8, u8, u16;
    Flow<V4> = 48: V4, V4, Ports, u16, u16, u32, u32, u32, u32, Be32, u32, Mac, u8, u8;
    Reverse<V4> = 12: V4, Ports, u32;
    Handshake<V4> = 96: V4, V4, Ports, Be32, Be32, u32, u32, u32, u32, [u32; 2], Mac, Be16, u8, u8,
        u8, u8, [u32; 10];
    Answered = 24: u32, u32, Be32, Be32, Ports, u32;
}
