//! The one question about links that aya has no words for: which interface one is attached to.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// bpf(2) commands.
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// A pinned link of an XDP or TCX program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LinkInfo {
    /// Id of the program.
    pub(super) program: u32,
    /// The interface; 0 when it is gone.
    pub(super) ifindex: u32,
}

/// Attributes of `BPF_OBJ_GET`.
#[repr(C)]
#[derive(Default)]
struct ObjGet {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Attributes of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
#[derive(Default)]
struct InfoByFd {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Head of `struct bpf_link_info`; what follows depends on the kind of link, and begins with the
/// interface for both of ours.
#[repr(C, align(8))]
#[derive(Default)]
struct RawLinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    ifindex: u32,
    attach_type: u32,
    rest: [u64; 8],
}

/// The link pinned here; `None` when there is no such pin.
pub(super) fn pinned_link(path: &Path) -> io::Result<Option<LinkInfo>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let get = ObjGet { pathname: name.as_ptr() as u64, ..ObjGet::default() };
    let fd = match bpf(BPF_OBJ_GET, &get) {
        Ok(fd) => fd,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = RawLinkInfo::default();
    let by_fd = InfoByFd {
        bpf_fd: fd.as_raw_fd() as u32,
        info_len: size_of::<RawLinkInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &by_fd)?;
    Ok(Some(LinkInfo { program: info.program, ifindex: info.ifindex }))
}

/// bpf(2) with attributes of this command's kind.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: both commands read `size_of::<T>()` bytes of attributes and treat the rest of theirs
    // as zero. Pointers in them are those of live, large enough buffers of the caller, and the
    // one that is written to is exclusively borrowed there.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
