//! Raw frames in a namespace of the lab: floods of forged packets, gratuitous ARP, odd frames, captures.
//!
//! Every function takes a namespace and works inside it only. Frames go through the device's queue as anybody's do
//! (no qdisc bypass), so that an egress program sees them. A flood has an end: it takes a count.

mod frame;
mod packet;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::ns::Ns;

pub use frame::{Arp, TcpFrame, arp, checksum, icmp, tcp, tcp_flags, udp};
pub use packet::RawSocket;

/// Forged SYNs to a frontend, each from another address and port.
pub fn flood_syn(
    ns: &Ns,
    interface: &str,
    dst_mac: [u8; 6],
    to: SocketAddrV4,
    count: u64,
) -> Result<Flood> {
    flood(ns, interface, count, |i, out| {
        out.push(tcp(&forged(dst_mac, to, i)));
    })
}

/// Forged SYNs, each followed by an ACK as if the handshake had gone well (its number is a guess).
pub fn flood_syn_ack_pairs(
    ns: &Ns,
    interface: &str,
    dst_mac: [u8; 6],
    to: SocketAddrV4,
    count: u64,
) -> Result<Flood> {
    flood(ns, interface, count, |i, out| {
        let syn = forged(dst_mac, to, i);
        out.push(tcp(&syn));
        let ack = TcpFrame {
            flags: tcp_flags::ACK,
            seq: syn.seq.wrapping_add(1),
            ack: scramble(i, 3),
            options: Vec::new(),
            ..syn
        };
        out.push(tcp(&ack));
    })
}

/// What a flood did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Flood {
    /// Frames that the device took.
    pub sent: u64,
    /// How long it took.
    pub took: Duration,
}

/// Sends what `make` puts out for 0, 1, ... `count - 1`.
pub fn flood(
    ns: &Ns,
    interface: &str,
    count: u64,
    make: impl Fn(u64, &mut Vec<Vec<u8>>) + Send + Sync,
) -> Result<Flood> {
    ns.enter(|| {
        let socket = RawSocket::open(interface)?;
        let started = Instant::now();
        let mut frames = Vec::new();
        let mut sent = 0;
        for i in 0..count {
            frames.clear();
            make(i, &mut frames);
            for frame in &frames {
                send_patiently(&socket, frame)
                    .with_context(|| format!("frame {sent} of a flood"))?;
                sent += 1;
            }
        }
        Ok(Flood {
            sent,
            took: started.elapsed(),
        })
    })?
}

/// A full device queue is no reason to lose a frame, nor to wait for ever.
fn send_patiently(socket: &RawSocket, frame: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match socket.send(frame) {
            Err(error)
                if error.raw_os_error() == Some(libc::ENOBUFS) && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_micros(200));
            }
            result => return result,
        }
    }
}

/// Addresses of 198.18.0.0/15, the range for benchmarks: nobody real is ever named.
fn forged(dst_mac: [u8; 6], to: SocketAddrV4, i: u64) -> TcpFrame {
    let host = scramble(i, 1) & 0x0001_ffff;
    TcpFrame {
        src_mac: [0x02, 0, 0, 0, 0, 0xf0],
        dst_mac,
        from: SocketAddrV4::new(
            Ipv4Addr::from(0xc612_0000 | host),
            1024 + (i % 64_000) as u16,
        ),
        to,
        seq: scramble(i, 2),
        ack: 0,
        flags: tcp_flags::SYN,
        window: 64_240,
        options: vec![2, 4, 5, 0xb4],
        payload: Vec::new(),
    }
}

/// The same number for the same frame in every run.
fn scramble(i: u64, salt: u64) -> u32 {
    let mut word = [0; 8];
    crate::payload::fill(salt, i * 8, &mut word);
    u32::from_le_bytes([word[0], word[1], word[2], word[3]])
}
