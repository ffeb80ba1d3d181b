//! The promises of a table as properties, and its balance as figures.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;

use lb_common::select::class::CLASSES;
use lb_common::select::layout::MAX_MEMBERS;
use lb_common::select::{Identity, flow_hash};
use proptest::prelude::*;

use super::{Table, TableError};

/// Endpoint `n` of an imagined cluster: pods in a row, a few ports.
fn endpoint(n: u32) -> Identity {
    let [_, b, c, d] = (n / 3).to_be_bytes();
    Identity::new(SocketAddr::from(([10, b, c, d], 8080 + (n % 3) as u16)))
}

fn endpoints(numbers: impl IntoIterator<Item = u32>) -> Vec<Identity> {
    numbers.into_iter().map(endpoint).collect()
}

fn table(seed: u64, members: &[Identity], rows_log2: u8) -> Table {
    Table::build(seed, members, rows_log2).expect("within limits")
}

/// Primary and secondary of every row.
fn choices(table: &Table) -> Vec<Option<(Identity, Option<Identity>)>> {
    (0..table.layout().rows())
        .map(|row| table.select(row))
        .collect()
}

/// Sets of endpoints, some of them around the size where indices get wider.
fn sets() -> impl Strategy<Value = Vec<Identity>> {
    let small = prop::collection::btree_set(0..60u32, 0..20);
    let large = (250..260u32).prop_map(|members| (0..members).collect());
    prop_oneof![9 => small, 1 => large].prop_map(endpoints)
}

fn ids(table: &Table) -> Vec<u32> {
    (1_000..).take(table.identities().len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn order_and_repetition_do_not_matter(seed: u64, set in sets(), rows_log2 in 0..9u8, turn in 0..20usize) {
        let mut other = set.clone();
        other.reverse();
        other.rotate_left(turn % set.len().max(1));
        other.extend(set.first());
        prop_assert_eq!(table(seed, &set, rows_log2), table(seed, &other, rows_log2));
    }

    #[test]
    fn one_that_leaves_moves_its_own_rows_to_their_secondary(
        seed: u64, set in sets(), rows_log2 in 0..9u8, pick: prop::sample::Index,
    ) {
        prop_assume!(!set.is_empty());
        let left = set[pick.index(set.len())];
        let rest: Vec<_> = set.iter().copied().filter(|e| *e != left).collect();
        let before = choices(&table(seed, &set, rows_log2));
        let after = choices(&table(seed, &rest, rows_log2));
        for (before, after) in before.into_iter().zip(after) {
            let (primary, secondary) = before.expect("members");
            let expected = if primary == left { secondary } else { Some(primary) };
            prop_assert_eq!(after.map(|(primary, _)| primary), expected);
            if primary != left && secondary != Some(left) {
                prop_assert_eq!(before, after);
            }
        }
    }

    #[test]
    fn one_that_joins_only_takes_rows(seed: u64, set in sets(), rows_log2 in 0..9u8) {
        let new = endpoint(1_000);
        let with: Vec<_> = set.iter().copied().chain([new]).collect();
        let before = choices(&table(seed, &set, rows_log2));
        let after = choices(&table(seed, &with, rows_log2));
        for (before, after) in before.into_iter().zip(after) {
            let (primary, secondary) = after.expect("members");
            if primary == new {
                prop_assert_eq!(secondary, before.map(|(primary, _)| primary));
            } else {
                prop_assert_eq!(before.map(|(primary, _)| primary), Some(primary));
            }
        }
    }

    #[test]
    fn a_single_member_has_every_row_at_every_size(seed: u64, hash: u32) {
        let only = endpoint(7);
        for rows_log2 in [0, 1, 10] {
            prop_assert_eq!(table(seed, &[only], rows_log2).select(hash), Some((only, None)));
        }
    }

    #[test]
    fn an_update_gives_what_a_build_gives(
        seed: u64, set in sets(), rows_log2 in 0..9u8,
        joined in prop::collection::vec(0..400u32, 0..6),
        left in prop::collection::vec(0..60u32, 0..12),
        also in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let joined = endpoints(joined);
        let mut left = endpoints(left);
        left.extend(also.iter().filter_map(|pick| set.get(pick.index(set.len().max(1)))));
        let mut now: BTreeSet<Identity> = set.iter().copied().collect();
        now.retain(|e| !left.contains(e));
        now.extend(&joined);
        let now: Vec<_> = now.into_iter().collect();

        let mut updated = table(seed, &set, rows_log2);
        updated.update(&joined, &left).expect("within limits");
        prop_assert_eq!(updated, table(seed, &now, rows_log2));
    }

    #[test]
    fn words_say_what_the_table_says(seed: u64, set in sets(), rows_log2 in 0..9u8, hash: u32) {
        let built = table(seed, &set, rows_log2);
        let ids = ids(&built);
        let words = built.words(&ids).expect("one id per member");
        let layout = built.layout();
        prop_assert_eq!(words.len(), layout.elements() as usize * 16);
        prop_assert_eq!(&Table::adopt(seed, &set, rows_log2, &words), &Ok(built.clone()));

        // Read as the kernel does, at an offset.
        let of: BTreeMap<Identity, u32> = built.identities().zip(ids).collect();
        if let Some((primary, secondary)) = built.select(hash) {
            let (elements, rest) = words.as_chunks::<16>();
            prop_assert!(rest.is_empty());
            let word = |slot: lb_common::select::Slot| elements[slot.element as usize - 100][slot.lane];
            let at = layout.row_at(100, layout.row_of(hash));
            let choice = layout.unpack(word(at.slot), at.shift);
            let id = |member| word(layout.member_at(100, member));
            prop_assert_eq!(id(choice.primary), of[&primary]);
            prop_assert_eq!(choice.secondary.map(id), secondary.map(|s| of[&s]));
        }
    }
}

#[test]
fn too_much_is_an_error() {
    let members = MAX_MEMBERS as usize + 1;
    let many = endpoints(0..=MAX_MEMBERS);
    assert_eq!(
        Table::build(1, &many, 4),
        Err(TableError::TooManyMembers { members })
    );
    assert_eq!(
        Table::build(1, &many[..2], 17),
        Err(TableError::TooManyRows { rows_log2: 17 })
    );
    let mut most = table(1, &many[1..], 1);
    assert_eq!(
        most.update(&many[..1], &[]),
        Err(TableError::TooManyMembers { members })
    );
    assert_eq!(
        most,
        table(1, &many[1..], 1),
        "a refused update changes nothing"
    );
    most.update(&many[..1], &many[1..2])
        .expect("as many as before");
    let ids = most.words(&[1; 3]);
    assert_eq!(
        ids,
        Err(TableError::IdCount {
            members: members - 1,
            ids: 3
        })
    );
    assert_eq!(
        Table::adopt(1, &many[..2], 4, &[0; 32]),
        Err(TableError::ForeignWords)
    );
    assert_eq!(
        Table::adopt(1, &many[..2], 4, &[0; 5]),
        Err(TableError::ForeignWords)
    );
}

#[test]
fn rows_are_part_of_the_contract_between_nodes() {
    let built = table(0x736c_7569_6365, &endpoints(0..4), 4);
    let words = built.words(&[1, 2, 3, 4]).expect("one id per member");
    let expected = [
        0x0100_0301,
        0x0102_0301,
        0x0003_0302,
        0x0001_0100,
        0x0203_0302,
        0x0203_0002,
        0x0301_0200,
        0x0200_0103,
    ];
    assert_eq!(words[..4], [1, 2, 3, 4]);
    assert_eq!(words[16..24], expected);
}

/// Deviation from the share, over seeds: standard deviation of one endpoint, and the quantiles
/// (half, 99 %, worst) of the largest deviation in a table, in percent.
struct Balance {
    deviation: f64,
    half: f64,
    most: f64,
    worst: f64,
    over_ten_percent: usize,
}

fn balance(members: u32, rows_log2: u8, seeds: u32) -> Balance {
    let set = endpoints(0..members);
    let share = f64::from(1u32 << rows_log2) / f64::from(members);
    let mut squares = 0.0;
    let mut largest: Vec<f64> = (0..seeds)
        .map(|seed| {
            let table = table(u64::from(seed) << 17, &set, rows_log2);
            let mut counts = vec![0u32; set.len()];
            table
                .rows
                .iter()
                .for_each(|row| counts[usize::from(row.primary)] += 1);
            let off = counts
                .iter()
                .map(|count| (f64::from(*count) / share - 1.0).abs() * 100.0);
            off.fold(0.0, |largest: f64, off| {
                squares += off * off;
                largest.max(off)
            })
        })
        .collect();
    largest.sort_by(f64::total_cmp);
    let quantile = |percent: usize| largest[(largest.len() - 1) * percent / 100];
    Balance {
        deviation: (squares / f64::from(seeds) / f64::from(members)).sqrt(),
        half: quantile(50),
        most: quantile(99),
        worst: quantile(100),
        over_ten_percent: largest.iter().filter(|off| **off > 10.0).count(),
    }
}

#[test]
fn ten_endpoints_of_a_thousand_frontends_keep_within_ten_percent() {
    let figures = balance(10, 14, 20);
    assert_eq!(figures.over_ten_percent, 0, "worst {:.1} %", figures.worst);
    // Independent scores would give 2.34.
    assert!(
        (1.3..1.9).contains(&figures.deviation),
        "{:.2} %",
        figures.deviation
    );
}

#[test]
fn the_rows_of_one_that_leaves_are_spread_over_the_others() {
    let set = endpoints(0..10);
    let built = table(3, &set, 14);
    let mut counts = [[0u32; 10]; 10];
    for row in &built.rows {
        counts[usize::from(row.primary)][usize::from(row.secondary)] += 1;
    }
    // A share is 182 rows; five standard deviations are 67.
    for (primary, row) in counts.iter().enumerate() {
        for (secondary, count) in row.iter().enumerate().filter(|(at, _)| *at != primary) {
            assert!(
                (115..250).contains(count),
                "{primary} -> {secondary}: {count}"
            );
        }
    }
}

#[test]
fn real_connections_find_their_shares() {
    let set = endpoints(0..10);
    let built = table(5, &set, 14);
    let mut counts = BTreeMap::<Identity, u32>::new();
    for connection in 0..200_000u32 {
        let client = (0xc633_6400 + connection / 20_000).to_be_bytes();
        let port = 32_768 + (connection % 20_000) as u16;
        let hash = flow_hash(client, port, [192, 0, 2, 10], 443, 6, 99);
        let (primary, _) = built.select(hash).expect("members");
        *counts.entry(primary).or_default() += 1;
    }
    assert!(
        counts
            .values()
            .all(|count| (18_000..22_000).contains(count)),
        "{counts:?}"
    );
}

/// Prints the figures that the documentation quotes:
/// `cargo test --release -p lb-userspace --lib plan::table -- --ignored --nocapture`.
#[test]
#[ignore = "minutes of figures, not a check"]
fn figures_balance() {
    if cfg!(debug_assertions) {
        eprintln!("figures come from a release build");
        return;
    }
    println!("rows     n   one sd   half     99 %   worst   tables over 10 %");
    for class in CLASSES {
        for members in [2, 3, 5, 10, 30, 100] {
            let seeds = if members == 10 { 10_000 } else { 1_000 };
            let b = balance(members, class.rows_log2, seeds);
            println!(
                "{:5} {members:5} {:7.2}% {:6.2}% {:6.2}% {:6.2}%   {} of {seeds}",
                1 << class.rows_log2,
                b.deviation,
                b.half,
                b.most,
                b.worst,
                b.over_ten_percent
            );
        }
    }
}

/// Prints what a build, a join and a leave cost.
#[test]
#[ignore = "figures, not a check"]
fn figures_time() {
    if cfg!(debug_assertions) {
        eprintln!("figures come from a release build");
        return;
    }
    for (rows_log2, members) in [
        (11, 10),
        (13, 10),
        (14, 10),
        (16, 10),
        (14, 100),
        (16, 100),
        (14, 1000),
    ] {
        let set = endpoints(0..members);
        let new = [endpoint(5_000)];
        let mut times = [[0.0; 5]; 31];
        for times in &mut times {
            let mut clock = Instant::now();
            let mut lap = || {
                let passed = clock.elapsed().as_secs_f64() * 1e3;
                clock = Instant::now();
                passed
            };
            let mut built = table(9, &set, rows_log2);
            times[0] = lap();
            built.update(&new, &[]).expect("within limits");
            times[1] = lap();
            built.update(&[], &new).expect("within limits");
            times[2] = lap();
            let words = built.words(&ids(&built)).expect("one id per member");
            times[3] = lap();
            Table::adopt(9, &set, rows_log2, &words).expect("own words");
            times[4] = lap();
        }
        let median = [0, 1, 2, 3, 4].map(|column: usize| {
            let mut all = times.map(|row| row[column]);
            all.sort_by(f64::total_cmp);
            all[15]
        });
        let [build, join, leave, words, adopt] = median;
        println!(
            "{} rows, {members} members, ms: build {build:.3} join {join:.3} leave {leave:.3} \
             words {words:.3} adopt {adopt:.3}",
            1 << rows_log2
        );
    }
}
