//! Selection tables: which two endpoints each row of a frontend names.
//!
//! Rendezvous hashing per row (Thaler and Ravishankar, 1998), the runner-up kept as the row's
//! secondary as in GitHub's GLB Director, with the stratified scores of
//! [`lb_common::select::score`]. A table is a pure function of the seed, the *set* of endpoints
//! and the number of rows: an endpoint that leaves moves only its own rows, each to its
//! secondary, and one that joins only takes rows. It must never depend on history or order,
//! because every node computes it for itself. Draining endpoints are not members.

use std::collections::BTreeSet;

use lb_common::select::layout::{MAX_MEMBERS, WORDS_PER_ELEMENT};
use lb_common::select::{Choice, Identity, Layout, ScoreKey};
use thiserror::Error;

/// Why a table could not be made.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum TableError {
    /// More endpoints than a row can name.
    #[error("{members} endpoints take new connections, at most {MAX_MEMBERS} can")]
    TooManyMembers {
        /// How many there were.
        members: usize,
    },
    /// More rows than scores can tell apart.
    #[error("2^{rows_log2} rows asked for, at most 2^{MAX_ROWS_LOG2} are possible")]
    TooManyRows {
        /// Binary logarithm of what was asked for.
        rows_log2: u8,
    },
    /// The list of ids does not fit the list of members.
    #[error("{ids} ids given for {members} members")]
    IdCount {
        /// Members of the table.
        members: usize,
        /// Ids given.
        ids: usize,
    },
    /// The words are not those of a table with these members and rows.
    #[error("the region's words do not belong to a table of this shape")]
    ForeignWords,
}

/// Scores take 16 bits of stratum; see [`rank`].
const MAX_ROWS_LOG2: u8 = lb_common::select::class::MAX_ROWS_LOG2;

/// Index that stands for "no member" in [`Row`].
const NONE: u16 = u16::MAX;

/// The selection table of one frontend.
///
/// Four bytes a row: an agent with many frontends does better not to keep tables, but to build
/// them, or to [`Table::adopt`] the words it wrote, when a frontend changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table {
    seed: u64,
    rows_log2: u8,
    /// In canonical order.
    members: Vec<Member>,
    /// Empty when there is no member.
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Member {
    identity: Identity,
    key: ScoreKey,
}

/// Indices into the members; the secondary may be [`NONE`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Row {
    primary: u16,
    secondary: u16,
}

impl Table {
    /// Builds a table of `1 << rows_log2` rows; order and repetition of identities don't matter.
    pub fn build(seed: u64, identities: &[Identity], rows_log2: u8) -> Result<Self, TableError> {
        let members = members(seed, identities);
        check(members.len(), rows_log2)?;
        let rows = build_rows(&members, rows_log2);
        Ok(Self {
            seed,
            rows_log2,
            members,
            rows,
        })
    }

    /// The table that `words`, as read back from its region, belong to.
    pub fn adopt(
        seed: u64,
        identities: &[Identity],
        rows_log2: u8,
        words: &[u32],
    ) -> Result<Self, TableError> {
        let members = members(seed, identities);
        check(members.len(), rows_log2)?;
        let mut table = Self {
            seed,
            rows_log2,
            members,
            rows: Vec::new(),
        };
        let layout = table.layout();
        if words.len() != (layout.elements() * WORDS_PER_ELEMENT) as usize {
            return Err(TableError::ForeignWords);
        }
        if !table.members.is_empty() {
            table.rows = (0..layout.rows())
                .map(|row| read_row(layout, words, row))
                .collect::<Option<_>>()
                .ok_or(TableError::ForeignWords)?;
        }
        Ok(table)
    }

    /// Takes in `joined`, lets go of `left`; the result is what [`Table::build`] would give, at a
    /// fraction of the work. Members that join again and strangers that leave change nothing; an
    /// endpoint in both lists stays or joins.
    pub fn update(&mut self, joined: &[Identity], left: &[Identity]) -> Result<(), TableError> {
        let (joined, left): (BTreeSet<_>, BTreeSet<_>) =
            (joined.iter().collect(), left.iter().collect());
        let stays = |identity: &Identity| !left.contains(identity) || joined.contains(identity);
        let mut identities: Vec<Identity> = self.identities().filter(stays).collect();
        let survivors = identities.len();
        identities.extend(
            joined
                .into_iter()
                .filter(|new| self.index_of(new).is_none()),
        );
        let members = members(self.seed, &identities);
        check(members.len(), self.rows_log2)?;

        // With half of the members gone most rows must be ranked anew anyway.
        if survivors == 0 || survivors * 2 < self.members.len() {
            self.rows = build_rows(&members, self.rows_log2);
        } else {
            Update::new(&self.members, &members).apply(&mut self.rows, self.rows_log2);
        }
        self.members = members;
        Ok(())
    }

    /// The members, in canonical order.
    pub fn identities(&self) -> impl ExactSizeIterator<Item = Identity> {
        self.members.iter().map(|member| member.identity)
    }

    /// Shape of the table's region.
    pub fn layout(&self) -> Layout {
        // `check` has seen both: no member count above 16 bits gets here.
        Layout::new(self.members.len() as u16, self.rows_log2)
    }

    /// Where a connection with this flow hash goes: primary and secondary.
    pub fn select(&self, hash: u32) -> Option<(Identity, Option<Identity>)> {
        let row = self.rows.get(self.layout().row_of(hash) as usize)?;
        let identity = |index: u16| self.members.get(usize::from(index)).map(|m| m.identity);
        Some((identity(row.primary)?, identity(row.secondary)))
    }

    /// The words of the table's region, whole elements; `ids` are the endpoints' ids in the order
    /// of [`Table::identities`].
    pub fn words(&self, ids: &[u32]) -> Result<Vec<u32>, TableError> {
        if ids.len() != self.members.len() {
            return Err(TableError::IdCount {
                members: self.members.len(),
                ids: ids.len(),
            });
        }
        let layout = self.layout();
        let mut words = Vec::with_capacity((layout.elements() * WORDS_PER_ELEMENT) as usize);
        words.extend_from_slice(ids);
        words.resize((layout.member_elements() * WORDS_PER_ELEMENT) as usize, 0);
        for (row, content) in (0u32..).zip(&self.rows) {
            let shift = layout.row_at(0, row).shift;
            let packed = layout.pack(content.choice(), shift);
            match words.last_mut() {
                Some(word) if shift != 0 => *word |= packed,
                _ => words.push(packed),
            }
        }
        words.resize((layout.elements() * WORDS_PER_ELEMENT) as usize, 0);
        Ok(words)
    }

    fn index_of(&self, identity: &Identity) -> Option<usize> {
        self.members
            .binary_search_by_key(identity, |member| member.identity)
            .ok()
    }
}

impl Row {
    fn from_ranks([first, second]: [u64; 2]) -> Self {
        Self {
            primary: index(first),
            secondary: index(second),
        }
    }

    fn choice(self) -> Choice {
        let secondary = (self.secondary != NONE).then(|| u32::from(self.secondary));
        Choice {
            primary: u32::from(self.primary),
            secondary,
        }
    }
}

/// What it takes to bring rows from one set of members to another.
struct Update<'a> {
    members: &'a [Member],
    /// New index of each old member, [`NONE`] for those that left.
    moved: Vec<u16>,
    /// New indices of the members that were there before, and of those that were not.
    old: Vec<u16>,
    new: Vec<u16>,
}

impl<'a> Update<'a> {
    fn new(before: &[Member], members: &'a [Member]) -> Self {
        let position = |in_members: &[Member], identity: &Identity| {
            in_members
                .binary_search_by_key(identity, |m| m.identity)
                .map_or(NONE, |at| at as u16)
        };
        let moved = before
            .iter()
            .map(|m| position(members, &m.identity))
            .collect();
        let (new, old) = (0u16..)
            .zip(members)
            .partition::<Vec<_>, _>(|(_, m)| position(before, &m.identity) == NONE);
        let indices = |list: Vec<(u16, &Member)>| list.into_iter().map(|(at, _)| at).collect();
        Self {
            members,
            moved,
            old: indices(old),
            new: indices(new),
        }
    }

    fn apply(&self, rows: &mut [Row], rows_log2: u8) {
        for (number, row) in (0u32..).zip(rows) {
            let rank = |at: u16| {
                let key = self.members.get(usize::from(at)).map(|member| &member.key);
                key.map_or(0, |key| rank(key, at, number, rows_log2))
            };
            let was = [self.moved(row.primary), self.moved(row.secondary)];
            let lost = was[0] == NONE || (was[1] == NONE && row.secondary != NONE);
            if !lost && self.new.is_empty() {
                *row = Row {
                    primary: was[0],
                    secondary: was[1],
                };
                continue;
            }
            let mut best = [0; 2];
            if lost {
                self.old.iter().for_each(|at| insert(&mut best, rank(*at)));
            } else {
                best = was.map(rank);
            }
            self.new.iter().for_each(|at| insert(&mut best, rank(*at)));
            *row = Row::from_ranks(best);
        }
    }

    fn moved(&self, index: u16) -> u16 {
        self.moved.get(usize::from(index)).copied().unwrap_or(NONE)
    }
}

fn check(members: usize, rows_log2: u8) -> Result<(), TableError> {
    if members > MAX_MEMBERS as usize {
        return Err(TableError::TooManyMembers { members });
    }
    if rows_log2 > MAX_ROWS_LOG2 {
        return Err(TableError::TooManyRows { rows_log2 });
    }
    Ok(())
}

fn members(seed: u64, identities: &[Identity]) -> Vec<Member> {
    let mut sorted = identities.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .into_iter()
        .map(|identity| Member {
            identity,
            key: ScoreKey::new(seed, &identity),
        })
        .collect()
}

fn build_rows(members: &[Member], rows_log2: u8) -> Vec<Row> {
    if members.is_empty() {
        return Vec::new();
    }
    let mut best = vec![[0u64; 2]; 1 << rows_log2];
    for (at, member) in (0u16..).zip(members) {
        for (number, best) in (0u32..).zip(&mut best) {
            insert(best, rank(&member.key, at, number, rows_log2));
        }
    }
    best.into_iter().map(Row::from_ranks).collect()
}

/// Orders members within a row: 16 bits of stratum, 32 of tie-break, then the canonical order
/// (the earlier member wins), which makes all ranks of a row different and none zero.
fn rank(key: &ScoreKey, at: u16, row: u32, rows_log2: u8) -> u64 {
    key.score(row, u32::from(rows_log2)) << 16 | u64::from(NONE - at)
}

fn index(rank: u64) -> u16 {
    NONE - rank as u16
}

fn insert(best: &mut [u64; 2], rank: u64) {
    let [first, second] = *best;
    *best = [first.max(rank), second.max(rank.min(first))];
}

fn read_row(layout: Layout, words: &[u32], row: u32) -> Option<Row> {
    let at = layout.row_at(0, row);
    let word = words.get(at.slot.element as usize * WORDS_PER_ELEMENT as usize + at.slot.lane)?;
    let choice = layout.unpack(*word, at.shift);
    let known = |index: u32| index < layout.members();
    let fits = match choice.secondary {
        Some(secondary) => known(secondary) && secondary != choice.primary,
        None => layout.members() == 1,
    };
    let secondary = choice.secondary.map_or(NONE, |index| index as u16);
    (fits && known(choice.primary)).then_some(Row {
        primary: choice.primary as u16,
        secondary,
    })
}

#[cfg(test)]
mod tests;
