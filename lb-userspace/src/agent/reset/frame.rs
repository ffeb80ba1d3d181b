//! The frames that end a connection, made from what its flow's entry remembers.
//!
//! A RST counts only with exactly the sequence number that the receiver expects. The entry has the
//! receiver's last acknowledgement, but as of the first packet of a second: often enough a little
//! behind. So a segment from before the window follows, which no receiver takes and every one
//! answers with the right number; the data plane turns that answer into the RST that counts.

use std::net::Ipv4Addr;

use etherparse::{PacketBuilder, PacketBuilderStep};
use lb_common::V4;
use lb_common::abi::{Flow, FlowKey};
use lb_common::wire::l4::Ports;

/// Time to live of what is sent.
const TTL: u8 = 64;
/// How far ahead a RST is tried that should only be questioned: more than a short answer, less
/// than any window.
const AHEAD: u32 = 16 * 1024;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Hop {
    /// The interface it leaves by.
    pub(super) ifindex: u32,
    /// That interface's hardware address.
    pub(super) from: [u8; 6],
    /// The neighbour's.
    pub(super) to: [u8; 6],
}

/// What to send besides the RST, in case its number is behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ask {
    /// Nothing, for both sides have closed. One in TIME_WAIT takes a RST in silence and answers
    /// everything else: a dead pod's thousands of them would be asked for nothing. One whose last
    /// segment was lost with the pod takes the RST.
    Nothing,
    /// A segment that is answered with the right number.
    Once,
    /// Also a RST in the window, for those who let nothing pass that is outside.
    Again,
}

/// For whoever sends by this entry: a RST, and what asks for a better one. `heard` is what the
/// other side has acknowledged, 0 when unknown: one that has closed already answers with a RST of
/// that number, which is then right for the other side.
pub(super) fn to_sender(
    key: &FlowKey<V4>,
    flow: &Flow<V4>,
    heard: u32,
    hop: Hop,
    ask: Ask,
) -> Vec<Vec<u8>> {
    let way = Way {
        hop,
        src: key.dst,
        dst: key.src,
        ports: key.ports.swapped(),
    };
    let ack = flow.ack.get();
    let mut frames = vec![way.reset(ack)];
    if ask == Ask::Again {
        frames.push(way.reset(ack.wrapping_add(AHEAD)));
    }
    if ask != Ask::Nothing {
        frames.push(way.segment(ack.wrapping_sub(1), heard));
    }
    frames
}

/// For a pod on this node: what its entry's client would never send. The pod says to the client
/// what it expects, and the client, who has been reset, answers with the RST that counts.
pub(super) fn to_pod(flow: &Flow<V4>, hop: Hop, pass: u32) -> Vec<u8> {
    let way = Way {
        hop,
        src: flow.src,
        dst: flow.dst,
        ports: flow.ports,
    };
    // Nothing is known of the client's own numbers. One try in some thousand may fall into the
    // pod's window and be passed over; the next one does not.
    let seq = pass.wrapping_mul(0x4000_0000).wrapping_add(0x2000_0000);
    way.segment(seq, flow.ack.get())
}

struct Way {
    hop: Hop,
    src: V4,
    dst: V4,
    ports: Ports,
}

impl Way {
    fn reset(&self, seq: u32) -> Vec<u8> {
        self.write(seq, PacketBuilderStep::rst)
    }

    fn segment(&self, seq: u32, ack: u32) -> Vec<u8> {
        self.write(seq, |packet| packet.ack(ack))
    }

    fn write(&self, seq: u32, flags: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
        let [src, dst] = [self.src, self.dst].map(|address| Ipv4Addr::from(address).octets());
        let packet = PacketBuilder::ethernet2(self.hop.from, self.hop.to)
            .ipv4(src, dst, TTL)
            .tcp(self.ports.src.get(), self.ports.dst.get(), seq, 0);
        let packet = flags(packet);
        let mut frame = Vec::with_capacity(packet.size(0));
        // Writing to memory fails only for payloads that are too long, and there is none.
        let _ = packet.write(&mut frame, &[]);
        frame
    }
}

type Tcp = etherparse::PacketBuilderStep<etherparse::TcpHeader>;

#[cfg(test)]
mod tests {
    use etherparse::{SlicedPacket, TcpSlice, TransportSlice};
    use lb_common::wire::{Be16, Be32};
    use lb_common::{Mac, abi::Kind};

    use super::*;

    const HOP: Hop = Hop {
        ifindex: 3,
        from: [2, 0, 0, 0, 0, 1],
        to: [2, 0, 0, 0, 0, 2],
    };

    fn entry() -> (FlowKey<V4>, Flow<V4>) {
        let ports = |src, dst| Ports {
            src: Be16::new(src),
            dst: Be16::new(dst),
        };
        let (client, vip, pod) = (
            V4([192, 0, 2, 130]),
            V4([192, 0, 2, 64]),
            V4([10, 244, 0, 2]),
        );
        let flow = Flow {
            src: client,
            dst: pod,
            ports: ports(61_001, 8080),
            address_delta: 0,
            port_delta: 0,
            endpoint: 1,
            frontend: 1,
            seen: 0,
            replied: 0,
            ack: Be32::new(5),
            ifindex: 3,
            mac: Mac([0; 6]),
            kind: Kind::Local as u8,
            state: 0,
        };
        (FlowKey::new(client, vip, ports(40_000, 80), 6), flow)
    }

    fn check(frame: &[u8], src: &str, dst: &str, seq: u32, rst: bool) {
        let packet = SlicedPacket::from_ethernet(frame).expect("sound");
        let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net else {
            panic!("no IPv4")
        };
        let header = ip.header();
        assert_eq!(
            header.header_checksum(),
            header.to_header().calc_header_checksum()
        );
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
            panic!("no TCP")
        };
        let tcp: &TcpSlice<'_> = tcp;
        let sum = tcp.calc_checksum_ipv4(header.source(), header.destination());
        assert_eq!(Ok(tcp.checksum()), sum);
        let at = |ip: Ipv4Addr, port| format!("{ip}:{port}");
        assert_eq!(at(header.source_addr(), tcp.source_port()), src);
        assert_eq!(at(header.destination_addr(), tcp.destination_port()), dst);
        assert_eq!(
            (tcp.sequence_number(), tcp.rst(), tcp.ack()),
            (seq, rst, !rst)
        );
        assert!(tcp.payload().is_empty());
        assert_eq!(frame[..12], [HOP.to, HOP.from].concat());
    }

    #[test]
    fn the_client_hears_the_vip() {
        let (key, flow) = entry();
        let (vip, client) = ("192.0.2.64:80", "192.0.2.130:40000");
        let first = to_sender(&key, &flow, 0, HOP, Ask::Once);
        assert_eq!(first.len(), 2);
        check(&first[0], vip, client, 5, true);
        check(&first[1], vip, client, 4, false);
        let later = to_sender(&key, &flow, 0, HOP, Ask::Again);
        check(&later[1], vip, client, 5 + AHEAD, true);
        assert_eq!(later.len(), 3);
        let closed = to_sender(&key, &flow, 0, HOP, Ask::Nothing);
        assert_eq!(closed.len(), 1);
        check(&closed[0], vip, client, 5, true);
    }

    #[test]
    fn the_pod_hears_the_client_as_it_knows_it() {
        let (_, flow) = entry();
        let (client, pod) = ("192.0.2.130:61001", "10.244.0.2:8080");
        check(&to_pod(&flow, HOP, 0), client, pod, 0x2000_0000, false);
        check(&to_pod(&flow, HOP, 3), client, pod, 0xe000_0000, false);
    }
}
