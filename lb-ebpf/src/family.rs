//! What differs between address families: the network header.
//!
//! Stages are generic over [`Family`]; IPv6 is another implementation of it (and of `World`),
//! not another set of stages.

use lb_common::abi::FlowKey;
use lb_common::wire::icmp::Icmp;
use lb_common::wire::ipv4::{self, Ipv4};
use lb_common::wire::l4::Ports;
use lb_common::wire::{Be16, eth, icmp};
use lb_common::{Address, Reason, V4, checksum};

use crate::frame::{Bytes, Frame, Rebuild};

/// What the stages need of a network header.
#[derive(Clone, Copy, Debug)]
pub struct Network<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// TOS byte.
    pub tos: u8,
    /// Offset of the transport header in the frame.
    pub transport: usize,
    /// Length of transport header and payload, from the network header.
    pub payload_len: usize,
    /// The header checksum's word and the time-to-live word, for incremental updates.
    pub checksum: Be16,
    /// What is wrong with the header, if anything. It matters only for a VIP's packet.
    pub fault: Option<Reason>,
}

/// An address family.
pub trait Family {
    /// Its addresses.
    type Addr: Address;
    /// What an Ethernet header calls it.
    const ETHERTYPE: Be16;
    /// Protocol number of its control messages.
    const ICMP: u8;

    /// The destination. None when the frame ends before the header's fixed part.
    fn destination<B: Bytes>(frame: &B) -> Option<Self::Addr>;

    /// The header as it is where there are no options, unjudged; all offsets are constants. None
    /// when the frame ends before its end.
    fn fixed<B: Bytes>(frame: &B) -> Option<Network<Self::Addr>>;

    /// The same, judged: none unless the header is sound and has no options, and the packet is no
    /// fragment and lies in the frame's first piece.
    fn plain<B: Bytes>(frame: &B) -> Option<Network<Self::Addr>>;

    /// Parses the network header. None when the frame ends before the addresses.
    fn parse<B: Bytes>(frame: &B) -> Option<Network<Self::Addr>>;

    /// Writes new addresses and the time to live that `hop` asks for, and keeps the header's
    /// checksum right.
    #[must_use]
    fn rewrite<F: Frame>(
        frame: &mut F,
        old: &Network<Self::Addr>,
        src: Self::Addr,
        dst: Self::Addr,
        address_delta: u16,
        hop: Hop,
    ) -> Option<()>;

    /// Writes a fresh header without options, `payload` bytes of payload after it.
    #[must_use]
    fn emit<F: Rebuild>(frame: &mut F, header: &Fresh<Self::Addr>) -> Option<()>;

    /// What an unreachable is about. None for other messages, and for quotes with options.
    fn quoted<B: Bytes>(frame: &B, net: &Network<Self::Addr>) -> Option<Quoted<Self::Addr>>;

    /// Length of a fresh header.
    const HEADER_LEN: usize;
}

/// What an ICMP unreachable is about.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<A> {
    /// Its code.
    pub code: u8,
    /// Tuple of the packet that could not be delivered.
    pub sent: FlowKey<A>,
}

/// Whether this is a hop of the packet's way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hop {
    /// We forward: the time to live goes down.
    Counted,
    /// The node's stack forwards and counts.
    Left,
    /// Its way begins here: it is an answer of ours.
    First,
}

/// Time to live of what we send ourselves.
pub const TTL: u8 = 64;

/// A fresh network header.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// TOS byte.
    pub tos: u8,
    /// Bytes of payload.
    pub payload: usize,
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub struct V4Family;

impl Family for V4Family {
    type Addr = V4;
    const ETHERTYPE: Be16 = eth::IPV4;
    const ICMP: u8 = ipv4::ICMP;
    const HEADER_LEN: usize = ipv4::MIN_LEN;

    #[inline(always)]
    fn quoted<B: Bytes>(frame: &B, net: &Network<V4>) -> Option<Quoted<V4>> {
        let message = frame.read::<Icmp>(net.transport)?;
        let at = net.transport + icmp::LEN;
        let inner = frame.read::<Ipv4>(at)?;
        if message.kind != icmp::UNREACHABLE || inner.header_len() != ipv4::MIN_LEN {
            return None;
        }
        let ports = frame.read::<Ports>(at + ipv4::MIN_LEN)?;
        let sent = FlowKey::new(inner.src, inner.dst, ports, inner.protocol);
        let code = message.code;
        // The sender of what could not be delivered is who must be told.
        (inner.src == net.dst).then_some(Quoted { code, sent })
    }

    #[inline(always)]
    fn destination<B: Bytes>(frame: &B) -> Option<V4> {
        Some(frame.read::<Ipv4>(eth::LEN)?.dst)
    }

    #[inline(always)]
    fn fixed<B: Bytes>(frame: &B) -> Option<Network<V4>> {
        let header = frame.read::<Ipv4>(eth::LEN)?;
        let total_len = usize::from(header.total_len.get());
        Some(Network {
            src: header.src,
            dst: header.dst,
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            transport: eth::LEN + ipv4::MIN_LEN,
            payload_len: total_len.wrapping_sub(ipv4::MIN_LEN),
            checksum: header.checksum,
            fault: None,
        })
    }

    #[inline(always)]
    fn plain<B: Bytes>(frame: &B) -> Option<Network<V4>> {
        let header = frame.read::<Ipv4>(eth::LEN)?;
        let total_len = usize::from(header.total_len.get());
        let plain = header.version_ihl == ipv4::PLAIN
            && total_len >= ipv4::MIN_LEN
            && eth::LEN + total_len <= frame.at_hand()
            && !header.is_fragment();
        if plain { Self::fixed(frame) } else { None }
    }

    #[inline(always)]
    fn parse<B: Bytes>(frame: &B) -> Option<Network<V4>> {
        let header = frame.read::<Ipv4>(eth::LEN)?;
        let header_len = header.header_len();
        let total_len = usize::from(header.total_len.get());
        let impossible = header.version_ihl >> 4 != 4 || header_len < ipv4::MIN_LEN;
        let fault = if impossible || !frame.holds(eth::LEN + header_len) {
            Some(Reason::BadHeaderLength)
        } else if total_len < header_len || !frame.holds(eth::LEN + total_len) {
            Some(Reason::BadTotalLength)
        } else if header.is_fragment() {
            Some(Reason::Fragment)
        } else {
            None
        };
        Some(Network {
            src: header.src,
            dst: header.dst,
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            transport: eth::LEN + header_len,
            payload_len: total_len.wrapping_sub(header_len),
            checksum: header.checksum,
            fault,
        })
    }

    #[inline(always)]
    fn rewrite<F: Frame>(
        frame: &mut F,
        old: &Network<V4>,
        src: V4,
        dst: V4,
        address_delta: u16,
        hop: Hop,
    ) -> Option<()> {
        let ttl = match hop {
            Hop::Left => old.ttl,
            Hop::Counted => old.ttl.wrapping_sub(1),
            Hop::First => TTL,
        };
        let change = match hop {
            Hop::Left => 0,
            // One less in the first byte of its word, whatever stands there.
            Hop::Counted => !u16::from_ne_bytes([1, 0]),
            Hop::First => {
                let before = u16::from_ne_bytes([old.ttl, old.protocol]);
                let after = u16::from_ne_bytes([ttl, old.protocol]);
                checksum::delta(u32::from(before), u32::from(after))
            }
        };
        if hop != Hop::Left {
            frame.write(eth::LEN + ipv4::TTL_OFFSET, ttl)?;
        }
        let field = checksum::update_twice(old.checksum.word(), address_delta, change);
        frame.write(eth::LEN + ipv4::CHECKSUM_OFFSET, Be16::from_word(field))?;
        frame.write(eth::LEN + ipv4::SRC_OFFSET, [src, dst])
    }

    #[inline(always)]
    fn emit<F: Rebuild>(frame: &mut F, header: &Fresh<V4>) -> Option<()> {
        let mut ip = Ipv4 {
            version_ihl: 0x45,
            tos: header.tos,
            total_len: Be16::new((ipv4::MIN_LEN + header.payload) as u16),
            id: Be16::new(0),
            fragment: ipv4::DONT_FRAGMENT,
            ttl: header.ttl,
            protocol: header.protocol,
            checksum: Be16::new(0),
            src: header.src,
            dst: header.dst,
        };
        ip.checksum = ip.computed_checksum();
        frame.write(eth::LEN, ip)
    }
}

/// Type and code pairs of control messages live with the stage that sends them.
pub const ECHO_REQUEST: u8 = icmp::ECHO_REQUEST;
