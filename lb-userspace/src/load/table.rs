//! The selection array, written through a mapping of just the pages concerned.
//!
//! A table of 65,536 rows is 2,048 elements: one system call each would cost most of a
//! millisecond. The mapping is undone after each write, so that the agent's memory does not grow
//! with what it has written. Elements are only ever written where no frontend points yet, so
//! nothing in here needs to be atomic.

use std::io;
use std::os::fd::AsFd as _;

use aya::maps::MapData;
use lb_common::abi::TableElement;
use lb_common::limits;

use super::mapping::Mapping;

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
        self.map(first, elements.len())?.write(elements);
        Ok(())
    }

    /// Reads a run of elements.
    pub fn read(&self, first: u32, elements: u32) -> io::Result<Vec<TableElement>> {
        Ok(self.map(first, elements as usize)?.read())
    }

    fn map(&self, first: u32, count: usize) -> io::Result<Mapping<TableElement>> {
        if first as usize + count > limits::TABLE_ELEMENTS {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        Mapping::new(self.data.fd().as_fd(), first as usize, count)
    }
}
