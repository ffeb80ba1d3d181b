//! The selection array, written through a mapping of just the pages concerned.
//!
//! A table of 65,536 rows is 2,048 elements: one system call each would cost most of a
//! millisecond. The mapping is undone after each write, so that the agent's memory does not grow
//! with what it has written. Elements are only ever written where no frontend points yet, so
//! nothing in here needs to be atomic.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;

use aya::maps::MapData;
use lb_common::abi::TableElement;
use lb_common::limits;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

const ELEMENT: usize = size_of::<TableElement>();

/// The map `tables`.
#[derive(Debug)]
pub struct TableMap {
    data: MapData,
}

impl TableMap {
    pub(super) fn new(data: MapData) -> Self {
        Self { data }
    }

    /// Writes a run of elements.
    pub fn write(&mut self, first: u32, elements: &[TableElement]) -> io::Result<()> {
        let Some(mapping) = Mapping::new(&self.data, first, elements.len(), ProtFlags::PROT_WRITE)?
        else {
            return Ok(());
        };
        // SAFETY: the mapping covers `elements.len()` elements from `mapping.elements` on and is
        // writable; the source cannot overlap it, because it was there before the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(
                elements.as_ptr(),
                mapping.elements.as_ptr(),
                elements.len(),
            );
        }
        Ok(())
    }

    /// Reads a run of elements.
    pub fn read(&self, first: u32, elements: u32) -> io::Result<Vec<TableElement>> {
        let count = elements as usize;
        let Some(mapping) = Mapping::new(&self.data, first, count, ProtFlags::PROT_READ)? else {
            return Ok(Vec::new());
        };
        let mut copy: Vec<TableElement> = vec![[0; 16]; count];
        // SAFETY: the mapping covers `count` elements from `mapping.elements` on and is readable;
        // the kernel's programs never write this map, and this agent is the only writer.
        unsafe {
            std::ptr::copy_nonoverlapping(mapping.elements.as_ptr(), copy.as_mut_ptr(), count);
        }
        Ok(copy)
    }
}

/// Some pages of the array, for as long as this lives.
struct Mapping {
    start: NonNull<std::ffi::c_void>,
    length: usize,
    /// The first element asked for.
    elements: NonNull<TableElement>,
}

impl Mapping {
    /// `None` for no elements.
    fn new(
        data: &MapData,
        first: u32,
        count: usize,
        protection: ProtFlags,
    ) -> io::Result<Option<Self>> {
        let first = first as usize;
        if first + count > limits::TABLE_ELEMENTS {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let page = page_size();
        let (from, to) = (first * ELEMENT, (first + count) * ELEMENT);
        let start = from - from % page;
        let Some(length) = NonZeroUsize::new((to - start).next_multiple_of(page)) else {
            return Ok(None);
        };
        if count == 0 {
            return Ok(None);
        }
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no memory of
        // ours; the map was made mappable, and the kernel refuses ranges past its end.
        let address = unsafe {
            mmap(
                None,
                length,
                protection,
                MapFlags::MAP_SHARED,
                data.fd().as_fd(),
                offset,
            )
        }?;
        // SAFETY: `from - start` is less than a page, and the mapping is at least that long.
        let elements = unsafe { address.byte_add(from - start) }.cast();
        Ok(Some(Self {
            start: address,
            length: length.get(),
            elements,
        }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, and nothing refers to it any more. An error could
        // only leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

fn page_size() -> usize {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(4096)
}
