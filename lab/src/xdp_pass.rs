//! A two-instruction XDP program that passes everything, on one interface, in native mode.
//!
//! What native XDP transmits on one end of a veth pair is lost unless the other end has a program, too. This is that
//! program, loaded by raw `bpf(2)` so that the lab needs no object file. It must never do anything but pass.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};

const BPF_PROG_LOAD: c_long = 5;
const BPF_LINK_CREATE: c_long = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// `r0 = 2 (XDP_PASS); exit`, in the machine's own byte order as the kernel wants it.
const PROGRAM: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

/// The attached program; it leaves the interface when this is dropped.
#[derive(Debug)]
pub struct XdpPass {
    _link: OwnedFd,
}

impl XdpPass {
    /// Attaches to an interface of the caller's namespace (see [`crate::Ns::enter`]).
    pub fn attach(interface: &str) -> Result<Self> {
        let index = nix::net::if_::if_nametoindex(interface)
            .with_context(|| format!("no interface {interface}"))?;
        let program = load().context("loading a passing XDP program (is bpf(2) allowed here?)")?;
        let mut attr = LinkCreate {
            prog_fd: program.as_raw_fd().cast_unsigned(),
            target_ifindex: index,
            attach_type: BPF_XDP,
            flags: XDP_FLAGS_DRV_MODE,
        };
        let link = bpf(BPF_LINK_CREATE, &mut attr).with_context(|| {
            format!("attaching a passing XDP program to {interface} in native mode")
        })?;
        Ok(Self { _link: link })
    }
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

fn load() -> io::Result<OwnedFd> {
    // Passes super-packets of several fragments, or the peer would lose its segmentation offload.
    const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
    let license = c"Apache-2.0";
    let mut attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: 2,
        insns: PROGRAM.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: BPF_F_XDP_HAS_FRAGS,
        prog_name: *b"lab_pass\0\0\0\0\0\0\0\0",
    };
    bpf(BPF_PROG_LOAD, &mut attr)
}

/// One `bpf(2)` call that makes a file descriptor. `T` must be the head of `union bpf_attr` for this command.
fn bpf<T>(command: c_long, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a live, exclusively borrowed `repr(C)` value without padding, and its exact size goes along;
    // the pointers inside (instructions, license) are to constants that live for ever.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands used here return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
