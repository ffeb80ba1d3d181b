//! What aya has no words for: which interface a link is attached to, detaching one at once, and
//! reading an array in a few system calls.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use lb_common::abi::pod::Plain;

/// bpf(2) commands.
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_LINK_DETACH: libc::c_long = 34;

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

/// Head of `struct bpf_prog_info`, up to the maps' ids.
#[repr(C)]
#[derive(Default)]
struct RawProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    translated_len: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    created_by: u32,
    maps: u32,
    map_ids: u64,
}

/// More maps than any program of ours has.
const MOST_MAPS: usize = 64;

/// Ids of the maps that a program uses. By its descriptor: the library asks by id, which takes
/// `CAP_SYS_ADMIN`.
pub(super) fn program_maps(program: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut ids = vec![0u32; MOST_MAPS];
    let mut info = RawProgramInfo {
        maps: MOST_MAPS as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..RawProgramInfo::default()
    };
    let mut by_fd = InfoByFd {
        bpf_fd: program.as_raw_fd().cast_unsigned(),
        info_len: size_of::<RawProgramInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut by_fd)?;
    ids.truncate(info.maps as usize);
    Ok(ids)
}

/// Attributes of `BPF_LINK_DETACH`.
#[repr(C)]
#[derive(Default)]
struct LinkDetach {
    link_fd: u32,
    flags: u32,
}

/// Attributes of `BPF_MAP_LOOKUP_BATCH`.
#[repr(C)]
#[derive(Default)]
struct Batch {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// The link pinned here; `None` when there is no such pin.
pub(super) fn pinned_link(path: &Path) -> io::Result<Option<LinkInfo>> {
    let Some(fd) = open_pin(path)? else {
        return Ok(None);
    };
    let mut info = RawLinkInfo::default();
    let mut by_fd = InfoByFd {
        bpf_fd: fd.as_raw_fd().cast_unsigned(),
        info_len: size_of::<RawLinkInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut by_fd)?;
    Ok(Some(LinkInfo {
        program: info.program,
        ifindex: info.ifindex,
    }))
}

/// Detaches and unpins a link. Removing the pin alone would leave the program running until the
/// kernel gets round to it.
pub(super) fn remove_link(path: &Path) -> io::Result<()> {
    if let Some(fd) = open_pin(path)? {
        let mut detach = LinkDetach {
            link_fd: fd.as_raw_fd().cast_unsigned(),
            flags: 0,
        };
        // A link whose interface is gone has nothing to detach from.
        let _ = bpf(BPF_LINK_DETACH, &mut detach);
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// All values of an array map of `entries` elements.
pub(super) fn read_array<T: Plain + Default>(
    map: BorrowedFd<'_>,
    entries: usize,
) -> io::Result<Vec<T>> {
    let mut keys = vec![0u32; entries];
    let mut values = vec![T::default(); entries];
    let mut done = 0usize;
    let mut token = 0u32;
    while done < entries {
        let mut next = 0u32;
        let mut batch = Batch {
            from: if done == 0 {
                0
            } else {
                (&raw const token) as u64
            },
            next: (&raw mut next) as u64,
            keys: keys[done..].as_mut_ptr() as u64,
            values: values[done..].as_mut_ptr() as u64,
            count: (entries - done) as u32,
            map_fd: map.as_raw_fd().cast_unsigned(),
            ..Batch::default()
        };
        // "No entry" means that this was the last batch.
        match bpf(BPF_MAP_LOOKUP_BATCH, &mut batch) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            Ok(_) if batch.count > 0 => {}
            Ok(_) | Err(_) => break,
        }
        done += batch.count as usize;
        token = next;
    }
    Ok(values)
}

fn open_pin(path: &Path) -> io::Result<Option<OwnedFd>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut get = ObjGet {
        pathname: name.as_ptr() as u64,
        ..ObjGet::default()
    };
    match bpf(BPF_OBJ_GET, &mut get) {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// bpf(2) with attributes of this command's kind, which the kernel may write back to.
fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let attributes = std::ptr::from_mut(attributes);
    // SAFETY: the commands used here read `size_of::<T>()` bytes of attributes, treat the rest of
    // theirs as zero, and write back within them. Pointers in them are those of live buffers of
    // the size that goes with them, and those written to are exclusively borrowed by the caller.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}
