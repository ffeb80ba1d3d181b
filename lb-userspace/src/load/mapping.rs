//! Some pages of an array map, mapped: a run of elements is then read or written without a system
//! call for each. Only for maps that were made mappable, with elements that fill whole words.

use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use lb_common::abi::pod::Plain;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A run of elements, mapped for as long as this lives.
pub(super) struct Mapping<T> {
    /// Where the mapping begins, and the first element in it; `None` for no elements.
    place: Option<(NonNull<std::ffi::c_void>, NonNull<T>)>,
    length: usize,
    count: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Mapping<T> {
    /// Maps `count` elements from `first` on. The caller keeps within the map's entries.
    pub(super) fn new(map: BorrowedFd<'_>, first: usize, count: usize) -> io::Result<Self> {
        const {
            assert!(
                size_of::<T>().is_multiple_of(8),
                "the kernel keeps elements at multiples of eight bytes"
            );
        }
        let page = page_size();
        let (from, to) = (first * size_of::<T>(), (first + count) * size_of::<T>());
        let start = from - from % page;
        let length = match NonZeroUsize::new((to - start).next_multiple_of(page)) {
            Some(length) if count > 0 => length,
            Some(_) | None => {
                return Ok(Self {
                    place: None,
                    length: 0,
                    count: 0,
                    element: PhantomData,
                });
            }
        };
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no memory of
        // ours; the map was made mappable, and the kernel refuses ranges past its end.
        let address = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                map,
                offset,
            )
        }?;
        // SAFETY: `from - start` is less than a page, and the mapping is at least that long.
        let elements = unsafe { address.byte_add(from - start) }.cast();
        Ok(Self {
            place: Some((address, elements)),
            length: length.get(),
            count,
            element: PhantomData,
        })
    }

    /// Writes the elements, as many as both have.
    pub(super) fn write(&mut self, from: &[T]) {
        let count = from.len().min(self.count);
        if let Some((_, elements)) = self.place {
            // SAFETY: the mapping covers `self.count` elements from there on and is writable; the
            // source cannot overlap it, because it was there before the mapping.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), elements.as_ptr(), count) };
        }
    }

    /// Copies the elements. Programs that write the map meanwhile may be seen half way.
    pub(super) fn read(&self) -> Vec<T> {
        let mut copy = Vec::with_capacity(self.count);
        if let Some((_, elements)) = self.place {
            // SAFETY: the mapping covers `self.count` elements from there on and is readable, the
            // vector has room for them, and any bytes are a plain type's.
            unsafe {
                std::ptr::copy_nonoverlapping(elements.as_ptr(), copy.as_mut_ptr(), self.count);
                copy.set_len(self.count);
            }
        }
        copy
    }

    /// Sets all bytes of all elements to zero.
    pub(super) fn clear(&mut self) {
        if let Some((_, elements)) = self.place {
            // SAFETY: as for writing; zeros are a plain type's bytes, too.
            unsafe { std::ptr::write_bytes(elements.as_ptr(), 0, self.count) };
        }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        if let Some((start, _)) = self.place {
            // SAFETY: exactly what `new` mapped, and nothing refers to it any more. An error could
            // only leave it mapped, which harms nobody.
            let _ = unsafe { munmap(start, self.length) };
        }
    }
}

fn page_size() -> usize {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(4096)
}
