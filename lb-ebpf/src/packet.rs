//! The packet as every stage sees it: headers parsed once, by value.

use lb_common::abi::{FlowKey, FrontendKey};
use lb_common::wire::eth::Ethernet;
use lb_common::wire::l4::{self, Ports, Tcp, Udp};
use lb_common::wire::{Be16, Be32, ipv4};
use lb_common::{Address, Reason};

use crate::family::Network;
use crate::frame::Bytes;

/// A TCP or UDP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<A> {
    /// Ethernet header.
    pub eth: Ethernet,
    /// Network header.
    pub net: Network<A>,
    /// Ports.
    pub ports: Ports,
    /// The transport checksum, and its offset in the frame.
    pub checksum: Be16,
    /// Offset of `checksum`.
    pub checksum_at: usize,
    /// TCP flags; 0 for UDP.
    pub flags: u8,
    /// TCP header length in bytes; 8 for UDP.
    pub header_len: usize,
    /// TCP sequence number; 0 for UDP.
    pub seq: Be32,
    /// TCP acknowledgement number; 0 for UDP.
    pub ack: Be32,
    /// TCP window; 0 for UDP.
    pub window: Be16,
}

impl<A: Address> Packet<A> {
    /// Parses the transport header of a packet whose network header is sound.
    #[inline(always)]
    pub fn parse<B: Bytes>(frame: &B, eth: Ethernet, net: Network<A>) -> Result<Self, Reason> {
        if net.protocol == ipv4::TCP {
            let tcp = frame
                .read::<Tcp>(net.transport)
                .ok_or(Reason::TruncatedTransport)?;
            let header_len = tcp.header_len();
            if net.payload_len < l4::TCP_LEN {
                return Err(Reason::TruncatedTransport);
            }
            if header_len < l4::TCP_LEN || header_len > net.payload_len {
                return Err(Reason::BadDataOffset);
            }
            Ok(Self {
                eth,
                net,
                ports: tcp.ports,
                checksum: tcp.checksum,
                checksum_at: net.transport + l4::TCP_CHECKSUM,
                flags: tcp.flags,
                header_len,
                seq: tcp.seq,
                ack: tcp.ack,
                window: tcp.window,
            })
        } else if net.protocol == ipv4::UDP {
            let udp = frame
                .read::<Udp>(net.transport)
                .ok_or(Reason::TruncatedTransport)?;
            if net.payload_len < l4::UDP_LEN {
                return Err(Reason::TruncatedTransport);
            }
            Ok(Self {
                eth,
                net,
                ports: udp.ports,
                checksum: udp.checksum,
                checksum_at: net.transport + l4::UDP_CHECKSUM,
                flags: 0,
                header_len: l4::UDP_LEN,
                seq: Be32::new(0),
                ack: Be32::new(0),
                window: Be16::new(0),
            })
        } else {
            Err(Reason::UnsupportedProtocol)
        }
    }

    /// Its tuple.
    #[inline(always)]
    pub fn key(&self) -> FlowKey<A> {
        FlowKey::new(self.net.src, self.net.dst, self.ports, self.net.protocol)
    }

    /// The frontend it asks for.
    #[inline(always)]
    pub fn frontend_key(&self) -> FrontendKey<A> {
        FrontendKey {
            address: self.net.dst,
            port: self.ports.dst.get(),
            protocol: self.net.protocol,
            zero: 0,
        }
    }

    /// True for TCP.
    #[inline(always)]
    pub fn is_tcp(&self) -> bool {
        self.net.protocol == ipv4::TCP
    }

    /// True for the first packet of a TCP connection.
    #[inline(always)]
    pub fn is_syn(&self) -> bool {
        self.flags & (l4::SYN | l4::ACK | l4::RST) == l4::SYN
    }

    /// Sequence number after this packet: what acknowledges all of it.
    #[inline(always)]
    pub fn next_seq(&self) -> u32 {
        let data = self.net.payload_len.wrapping_sub(self.header_len) as u32;
        let syn = u32::from(self.flags & l4::SYN != 0);
        let fin = u32::from(self.flags & l4::FIN != 0);
        self.seq
            .get()
            .wrapping_add(data)
            .wrapping_add(syn)
            .wrapping_add(fin)
    }
}
