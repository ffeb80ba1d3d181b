//! Regions against a map of who holds which element.

use std::time::Duration;

use lb_common::select::Layout;
use lb_common::select::class::CLASSES;
use lb_common::select::layout::ELEMENTS;
use proptest::prelude::*;

use super::{GRANULE, Region, RegionError, Regions};

const GRACE: Duration = Duration::from_secs(3);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u32),
    Free(prop::sample::Index),
    Wait(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..40u32).prop_map(Step::Alloc),
        4 => any::<prop::sample::Index>().prop_map(Step::Free),
        2 => (0..3u64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn no_element_is_handed_out_twice_or_too_early(steps in steps()) {
        const SIZE: u32 = 256;
        let mut regions = Regions::new(SIZE, GRACE);
        let mut live = Vec::<Region>::new();
        let mut retired = Vec::<(Duration, Region)>::new();
        let mut now = Duration::ZERO;
        let overlap = |a: &Region, b: &Region| a.offset < b.end() && b.offset < a.end();
        for step in steps {
            match step {
                Step::Alloc(elements) => match regions.alloc(elements, now) {
                    Ok(region) => {
                        prop_assert!(region.elements >= elements && region.end() <= SIZE);
                        prop_assert!(!live.iter().any(|other| overlap(&region, other)));
                        let waiting = retired.iter().filter(|(freed, _)| *freed + GRACE > now);
                        prop_assert!(!waiting.map(|(_, other)| other).any(|o| overlap(&region, o)));
                        live.push(region);
                    }
                    Err(RegionError::Full { wanted, largest, .. }) => {
                        prop_assert_eq!(wanted, elements);
                        prop_assert!(largest < elements);
                    }
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                },
                Step::Free(index) if !live.is_empty() => {
                    let region = live.swap_remove(index.index(live.len()));
                    prop_assert_eq!(regions.free(region.offset, now), Ok(()));
                    let again = RegionError::NotInUse { offset: region.offset };
                    prop_assert_eq!(regions.free(region.offset, now), Err(again));
                    retired.push((now, region));
                }
                Step::Free(_) => {}
                Step::Wait(seconds) => now += at(seconds),
                Step::Restart => {
                    regions = Regions::new(SIZE, GRACE);
                    retired.clear();
                    for region in &live {
                        let adopted = regions.adopt(region.offset, region.elements);
                        prop_assert_eq!(adopted, Ok(*region));
                        prop_assert!(regions.adopt(region.offset, region.elements).is_err());
                    }
                }
            }
            let sum = regions.live_elements() + regions.retired_elements() + regions.free_elements();
            prop_assert_eq!(sum, SIZE);
            prop_assert_eq!(regions.live_elements(), live.iter().map(|r| r.elements).sum::<u32>());
        }
        // All given back and waited for, the array is one hole again.
        for region in live {
            prop_assert_eq!(regions.free(region.offset, now), Ok(()));
        }
        prop_assert!(regions.alloc(SIZE, now + GRACE).is_ok());
    }
}

#[test]
fn a_freed_region_waits_for_its_grace() {
    let mut regions = Regions::new(16, GRACE);
    let first = regions.alloc(10, at(0)).expect("room");
    assert_eq!(
        first,
        Region {
            offset: 0,
            elements: 12
        }
    );
    regions.free(first.offset, at(5)).expect("in use");
    let full = RegionError::Full {
        wanted: 10,
        largest: 4,
        retired: 12,
    };
    assert_eq!(regions.alloc(10, at(7)), Err(full));
    assert_eq!(regions.next_collect(), Some(at(8)));
    assert_eq!(regions.alloc(10, at(8)), Ok(first));
    assert_eq!(regions.next_collect(), None);
}

#[test]
fn the_smallest_hole_that_will_do_is_taken() {
    let mut regions = Regions::new(64, Duration::ZERO);
    let all: Vec<Region> = [16, 4, 8, 4]
        .map(|elements| regions.alloc(elements, at(0)).expect("room"))
        .to_vec();
    regions.free(all[0].offset, at(0)).expect("in use");
    regions.free(all[2].offset, at(0)).expect("in use");
    assert_eq!(regions.alloc(5, at(0)).map(|r| r.offset), Ok(all[2].offset));
}

#[test]
fn adoption_refuses_what_cannot_be() {
    let mut regions = Regions::new(64, GRACE);
    assert_eq!(
        regions.adopt(8, 6),
        Ok(Region {
            offset: 8,
            elements: 8
        })
    );
    for (offset, elements) in [(2, 4), (60, 8), (0, 0), (u32::MAX - 3, 4), (0, u32::MAX)] {
        let refused = RegionError::OutOfPlace { offset, elements };
        assert_eq!(regions.adopt(offset, elements), Err(refused));
    }
    for (offset, elements) in [(8, 8), (4, 8), (12, 8), (0, 64)] {
        let refused = RegionError::Overlap { offset, elements };
        assert_eq!(regions.adopt(offset, elements), Err(refused));
    }
    assert_eq!(regions.alloc(0, at(0)), Err(RegionError::Empty));
}

/// Every frontend of a full node is switched once, as fast as the grace period allows; sizes vary
/// as those of Services do.
#[test]
fn a_full_node_can_switch_all_its_tables() {
    for class in CLASSES {
        let mut regions = Regions::new(ELEMENTS, GRACE);
        let size = |frontend: u32| {
            let members = [2, 3, 5, 10, 30, 60][frontend as usize % 6];
            Layout::new(members, class.rows_log2).elements()
        };
        let mut live: Vec<Region> = (0..class.frontends)
            .map(|frontend| regions.alloc(size(frontend), at(0)).expect("room for all"))
            .collect();
        let mut now = at(0);
        for round in 1..3 {
            for (frontend, region) in (0..).zip(&mut live) {
                let elements = size(frontend + round);
                let new = regions.alloc(elements, now).or_else(|full| {
                    now = regions.next_collect().ok_or(full)?;
                    regions.alloc(elements, now)
                });
                let new = new.expect("room for all, copies included");
                regions.free(region.offset, now).expect("in use");
                *region = new;
            }
        }
        assert!(now <= GRACE * 4, "{class:?} took {now:?}");
        assert_eq!(regions.live_elements() % GRANULE, 0);
    }
}
