//! Ids against a plain model of who holds what.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::{ENDPOINT_IDS, FRONTEND_IDS, IdError, Ids};

const GRACE: Duration = Duration::from_secs(2);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[derive(Clone, Debug)]
enum Step {
    Assign(u8),
    Release(u8),
    /// Flows of this key begin, or end.
    Hold(u8),
    Drop(u8),
    Sweep,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..12u8;
    let step = prop_oneof![
        4 => key.clone().prop_map(Step::Assign),
        4 => key.clone().prop_map(Step::Release),
        3 => key.clone().prop_map(Step::Hold),
        2 => key.prop_map(Step::Drop),
        3 => Just(Step::Sweep),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn a_held_id_never_means_another_key(steps in steps()) {
        let mut ids = Ids::new(1..9, GRACE);
        // What the kernel has: ids in use, and ids that flows hold, each with its true key.
        let mut in_use = BTreeMap::<u8, u32>::new();
        let mut flows = BTreeMap::<u32, u8>::new();
        for (second, step) in (0u64..).zip(steps) {
            match step {
                Step::Assign(key) => match ids.assign(&key) {
                    Ok(id) => {
                        prop_assert!((1..9).contains(&id));
                        prop_assert!(in_use.iter().all(|(k, i)| (*k == key) == (*i == id)));
                        prop_assert!(flows.get(&id).is_none_or(|holder| *holder == key));
                        in_use.insert(key, id);
                    }
                    Err(error) => {
                        let IdError::Exhausted { total, quarantined } = error else {
                            return Err(TestCaseError::fail(error.to_string()));
                        };
                        prop_assert_eq!((total, quarantined + in_use.len()), (8, 8));
                    }
                },
                Step::Release(key) => {
                    prop_assert_eq!(ids.release(&key, at(second)), in_use.remove(&key));
                }
                Step::Hold(key) => {
                    if let Some(id) = in_use.get(&key) {
                        flows.insert(*id, key);
                    }
                }
                Step::Drop(key) => flows.retain(|_, holder| *holder != key),
                Step::Sweep => {
                    let held: BTreeSet<u32> = flows.keys().copied().collect();
                    for id in ids.reclaim(&held, at(second)) {
                        prop_assert!(!flows.contains_key(&id));
                        prop_assert!(in_use.values().all(|used| *used != id));
                    }
                }
                Step::Restart => {
                    ids = Ids::new(1..9, GRACE);
                    for id in flows.keys() {
                        prop_assert_eq!(ids.adopt_held(*id, at(second)), Ok(()));
                    }
                    for (key, id) in &in_use {
                        prop_assert_eq!(ids.adopt(key, *id), Ok(()));
                    }
                }
            }
            let listed: BTreeMap<u8, u32> = ids.iter().map(|(key, id)| (*key, id)).collect();
            prop_assert_eq!(&listed, &in_use);
            prop_assert_eq!(ids.len(), in_use.len());
            for (id, holder) in &flows {
                prop_assert!(ids.key(*id).is_none_or(|key| key == holder));
            }
        }
    }
}

#[test]
fn a_key_that_comes_back_gets_its_id_back() {
    let mut ids = Ids::new(ENDPOINT_IDS, GRACE);
    let id = ids.assign(&"a").expect("free");
    assert_eq!(ids.assign(&"a"), Ok(id));
    assert_eq!(ids.release(&"a", at(10)), Some(id));
    assert_eq!(
        (ids.id(&"a"), ids.key(id), ids.quarantined()),
        (None, Some(&"a"), 1)
    );
    assert_eq!(ids.assign(&"a"), Ok(id));
    assert_eq!((ids.id(&"a"), ids.quarantined()), (Some(id), 0));
    assert_eq!(ids.reclaim(&BTreeSet::new(), at(100)), [0_u32; 0]);
}

#[test]
fn only_a_sweep_that_began_after_the_grace_frees_an_id() {
    let mut ids = Ids::new(ENDPOINT_IDS, GRACE);
    let id = ids.assign(&"a").expect("free");
    ids.release(&"a", at(10));
    assert_eq!(ids.reclaim(&BTreeSet::new(), at(9)), [0_u32; 0]);
    assert_eq!(ids.reclaim(&BTreeSet::new(), at(11)), [0_u32; 0]);
    assert_eq!(ids.reclaim(&BTreeSet::from([id]), at(12)), [0_u32; 0]);
    assert_eq!(ids.reclaim(&BTreeSet::new(), at(12)), [id]);
    assert_ne!(
        ids.assign(&"b"),
        Ok(id),
        "the circle goes on before it reuses"
    );
}

#[test]
fn adoption_refuses_contradictions() {
    let mut ids = Ids::new(FRONTEND_IDS, GRACE);
    assert_eq!(ids.adopt(&"a", 0), Err(IdError::OutOfRange { id: 0 }));
    assert_eq!(
        ids.adopt(&"a", 16_384),
        Err(IdError::OutOfRange { id: 16_384 })
    );
    assert_eq!(ids.adopt(&"a", 16_383), Ok(()));
    assert_eq!(ids.adopt(&"b", 16_383), Err(IdError::InUse { id: 16_383 }));
    assert_eq!(ids.adopt(&"a", 7), Err(IdError::InUse { id: 7 }));
    assert_eq!(ids.adopt(&"a", 16_383), Ok(()));
    assert_eq!(ids.assign(&"b"), Ok(1));
}

#[test]
fn all_ids_can_be_had_and_none_twice() {
    let mut ids = Ids::new(ENDPOINT_IDS, GRACE);
    let all: BTreeSet<u32> = (0..131_071)
        .map(|key| ids.assign(&key).expect("free"))
        .collect();
    assert_eq!(all.len(), 131_071);
    let exhausted = IdError::Exhausted {
        total: 131_071,
        quarantined: 0,
    };
    assert_eq!(ids.assign(&131_071), Err(exhausted));
}
