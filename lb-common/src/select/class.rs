//! How many rows a table gets: memory against balance.
//!
//! Rows depend on the number of frontends alone, so that nodes with the same view agree and a
//! scaling Service keeps its rows. In each class the array has room for all regions and, while
//! tables are switched, for a second copy of nearly all of them (of half of them from 10k
//! frontends on). With 10 endpoints no one is 10 % off its share up to 1k frontends; `ARCHITECTURE`
//! has the figures per class. A table must never change its rows for another reason than its
//! class: connections would move that nobody had to move.

/// Most rows of any table, as a binary logarithm.
pub const MAX_ROWS_LOG2: u8 = 16;

/// Most frontends a node can have.
pub const MAX_FRONTENDS: u32 = 1 << 14;

/// One size class: up to this many frontends, that many rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Class {
    /// Most frontends of the class.
    pub frontends: u32,
    /// Binary logarithm of the rows of each table.
    pub rows_log2: u8,
}

/// All classes, smallest number of frontends first.
pub const CLASSES: [Class; 7] = [
    Class {
        frontends: 250,
        rows_log2: MAX_ROWS_LOG2,
    },
    Class {
        frontends: 500,
        rows_log2: 15,
    },
    Class {
        frontends: 1_000,
        rows_log2: 14,
    },
    Class {
        frontends: 2_000,
        rows_log2: 13,
    },
    Class {
        frontends: 4_000,
        rows_log2: 12,
    },
    Class {
        frontends: 10_000,
        rows_log2: 11,
    },
    Class {
        frontends: MAX_FRONTENDS,
        rows_log2: 10,
    },
];

/// Binary logarithm of the rows for a table of `members` members, where the node has `frontends`
/// frontends. One member wins every row, so one row says it all.
pub fn rows_log2_for(frontends: u32, members: u32) -> u8 {
    if members <= 1 {
        return 0;
    }
    let [.., last] = CLASSES;
    let class = CLASSES
        .iter()
        .find(|class| frontends <= class.frontends)
        .unwrap_or(&last);
    class.rows_log2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::layout::{ELEMENTS, Layout};

    #[test]
    fn classes_fit_the_array_with_copies_of_regions_being_switched() {
        // The allocator hands out multiples of four elements.
        let region =
            |rows_log2| u64::from(Layout::new(48, rows_log2).elements().next_multiple_of(4));
        let room = u64::from(ELEMENTS);
        for class in CLASSES {
            let one = region(class.rows_log2);
            let all = one * u64::from(class.frontends);
            let copies = (room - all) / one;
            let share = 100 * copies / u64::from(class.frontends);
            let wanted = if class.frontends >= 10_000 { 50 } else { 90 };
            assert!(share >= wanted, "{class:?}: copies of {share} % only");
        }
    }

    #[test]
    fn more_frontends_never_get_more_rows() {
        assert!(
            CLASSES.is_sorted_by(|a, b| a.frontends < b.frontends && a.rows_log2 > b.rows_log2)
        );
        assert_eq!(rows_log2_for(1_000, 10), 14);
        assert_eq!(rows_log2_for(1_001, 10), 13);
        assert_eq!(rows_log2_for(u32::MAX, 2), 10);
        assert_eq!(rows_log2_for(1, 1), 0);
    }
}
