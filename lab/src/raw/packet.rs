//! One AF_PACKET socket on one interface.
//!
//! What it reads is what the interface received, not what went out by it, and it is what the stack would see: an XDP
//! program in native mode comes first, checksums may be partial, a VLAN tag may have been taken off.

use std::ffi::c_int;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

const PACKET_IGNORE_OUTGOING: c_int = 23;

/// A raw socket on an interface; it belongs to the namespace in which it was opened.
#[derive(Debug)]
pub struct RawSocket {
    socket: Socket,
}

impl RawSocket {
    /// Opens on an interface of the caller's namespace (see [`crate::Ns::enter`]).
    pub fn open(interface: &str) -> Result<Self> {
        let index = nix::net::if_::if_nametoindex(interface)
            .with_context(|| format!("no interface {interface}"))?;
        let all = (libc::ETH_P_ALL as u16).to_be();
        let socket = Socket::new(
            Domain::PACKET,
            Type::RAW,
            Some(Protocol::from(c_int::from(all))),
        )
        .context("opening a raw socket (root is needed)")?;
        bind(&socket, index, all)
            .with_context(|| format!("binding a raw socket to {interface}"))?;
        ignore_outgoing(&socket).context("leaving own frames out")?;
        Ok(Self { socket })
    }

    /// Sends one whole frame, Ethernet header included.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).map(drop)
    }

    /// The next frame, or `None` when none came in time.
    pub fn receive(&self, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        // Zero would mean "wait for ever" to the kernel.
        self.socket
            .set_read_timeout(Some(limit.max(Duration::from_micros(1))))?;
        let mut frame = vec![0; 65_536];
        match (&self.socket).read(&mut frame) {
            Ok(length) => {
                frame.truncate(length);
                Ok(Some(frame))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first frame that `wanted` accepts, or `None` when none came in time.
    pub fn receive_where(
        &self,
        limit: Duration,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receive(left)? {
                Some(frame) if wanted(&frame) => return Ok(Some(frame)),
                Some(_) if !left.is_zero() => {}
                Some(_) | None => return Ok(None),
            }
        }
    }
}

fn bind(socket: &Socket, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is a live sockaddr_ll and its exact size goes along; the kernel only reads it.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn ignore_outgoing(socket: &Socket) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the value is a live int and its exact size goes along; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
