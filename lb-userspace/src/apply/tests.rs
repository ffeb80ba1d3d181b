//! Failures, restarts and stops in the middle: the maps come right, and never go wrong on the way.

use std::time::Duration;

use super::fake::{FakeStore, Fate};
use super::*;
use crate::desired::{Desired, Frontend};
use crate::plan::tests::{address, config, desired, draining, endpoint, frontend, kernel, key};
use crate::plan::{Scope, Target};

const NOW: Duration = Duration::from_secs(100);

#[derive(Default)]
struct World {
    planner: Planner,
    store: FakeStore,
    executor: Executor,
}

impl World {
    fn pass(&mut self, desired: &Desired) -> Outcome {
        let plan = self
            .planner
            .plan(&Target::new(desired, config()), Scope::All, NOW);
        let outcome = self
            .executor
            .run(&plan, &mut self.planner, &mut self.store, NOW);
        self.executor.settle(&plan);
        outcome
    }

    fn fate(&self, vip: u8) -> Fate {
        self.store.new_connections(&kernel(key(vip, 80)))
    }

    /// An agent that starts over with the same maps.
    fn restart(self) -> Self {
        let applied = read_back(&self.store).expect("no faults on reading");
        let planner = Planner::adopt(applied, NOW);
        Self {
            planner,
            store: self.store,
            executor: Executor::default(),
        }
    }
}

fn forward(hosts: &[u8]) -> Fate {
    Fate::Forward(hosts.iter().map(|host| address(*host)).collect())
}

fn before() -> Desired {
    desired([
        (key(1, 80), frontend(vec![endpoint(1), endpoint(2)])),
        (key(2, 80), frontend(vec![endpoint(3)])),
        (key(3, 80), frontend(vec![endpoint(4)])),
    ])
}

fn after() -> Desired {
    let ranged = Frontend {
        source_ranges: vec!["198.51.100.0/24".parse().expect("net")],
        ..frontend(vec![endpoint(3), endpoint(5)])
    };
    desired([
        (key(1, 80), frontend(vec![draining(1), endpoint(6)])),
        (key(2, 80), ranged),
        (key(4, 80), frontend(vec![endpoint(7)])),
    ])
}

#[test]
fn any_write_may_fail_and_the_next_pass_makes_good() {
    let mut clean = World::default();
    clean.pass(&before());
    let writes = clean.pass(&after()).written as u64;
    assert!(writes > 10);

    for number in 0..writes {
        let mut world = World::default();
        world.pass(&before());
        world.store.fail_next([number]);
        let outcome = world.pass(&after());
        assert_eq!(outcome.failed, 1, "write {number}");
        assert!(!world.executor.is_clean());
        assert_eq!(world.store.check(), Ok(()), "write {number} failed");
        assert!(
            matches!(world.fate(1), Fate::Forward(_)),
            "write {number} failed"
        );
        assert!(
            matches!(world.fate(2), Fate::Forward(_)),
            "write {number} failed"
        );

        let outcome = world.pass(&after());
        assert_eq!(
            (outcome.failed, outcome.skipped),
            (0, 0),
            "write {number} failed before"
        );
        assert!(world.executor.is_clean(), "write {number} failed before");
        assert_eq!(world.pass(&after()), Outcome::default());
        for vip in 1..=4 {
            assert_eq!(
                world.fate(vip),
                clean.fate(vip),
                "write {number} failed before"
            );
        }
    }
}

#[test]
fn a_failure_stops_only_its_own_frontend() {
    let mut world = World::default();
    world.store.frontend_limit = 1;
    let outcome = world.pass(&before());
    assert_eq!(outcome.failed, 2);
    assert_eq!(world.fate(1), forward(&[1, 2]));
    let errors: Vec<_> = world
        .executor
        .failures()
        .map(|(_, failure)| failure.clone())
        .collect();
    assert_eq!(errors.len(), 2);
    assert!(
        errors
            .iter()
            .all(|failure| failure.error == "map frontends is full"),
        "{errors:?}"
    );
    let retry = world
        .executor
        .retry(&world.planner)
        .expect("frontends only");
    assert_eq!(retry, [key(2, 80), key(3, 80)]);

    world.pass(&before());
    assert!(
        world
            .executor
            .failures()
            .all(|(_, failure)| failure.attempts == 2)
    );
    world.store.frontend_limit = 10;
    let target = before();
    let target = Target::new(&target, config());
    let plan = world.planner.plan(&target, Scope::Frontends(&retry), NOW);
    world
        .executor
        .run(&plan, &mut world.planner, &mut world.store, NOW);
    assert!(world.executor.is_clean());
    assert_eq!(world.fate(3), forward(&[4]));
    assert_eq!(world.executor.totals().1, 4);
}

#[test]
fn a_restart_writes_nothing_and_keeps_ids() {
    let mut world = World::default();
    world.pass(&before());
    world.pass(&after());
    let id = world
        .planner
        .endpoint_id(&key(1, 80), address(6))
        .expect("has one");
    let leaving = world.planner.leaving_endpoints_count();
    let mut world = world.restart();
    assert_eq!(world.pass(&after()), Outcome::default());
    assert_eq!(world.planner.endpoint_id(&key(1, 80), address(6)), Some(id));
    assert_eq!(world.planner.leaving_endpoints_count(), leaving);

    // Regions and ids in use are not handed out again.
    world.pass(&before());
    assert_eq!(world.store.check(), Ok(()));
    assert_eq!(world.fate(1), forward(&[1, 2]));
}

#[test]
fn a_restart_in_the_middle_of_a_plan_goes_on_from_there() {
    let mut count = World::default();
    count.pass(&before());
    let writes = count.pass(&after()).written;
    for stop in 0..writes {
        let mut world = World::default();
        world.pass(&before());
        let plan = world
            .planner
            .plan(&Target::new(&after(), config()), Scope::All, NOW);
        for op in plan.ops.iter().take(stop) {
            world.store.apply(op).expect("no faults");
        }
        let mut world = world.restart();
        world.pass(&after());
        assert_eq!(world.store.check(), Ok(()), "stopped after {stop}");
        for vip in 1..=4 {
            assert_eq!(world.fate(vip), count.fate(vip), "stopped after {stop}");
        }
        assert_eq!(
            world.pass(&after()),
            Outcome::default(),
            "stopped after {stop}"
        );
    }
}

#[test]
fn an_agent_that_knows_nothing_yet_deletes_nothing() {
    let mut world = World::default();
    world.pass(&before());
    let mut world = world.restart();
    let mut nothing = desired([]);
    nothing.complete = false;
    assert_eq!(world.pass(&nothing), Outcome::default());
    assert_eq!(world.fate(1), forward(&[1, 2]));
}
