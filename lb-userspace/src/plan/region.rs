//! Where in the big array each table lies.
//!
//! A table that changes is written to a region of its own before the frontend switches to it, and
//! the old region stays as it is: packets that read the frontend before the switch are still in
//! it, and it is the frontend's previous table. So freeing is deferred: a region is handed out
//! again only after a grace period, with time as an argument. Best fit over multiples of
//! [`GRANULE`] elements, so that regions of one size class fill each other's holes.
//! Two live regions must never overlap, and a retired one is as good as live.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thiserror::Error;

/// Regions are multiples of this many elements: up to 64 members, the number of endpoints does
/// not change the size of a region.
pub const GRANULE: u32 = 4;

/// A run of elements of the array.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Region {
    /// First element.
    pub offset: u32,
    /// Number of elements, a multiple of [`GRANULE`].
    pub elements: u32,
}

impl Region {
    fn end(self) -> u32 {
        self.offset + self.elements
    }
}

/// Why a region could not be had or given back.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RegionError {
    /// No hole is large enough; some may be after the retired regions' grace period.
    #[error(
        "no room for a table of {wanted} elements: the largest hole has {largest}, \
         {retired} elements wait for their grace period"
    )]
    Full {
        /// Elements asked for.
        wanted: u32,
        /// Elements of the largest hole.
        largest: u32,
        /// Elements of all retired regions.
        retired: u32,
    },
    /// A region of no elements was asked for.
    #[error("a table without elements needs no region")]
    Empty,
    /// A region to adopt is not one that this allocator could have handed out.
    #[error("region of {elements} elements at {offset} is out of place")]
    OutOfPlace {
        /// First element.
        offset: u32,
        /// Number of elements.
        elements: u32,
    },
    /// A region to adopt overlaps another.
    #[error("region of {elements} elements at {offset} overlaps another")]
    Overlap {
        /// First element.
        offset: u32,
        /// Number of elements.
        elements: u32,
    },
    /// A region to free is not in use.
    #[error("no region is in use at element {offset}")]
    NotInUse {
        /// First element.
        offset: u32,
    },
}

/// All regions of the array.
#[derive(Clone, Debug)]
pub struct Regions {
    capacity: u32,
    grace: Duration,
    /// Elements of each region in use, by its offset.
    live: BTreeMap<u32, u32>,
    /// Freed regions and when they may be handed out again.
    retired: BTreeSet<(Duration, Region)>,
    /// Elements of each hole by its offset, and the same by size. Holes never touch each other.
    holes: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
}

impl Regions {
    /// An array of `elements` elements, all free. A freed region stays out of use for `grace`.
    pub fn new(elements: u32, grace: Duration) -> Self {
        let capacity = elements - elements % GRANULE;
        let mut regions = Self {
            capacity,
            grace,
            live: BTreeMap::new(),
            retired: BTreeSet::new(),
            holes: BTreeMap::new(),
            by_size: BTreeSet::new(),
        };
        regions.open(Region {
            offset: 0,
            elements: capacity,
        });
        regions
    }

    /// Hands out a region of at least `elements` elements: the smallest hole that will do.
    pub fn alloc(&mut self, elements: u32, now: Duration) -> Result<Region, RegionError> {
        if elements == 0 {
            return Err(RegionError::Empty);
        }
        self.collect(now);
        let full = || self.full(elements);
        let wanted = elements
            .checked_next_multiple_of(GRANULE)
            .ok_or_else(full)?;
        let &(size, offset) = self.by_size.range((wanted, 0)..).next().ok_or_else(full)?;
        let region = Region {
            offset,
            elements: wanted,
        };
        self.carve(
            Region {
                offset,
                elements: size,
            },
            region,
        );
        self.live.insert(offset, wanted);
        Ok(region)
    }

    /// Takes back the region at `offset`; it is free for others when the grace period is over.
    pub fn free(&mut self, offset: u32, now: Duration) -> Result<(), RegionError> {
        let elements = self
            .live
            .remove(&offset)
            .ok_or(RegionError::NotInUse { offset })?;
        self.retired
            .insert((now.saturating_add(self.grace), Region { offset, elements }));
        Ok(())
    }

    /// Takes note of a region that a frontend already uses, as found after a restart.
    pub fn adopt(&mut self, offset: u32, elements: u32) -> Result<Region, RegionError> {
        let out_of_place = RegionError::OutOfPlace { offset, elements };
        let rounded = elements
            .checked_next_multiple_of(GRANULE)
            .ok_or(out_of_place)?;
        if elements == 0 || !offset.is_multiple_of(GRANULE) || offset.checked_add(rounded).is_none()
        {
            return Err(out_of_place);
        }
        let region = Region {
            offset,
            elements: rounded,
        };
        if region.end() > self.capacity {
            return Err(out_of_place);
        }
        let hole = self.holes.range(..=offset).next_back();
        let hole = hole.map(|(&offset, &elements)| Region { offset, elements });
        match hole {
            Some(hole) if region.end() <= hole.end() => self.carve(hole, region),
            _ => return Err(RegionError::Overlap { offset, elements }),
        }
        self.live.insert(offset, rounded);
        Ok(region)
    }

    /// Makes room of the regions whose grace period is over.
    pub fn collect(&mut self, now: Duration) {
        while let Some(&(due, region)) = self.retired.first()
            && due <= now
        {
            self.retired.pop_first();
            self.open(region);
        }
    }

    /// When the next retired region becomes free: a full array is worth another try then.
    pub fn next_collect(&self) -> Option<Duration> {
        self.retired.first().map(|(due, _)| *due)
    }

    /// Elements in use by frontends.
    pub fn live_elements(&self) -> u32 {
        self.live.values().sum()
    }

    /// Elements waiting for their grace period.
    pub fn retired_elements(&self) -> u32 {
        self.retired.iter().map(|(_, region)| region.elements).sum()
    }

    /// Elements free to hand out.
    pub fn free_elements(&self) -> u32 {
        self.holes.values().sum()
    }

    fn full(&self, wanted: u32) -> RegionError {
        let largest = self.by_size.last().map_or(0, |(elements, _)| *elements);
        RegionError::Full {
            wanted,
            largest,
            retired: self.retired_elements(),
        }
    }

    /// Takes `region` out of `hole`, which contains it.
    fn carve(&mut self, hole: Region, region: Region) {
        self.remove_hole(hole);
        for rest in [
            Region {
                offset: hole.offset,
                elements: region.offset - hole.offset,
            },
            Region {
                offset: region.end(),
                elements: hole.end() - region.end(),
            },
        ] {
            self.insert_hole(rest);
        }
    }

    /// Makes a hole of `region`, one with the holes on either side of it.
    fn open(&mut self, mut region: Region) {
        if let Some((&offset, &elements)) = self.holes.range(..region.offset).next_back()
            && offset + elements == region.offset
        {
            self.remove_hole(Region { offset, elements });
            region = Region {
                offset,
                elements: elements + region.elements,
            };
        }
        if let Some(&elements) = self.holes.get(&region.end()) {
            self.remove_hole(Region {
                offset: region.end(),
                elements,
            });
            region.elements += elements;
        }
        self.insert_hole(region);
    }

    fn insert_hole(&mut self, hole: Region) {
        if hole.elements > 0 {
            self.holes.insert(hole.offset, hole.elements);
            self.by_size.insert((hole.elements, hole.offset));
        }
    }

    fn remove_hole(&mut self, hole: Region) {
        self.holes.remove(&hole.offset);
        self.by_size.remove(&(hole.elements, hole.offset));
    }
}

#[cfg(test)]
mod tests;
