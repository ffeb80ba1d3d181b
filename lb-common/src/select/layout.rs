//! The words of a frontend's region and where in the big array they lie.
//!
//! A region is a run of 64-byte elements: first the members (endpoint ids, one word each, padded
//! to a whole element), then the rows. A row holds two member indices, in 8 bits each up to 255
//! members and in 16 bits each beyond: most Services are small, and rows are what memory buys
//! balance with. The arithmetic never panics, and never promises that an index is inside the
//! array: the map lookup decides that.

/// `u32` words in one element of the array.
pub const WORDS_PER_ELEMENT: u32 = 16;

/// Elements in the array: 64 MiB of 64-byte elements.
pub const ELEMENTS: u32 = 1 << 20;

/// Most members whose indices fit 8 bits; 0xff is "none".
pub const NARROW_MEMBERS: u32 = 0xff;

/// Most members a region can have; in 16 bits, 0xffff is "none".
pub const MAX_MEMBERS: u32 = 0xffff - 1;

/// A word's place: an element of the array, and one of its words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot {
    /// Index into the array.
    pub element: u32,
    /// Index into the element, always below [`WORDS_PER_ELEMENT`].
    pub lane: usize,
}

/// A row's place: its word, and the bits of the word that are this row's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RowSlot {
    /// The word.
    pub slot: Slot,
    /// How far the row's lowest bit is from the word's.
    pub shift: u32,
}

/// What a row says, as member indices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Choice {
    /// Where the connection goes.
    pub primary: u32,
    /// Where it goes if the primary refuses it; none when there is only one member.
    pub secondary: Option<u32>,
}

/// Shape of a region: all that is needed, besides its offset, to read it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Layout {
    members: u16,
    rows_log2: u8,
}

impl Layout {
    /// A region of no members: it has no words, and nothing may be looked up in it.
    pub const EMPTY: Self = Self {
        members: 0,
        rows_log2: 0,
    };

    /// Shape of a region with `members` members and `1 << rows_log2` rows.
    #[inline(always)]
    pub const fn new(members: u16, rows_log2: u8) -> Self {
        Self { members, rows_log2 }
    }

    /// Number of members.
    #[inline(always)]
    pub const fn members(self) -> u32 {
        self.members as u32
    }

    /// Binary logarithm of the number of rows.
    #[inline(always)]
    pub const fn rows_log2(self) -> u32 {
        (self.rows_log2 & 31) as u32
    }

    /// Number of rows; meaningless when there is no member.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        1 << self.rows_log2()
    }

    /// The row of a connection whose flow hash is `hash`.
    #[inline(always)]
    pub const fn row_of(self, hash: u32) -> u32 {
        hash & (self.rows() - 1)
    }

    /// Where member `member` of the region at element `offset` is.
    #[inline(always)]
    pub const fn member_at(self, offset: u32, member: u32) -> Slot {
        slot(offset, member)
    }

    /// Where row `row` of the region at element `offset` is.
    #[inline(always)]
    pub const fn row_at(self, offset: u32, row: u32) -> RowSlot {
        let bits = row << (self.index_bits_log2() + 1);
        RowSlot {
            slot: slot(offset.wrapping_add(self.member_elements()), bits / 32),
            shift: bits % 32,
        }
    }

    /// What the row says that lies `shift` bits into `word`.
    #[inline(always)]
    pub const fn unpack(self, word: u32, shift: u32) -> Choice {
        let none = self.none();
        let row = word >> (shift & 31);
        let secondary = row >> (1 << self.index_bits_log2()) & none;
        Choice {
            primary: row & none,
            secondary: if secondary == none {
                None
            } else {
                Some(secondary)
            },
        }
    }

    /// The bits of a row within its word; the other rows of the word are zero.
    #[inline]
    pub const fn pack(self, choice: Choice, shift: u32) -> u32 {
        let secondary = match choice.secondary {
            Some(secondary) => secondary,
            None => self.none(),
        };
        let none = self.none();
        (choice.primary & none | (secondary & none) << (1 << self.index_bits_log2()))
            << (shift & 31)
    }

    /// Elements of the array that hold the members.
    #[inline(always)]
    pub const fn member_elements(self) -> u32 {
        self.members().div_ceil(WORDS_PER_ELEMENT)
    }

    /// Elements of the array that the region takes up.
    pub const fn elements(self) -> u32 {
        if self.members == 0 {
            return 0;
        }
        let row_words = (self.rows() << (self.index_bits_log2() + 1)).div_ceil(32);
        self.member_elements() + row_words.div_ceil(WORDS_PER_ELEMENT)
    }

    /// 3 or 4: an index has 8 or 16 bits.
    #[inline(always)]
    const fn index_bits_log2(self) -> u32 {
        if self.members() <= NARROW_MEMBERS {
            3
        } else {
            4
        }
    }

    /// The index that means "none": all bits set.
    #[inline(always)]
    const fn none(self) -> u32 {
        (1 << (1 << self.index_bits_log2())) - 1
    }
}

#[inline(always)]
const fn slot(offset: u32, word: u32) -> Slot {
    Slot {
        element: offset.wrapping_add(word / WORDS_PER_ELEMENT),
        lane: (word % WORDS_PER_ELEMENT) as usize,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        let members = prop_oneof![1..40u16, 250..260u16, 65_000..=65_534u16];
        (members, 0..=16u8).prop_map(|(members, rows_log2)| Layout::new(members, rows_log2))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn rows_come_back_as_packed(layout in layouts(), a: u32, b: u32, row: u32) {
            let row = layout.row_of(row);
            let (primary, other) = (a % layout.members(), b % layout.members());
            let shift = layout.row_at(0, row).shift;
            for secondary in [None, Some(other)] {
                let choice = Choice { primary, secondary };
                prop_assert_eq!(layout.unpack(layout.pack(choice, shift), shift), choice);
            }
        }

        #[test]
        fn words_neither_overlap_nor_leave_the_region(layout in layouts(), offset in 0..1u32 << 19) {
            let mut used = BTreeMap::<(u32, usize), u32>::new();
            for member in 0..layout.members() {
                let slot = layout.member_at(offset, member);
                prop_assert_eq!(used.insert((slot.element, slot.lane), u32::MAX), None);
            }
            for row in 0..layout.rows() {
                let at = layout.row_at(offset, row);
                let bits = layout.pack(Choice { primary: u32::MAX, secondary: None }, at.shift);
                let taken = used.entry((at.slot.element, at.slot.lane)).or_default();
                prop_assert_eq!(*taken & bits, 0);
                *taken |= bits;
            }
            let elements = offset..offset + layout.elements();
            prop_assert!(used.keys().all(|(element, lane)| elements.contains(element) && *lane < 16));
            prop_assert_eq!(used.keys().next_back().map(|last| last.0 + 1), Some(elements.end));
        }
    }

    #[test]
    fn empty_regions_take_no_room() {
        assert_eq!(Layout::EMPTY.elements(), 0);
        assert_eq!(Layout::new(1, 0).elements(), 2);
        assert_eq!(Layout::new(10, 14).elements(), 1 + 512);
        assert_eq!(Layout::new(300, 14).elements(), 19 + 1024);
    }
}
