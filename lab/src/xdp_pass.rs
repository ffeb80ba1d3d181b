//! Two-instruction programs that pass everything, on one interface: native XDP, and TCX egress.
//!
//! What native XDP transmits on one end of a veth pair is lost unless the other end has a program, too; and tests want
//! programs of somebody else. Loaded by raw `bpf(2)` so that the lab needs no object file. They must never do anything
//! but pass.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};

const BPF_PROG_LOAD: c_long = 5;
const BPF_PROG_QUERY: c_long = 16;
const BPF_LINK_CREATE: c_long = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_TCX_EGRESS: u32 = 47;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Passes super-packets of several fragments, or the peer would lose its segmentation offload.
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

/// `r0 = 2 (XDP_PASS); exit`, in the machine's own byte order as the kernel wants it.
const XDP_PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];
/// `r0 = -1 (TCX_NEXT); exit`.
const TCX_NEXT: [u64; 2] = [0xffff_ffff_0000_00b7, 0x0000_0000_0000_0095];

/// The attached program; it leaves the interface when this is dropped.
#[derive(Debug)]
pub struct XdpPass {
    _link: OwnedFd,
}

/// Which frames the program may be handed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frames {
    /// Super-packets in several pieces as well: the peer keeps its segmentation offload.
    Any,
    /// Frames of one piece only: the peer segments what it sends, as for any program that sends frames on.
    OnePiece,
}

impl XdpPass {
    /// Attaches to an interface of the caller's namespace (see [`crate::Ns::enter`]).
    pub fn attach(interface: &str) -> Result<Self> {
        Self::attach_for(interface, Frames::Any)
    }

    /// The same for frames of one kind.
    pub fn attach_for(interface: &str, frames: Frames) -> Result<Self> {
        let flags = match frames {
            Frames::Any => BPF_F_XDP_HAS_FRAGS,
            Frames::OnePiece => 0,
        };
        let program = load(BPF_PROG_TYPE_XDP, &XDP_PASS, flags)?;
        let link = attach(interface, &program, BPF_XDP, XDP_FLAGS_DRV_MODE)?;
        Ok(Self { _link: link })
    }
}

/// A program at the end of an interface's egress chain; it leaves when this is dropped.
#[derive(Debug)]
pub struct TcxNext {
    _link: OwnedFd,
}

impl TcxNext {
    /// Attaches to an interface of the caller's namespace (see [`crate::Ns::enter`]).
    pub fn attach(interface: &str) -> Result<Self> {
        let program = load(BPF_PROG_TYPE_SCHED_CLS, &TCX_NEXT, 0)?;
        let link = attach(interface, &program, BPF_TCX_EGRESS, 0)?;
        Ok(Self { _link: link })
    }
}

fn attach(interface: &str, program: &OwnedFd, attach_type: u32, flags: u32) -> Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(interface)
        .with_context(|| format!("no interface {interface}"))?;
    let mut attr = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: index,
        attach_type,
        flags,
    };
    open(BPF_LINK_CREATE, &mut attr)
        .with_context(|| format!("attaching a passing program to {interface}"))
}

/// Ids of the programs in the egress chain of an interface of the caller's namespace, first to last.
pub fn tcx_egress_programs(interface: &str) -> Result<Vec<u32>> {
    let index = nix::net::if_::if_nametoindex(interface)
        .with_context(|| format!("no interface {interface}"))?;
    let mut ids = vec![0_u32; 64];
    let mut attr = ProgQuery {
        target_ifindex: index,
        attach_type: BPF_TCX_EGRESS,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: ids.as_mut_ptr() as u64,
        count: 64,
        pad: 0,
    };
    match bpf(BPF_PROG_QUERY, &mut attr) {
        Ok(_) => ids.truncate(attr.count as usize),
        // No chain.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => ids.clear(),
        Err(error) => return Err(error).context("asking for the programs of an interface"),
    }
    Ok(ids)
}

/// The head of `union bpf_attr` for BPF_PROG_LOAD; the kernel takes what is left out for zero.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// The head of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// The head of `union bpf_attr` for BPF_PROG_QUERY.
#[repr(C)]
struct ProgQuery {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    pad: u32,
}

fn load(prog_type: u32, program: &'static [u64; 2], prog_flags: u32) -> Result<OwnedFd> {
    let license = c"Apache-2.0";
    let mut attr = ProgLoad {
        prog_type,
        insn_cnt: 2,
        insns: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags,
        prog_name: *b"lab_pass\0\0\0\0\0\0\0\0",
    };
    open(BPF_PROG_LOAD, &mut attr).context("loading a passing program (is bpf(2) allowed here?)")
}

/// One `bpf(2)` call that makes a file descriptor. `T` as for [`bpf`].
fn open<T>(command: c_long, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the commands used with this return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One `bpf(2)` call. `T` must be the head of `union bpf_attr` for this command.
fn bpf<T>(command: c_long, attr: &mut T) -> io::Result<i32> {
    // SAFETY: `attr` is a live, exclusively borrowed `repr(C)` value without padding, and its exact size goes along;
    // the pointers inside (instructions, license, room for ids) are to memory that outlives the call, and what the
    // kernel writes to has the length that goes along.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(io::Error::other)
}
