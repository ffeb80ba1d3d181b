//! Refusals: RST for TCP (RFC 9293, 3.10.7.1), port unreachable for UDP (RFC 1122, 4.1.3.1), and
//! echo replies for a VIP. Rate-limited per node, built in place, sent back the way the packet
//! came. Never in answer to a RST, a group address or an impossible source.

use lb_common::abi::{LINK_GENERIC, Link};
use lb_common::wire::eth::{self, Ethernet};
use lb_common::wire::icmp::{self, Icmp};
use lb_common::wire::l4::{self, Tcp};
use lb_common::wire::{Be16, Be32, Mac, ipv4};
use lb_common::{Address, Reason, checksum};

use crate::family::{Family, Fresh, Hop, Network, TTL};
use crate::frame::Frame;
use crate::packet::Packet;
use crate::rewrite::{self, ChecksumKind};
use crate::world::World;

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Why {
    /// No Service has this port.
    Port,
    /// The Service has no endpoint to take it.
    NoEndpoint,
    /// The middle of a connection that nobody here knows.
    UnknownFlow,
    /// The flow's endpoint is gone.
    Gone,
    /// The flow table is full.
    TableFull,
}

impl Why {
    /// From its number; unknown ones count as an unknown flow.
    #[inline(always)]
    pub const fn from_u32(value: u32) -> Self {
        const PORT: u32 = Why::Port as u32;
        const NO_ENDPOINT: u32 = Why::NoEndpoint as u32;
        const GONE: u32 = Why::Gone as u32;
        const TABLE_FULL: u32 = Why::TableFull as u32;
        match value {
            PORT => Self::Port,
            NO_ENDPOINT => Self::NoEndpoint,
            GONE => Self::Gone,
            TABLE_FULL => Self::TableFull,
            _ => Self::UnknownFlow,
        }
    }
}

/// Bytes of the offending transport header that an unreachable quotes (RFC 792).
const QUOTED: usize = 8;

/// Refuses a TCP or UDP packet.
#[inline(always)]
pub fn packet<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    why: Why,
) -> Result<Reason, Reason> {
    if packet.flags & l4::RST != 0 {
        return Err(Reason::UnknownRst);
    }
    check_source(world, packet.eth, &packet.net)?;
    // What answers a reset that was a little off must not wait: only a known flow's own packet
    // gets here for this reason, once for each.
    if why as u32 != Why::Gone as u32 && !world.allow_refusal() {
        return Err(Reason::RateLimited);
    }
    let partial = rewrite::kind_of(frame, world.link(), packet, false) == ChecksumKind::Partial;
    // Generic XDP sends the buffer with the checksum still to be finished at the old offsets.
    let finished_later = partial && world.link().flags & LINK_GENERIC != 0;
    if finished_later && packet.net.transport != eth::LEN + N::HEADER_LEN {
        return Err(Reason::CannotResize);
    }
    if packet.is_tcp() {
        reset::<F, N>(frame, world.link(), packet, finished_later)?;
        Ok(match why {
            Why::Port => Reason::RefusedPort,
            Why::NoEndpoint => Reason::RefusedNoEndpoint,
            Why::UnknownFlow => Reason::RefusedUnknownFlow,
            Why::Gone => Reason::RefusedGone,
            Why::TableFull => Reason::RefusedTableFull,
        })
    } else {
        unreachable::<F, N>(frame, world.link(), packet, finished_later)?;
        Ok(match why {
            Why::Port => Reason::RefusedUdpPort,
            Why::NoEndpoint | Why::UnknownFlow | Why::Gone | Why::TableFull => {
                Reason::RefusedUdpNoEndpoint
            }
        })
    }
}

/// Answers an echo request; other control messages are dropped.
#[inline(always)]
pub fn echo<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    ethernet: Ethernet,
    net: Network<N::Addr>,
) -> Result<Reason, Reason> {
    let message = frame
        .read::<Icmp>(net.transport)
        .ok_or(Reason::TruncatedTransport)?;
    if net.payload_len < icmp::LEN {
        return Err(Reason::TruncatedTransport);
    }
    if message.kind != icmp::ECHO_REQUEST || message.code != 0 {
        return Err(Reason::Icmp);
    }
    check_source(world, ethernet, &net)?;
    if !world.allow_refusal() {
        return Err(Reason::RateLimited);
    }
    let before = u16::from_ne_bytes([icmp::ECHO_REQUEST, 0]);
    let after = u16::from_ne_bytes([icmp::ECHO_REPLY, 0]);
    let delta = checksum::delta(u32::from(before), u32::from(after));
    let reply = Icmp {
        kind: icmp::ECHO_REPLY,
        checksum: Be16::from_word(checksum::update_full(message.checksum.word(), delta)),
        ..message
    };
    // Swapping the addresses changes no sum.
    frame
        .write(net.transport, reply)
        .and_then(|()| N::rewrite(frame, &net, net.dst, net.src, 0, Hop::First))
        .and_then(|()| frame.write(0, [ethernet.src, world.link().mac]))
        .ok_or(Reason::HalfEdited)?;
    Ok(Reason::AnsweredEcho)
}

/// Ends the way of a packet whose source nobody can have, or only we: two VIPs that answer each
/// other would do so for ever.
#[inline(always)]
pub fn check_source<W: World>(
    world: &W,
    ethernet: Ethernet,
    net: &Network<W::Addr>,
) -> Result<(), Reason> {
    let impossible = !net.src.is_unicast()
        || net.src == net.dst
        || ethernet.src.is_group()
        || world.in_bitmap(net.src) && world.vip(net.src).is_some();
    if impossible {
        Err(Reason::BadSource)
    } else {
        Ok(())
    }
}

/// Turns the frame into a RST that the sender accepts.
#[inline(always)]
fn reset<F: Frame, N: Family>(
    frame: &mut F,
    link: Link,
    packet: &Packet<N::Addr>,
    finished_later: bool,
) -> Result<(), Reason> {
    let at = eth::LEN + N::HEADER_LEN;
    let (seq, ack, flags) = if packet.flags & l4::ACK != 0 {
        (packet.ack, Be32::new(0), l4::RST)
    } else {
        (
            Be32::new(0),
            Be32::new(packet.next_seq()),
            l4::RST | l4::ACK,
        )
    };
    let mut tcp = Tcp {
        ports: packet.ports.swapped(),
        seq,
        ack,
        data_offset: 5 << 4,
        flags,
        window: Be16::new(0),
        checksum: Be16::new(0),
        urgent: Be16::new(0),
    };
    let pseudo = checksum::pseudo(
        packet.net.dst,
        packet.net.src,
        ipv4::TCP,
        l4::TCP_LEN as u16,
    );
    tcp.checksum = Be16::from_word(if finished_later {
        pseudo
    } else {
        !checksum::fold(u32::from(pseudo) + tcp_sum(&tcp))
    });
    frame.resize(at + l4::TCP_LEN).ok_or(Reason::CannotResize)?;
    frame.write(at, tcp).ok_or(Reason::HalfEdited)?;
    reply_headers::<F, N>(frame, link, packet, ipv4::TCP, l4::TCP_LEN)
}

/// Sum of a TCP header whose checksum field is zero.
#[inline(always)]
pub fn tcp_sum(tcp: &Tcp) -> u32 {
    tcp.ports.sum()
        + tcp.seq.sum()
        + tcp.ack.sum()
        + u32::from(u16::from_ne_bytes([tcp.data_offset, tcp.flags]))
        + u32::from(tcp.window.word())
        + u32::from(tcp.urgent.word())
}

/// Turns the frame into a port unreachable that quotes it.
#[inline(always)]
fn unreachable<F: Frame, N: Family>(
    frame: &mut F,
    link: Link,
    packet: &Packet<N::Addr>,
    finished_later: bool,
) -> Result<(), Reason> {
    let at = eth::LEN + N::HEADER_LEN;
    // Only headers without options are quoted: others are so rare that silence serves.
    if packet.net.transport != at {
        return Err(Reason::CannotResize);
    }
    let network = frame.read::<[u32; 5]>(eth::LEN).ok_or(Reason::HalfEdited)?;
    let transport = frame.read::<[u32; 2]>(at).ok_or(Reason::HalfEdited)?;
    let quoted = N::HEADER_LEN + QUOTED;
    let sum = words_sum(&network) + words_sum(&transport);
    let kind = u16::from_ne_bytes([icmp::UNREACHABLE, icmp::PORT]);
    let message = Icmp {
        kind: icmp::UNREACHABLE,
        code: icmp::PORT,
        // Finished later means: the kernel sums from here and writes the complement where UDP's
        // checksum would be, in this message's unused field, which makes the whole sum right.
        checksum: if finished_later {
            Be16::new(0)
        } else {
            Be16::from_word(!checksum::fold64(u64::from(kind) + sum))
        },
        rest: Be32::new(0),
    };
    let len = at + icmp::LEN + quoted;
    // Where the kernel will finish the sum, it has noted where, and no header may move.
    let resized = if finished_later {
        frame.resize(len)
    } else {
        frame.renew(len)
    };
    resized.ok_or(Reason::CannotResize)?;
    frame
        .write(at, message)
        .and_then(|()| frame.write(at + icmp::LEN, network))
        .and_then(|()| frame.write(at + icmp::LEN + N::HEADER_LEN, transport))
        .ok_or(Reason::HalfEdited)?;
    reply_headers::<F, N>(frame, link, packet, N::ICMP, icmp::LEN + quoted)
}

#[inline(always)]
fn words_sum(words: &[u32]) -> u64 {
    words
        .iter()
        .map(|&word| u64::from(word & 0xffff) + u64::from(word >> 16))
        .sum()
}

#[inline(always)]
fn reply_headers<F: Frame, N: Family>(
    frame: &mut F,
    link: Link,
    packet: &Packet<N::Addr>,
    protocol: u8,
    payload: usize,
) -> Result<(), Reason> {
    let fresh = Fresh {
        src: packet.net.dst,
        dst: packet.net.src,
        protocol,
        ttl: TTL,
        tos: 0,
        payload,
    };
    let macs: [Mac; 2] = [packet.eth.src, link.mac];
    N::emit(frame, &fresh)
        .and_then(|()| frame.write(0, macs))
        .and_then(|()| frame.write(eth::LEN - 2, N::ETHERTYPE))
        .ok_or(Reason::HalfEdited)
}
