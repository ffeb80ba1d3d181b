//! Properties over random histories: what must hold whatever the order of events.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::desired::{Desired, EndpointState, Protocol};

use super::super::{Cause, DrainRecord, Drains, Effect, EndpointRef, Lifecycle, PodSight};
use super::support::{SAYS, Says, Snapshot, at, drains, key, pod};

const PODS: u8 = 3;
const CAP: u64 = 20;

/// What each pod's entry says, and of which of two uids; `None` for not listed.
type Slots = Vec<Option<(Says, u8)>>;

#[derive(Clone, Debug)]
enum Event {
    List {
        complete: bool,
        service: bool,
        pods: Slots,
    },
    Gone(u8),
    Alive(u8),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let entry = proptest::option::weighted(0.7, (prop::sample::select(&SAYS[..]), 0..6_u8));
    prop_oneof![
        6 => (
            prop::bool::weighted(0.9),
            prop::bool::weighted(0.9),
            prop::collection::vec(entry, usize::from(PODS)),
        )
            .prop_map(|(complete, service, pods)| Event::List { complete, service, pods }),
        1 => (1..=PODS).prop_map(Event::Gone),
        1 => (1..=PODS).prop_map(Event::Alive),
        4 => (0..25_u64).prop_map(Event::Wait),
    ]
}

fn history() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 1..40)
}

fn snapshot(
    complete: bool,
    service: bool,
    pods: &[Option<(Says, u8)>],
    cap: Option<u64>,
) -> Desired {
    let uid = |n: u8| ["pod-a", "pod-a", "pod-a", "pod-a", "pod-b", ""][usize::from(n)];
    let listed: Vec<_> = (1..=PODS)
        .zip(pods)
        .filter_map(|(last, entry)| {
            let (says, uid_number) = (*entry)?;
            Some((
                last,
                says,
                Some(uid(uid_number)).filter(|uid| !uid.is_empty()),
            ))
        })
        .collect();
    let mut snapshot = Snapshot::empty();
    if service {
        snapshot = snapshot.with(key(Protocol::Tcp), cap, &listed);
        snapshot = snapshot.with(key(Protocol::Udp), None, &listed);
    }
    snapshot.0.complete = complete;
    snapshot.0
}

/// Plays one event at `now`; returns the time after it.
fn play(d: &mut Drains, event: &Event, cap: Option<u64>, now: u64, out: &mut Vec<Effect>) -> u64 {
    match event {
        Event::List {
            complete,
            service,
            pods,
        } => {
            out.extend(d.observe(&snapshot(*complete, *service, pods, cap), at(now)));
            now
        }
        Event::Gone(last) => {
            out.extend(d.sight(PodSight::Gone(pod(*last).ip()), at(now)));
            now
        }
        Event::Alive(last) => {
            out.extend(d.sight(PodSight::Alive(pod(*last).ip()), at(now)));
            now
        }
        Event::Wait(seconds) => {
            // As the agent does: wake at each deadline on the way.
            let end = at(now + seconds);
            while let Some(due) = d.poll_timeout().filter(|due| *due <= end) {
                out.extend(d.handle_timeout(due));
            }
            now + seconds
        }
    }
}

fn over_the_pinned_map(d: &Drains) -> Vec<DrainRecord> {
    d.export()
        .iter()
        .map(|record| {
            let (map_key, value) = record.to_map().expect("IPv4");
            DrainRecord::from_map(&map_key, &value).expect("own entry")
        })
        .collect()
}

/// What the planner acts on, without what is only shown to people.
fn outcome(d: &Drains) -> BTreeMap<EndpointRef, Lifecycle> {
    d.iter()
        .map(|(endpoint, life)| {
            let shown = Lifecycle {
                since: Duration::ZERO,
                cause: Cause::Restored,
                ..life
            };
            (endpoint, shown)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_the_last_snapshot_calls_ready_is_active(events in history()) {
        let (mut d, mut now, mut said) = (drains(), 0, Vec::new());
        for event in &events {
            now = play(&mut d, event, Some(CAP), now, &mut Vec::new());
            if let Event::List { service, pods, .. } = event {
                said = if *service { pods.clone() } else { Vec::new() };
            }
            for (last, entry) in (1..=PODS).zip(&said) {
                let Some((says, _)) = entry else { continue };
                let life = d.current(&key(Protocol::Tcp), pod(last)).expect("listed").1;
                prop_assert_eq!(says.ready(), life.state == EndpointState::Active);
                if life.new_connections {
                    prop_assert!(life.state != EndpointState::Gone);
                }
            }
        }
    }

    #[test]
    fn a_look_at_what_changed_sees_what_a_look_at_all_would(
        events in prop::collection::vec((event(), any::<bool>()), 1..40),
    ) {
        let (mut whole, mut some, mut now) = (drains(), drains(), 0);
        // What each of two frontends is last said to have.
        let mut said: [Option<Slots>; 2] = [None, None];
        let mut before = Desired::default();
        let mut records = [BTreeMap::new(), BTreeMap::new()];
        for (event, second) in &events {
            let mut effects = [Vec::new(), Vec::new()];
            if let Event::List { complete, service, pods } = event {
                said[usize::from(*second)] = service.then(|| pods.clone());
                let mut desired = Desired { complete: *complete, ..Desired::default() };
                for (protocol, pods) in [Protocol::Tcp, Protocol::Udp].into_iter().zip(&said) {
                    if let Some(pods) = pods {
                        let one = snapshot(true, true, pods, Some(CAP)).frontends;
                        desired.frontends.insert(key(protocol), one[&key(protocol)].clone());
                    }
                }
                let keys = [Protocol::Tcp, Protocol::Udp].map(key).into_iter();
                let changed = keys
                    .filter(|key| before.frontends.get(key) != desired.frontends.get(key))
                    .collect();
                effects[0] = whole.observe(&desired, at(now));
                // A list that was incomplete, or has become so, is news about all of it.
                effects[1] = if before.complete && *complete {
                    some.observe_some(&desired, &changed, at(now))
                } else {
                    some.observe(&desired, at(now))
                };
                before = desired;
            } else {
                let next = play(&mut whole, event, Some(CAP), now, &mut effects[0]);
                play(&mut some, event, Some(CAP), now, &mut effects[1]);
                now = next;
            }
            let [a, b] = effects.map(|effects| {
                let mut told: Vec<_> = effects.iter().map(|e| format!("{e:?}")).collect();
                told.sort();
                told
            });
            prop_assert_eq!(a, b);
            prop_assert_eq!(whole.export(), some.export());
            // The one writes the same record again and again, the other once.
            for (drains, records) in [&mut whole, &mut some].into_iter().zip(&mut records) {
                for (endpoint, record) in drains.take_changed() {
                    match record {
                        Some(record) => records.insert(endpoint, record),
                        None => records.remove(&endpoint),
                    };
                }
            }
            prop_assert_eq!(&records[0], &records[1]);
            prop_assert_eq!(whole.poll_timeout(), some.poll_timeout());
        }
    }

    #[test]
    fn no_flapping_extends_a_deadline_beyond_the_cap(events in history()) {
        let (mut d, mut now, mut settled) = (drains(), 0, false);
        // Second since which each address was never well again.
        let mut ill: BTreeMap<u8, u64> = BTreeMap::new();
        let mut pod_of: BTreeMap<u8, Option<bool>> = BTreeMap::new();
        for event in &events {
            let before = now;
            now = play(&mut d, event, Some(CAP), now, &mut Vec::new());
            if let Event::List { complete, service, pods } = event {
                settled |= *complete;
                for (last, entry) in (1..=PODS).zip(pods) {
                    match entry.filter(|_| *service) {
                        Some((says, uid)) => {
                            let known = pod_of.entry(last).or_insert(None);
                            let uid = (uid < 5).then_some(uid == 4);
                            let other = known.is_some() && uid.is_some() && *known != uid;
                            *known = uid.or(*known);
                            if other || !says.terminating() {
                                ill.remove(&last);
                            }
                            if says.terminating() {
                                ill.entry(last).or_insert(before);
                            }
                        }
                        None if *complete && pod_of.contains_key(&last) => { ill.entry(last).or_insert(before); }
                        None => {}
                    }
                }
            }
            for (last, since) in &ill {
                let Some((_, life)) = d.current(&key(Protocol::Tcp), pod(*last)) else { continue };
                if life.state == EndpointState::Draining {
                    let deadline = life.deadline.expect("capped");
                    prop_assert!(deadline <= at(since + CAP), "{last} {since} {life:?}");
                    prop_assert!(!settled || deadline > at(now), "overdue: {life:?}");
                }
            }
        }
    }

    #[test]
    fn a_restart_at_any_point_changes_no_outcome(
        events in history(), restarts in prop::collection::vec(0..40_usize, 1..4),
    ) {
        let (mut steady, mut restarted, mut now) = (drains(), drains(), 0);
        let mut last_list = None;
        let mut settled = false;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (index, event) in events.iter().enumerate() {
            let next = play(&mut steady, event, Some(CAP), now, &mut a);
            play(&mut restarted, event, Some(CAP), now, &mut b);
            now = next;
            if let Event::List { complete, .. } = event {
                settled |= *complete;
                if *complete { last_list = Some(event); }
            }
            if settled && restarts.contains(&index) {
                let records = over_the_pinned_map(&restarted);
                restarted = drains();
                restarted.import(records, at(now));
                prop_assert_eq!(outcome(&steady), outcome(&restarted));
                // The new agent lists the world again, whatever it was told last.
                if let Some(again) = last_list {
                    play(&mut steady, again, Some(CAP), now, &mut a);
                    play(&mut restarted, again, Some(CAP), now, &mut b);
                }
            }
            prop_assert_eq!(outcome(&steady), outcome(&restarted));
            prop_assert_eq!(steady.poll_timeout(), restarted.poll_timeout());
        }
    }

    #[test]
    fn records_taken_as_they_change_are_all_records(
        events in history(), forgets in prop::collection::vec(any::<bool>(), 40),
    ) {
        let (mut d, mut now, mut kept) = (drains(), 0, BTreeMap::new());
        for (event, forget) in events.iter().zip(forgets) {
            now = play(&mut d, event, Some(CAP), now, &mut Vec::new());
            if forget {
                for (endpoint, _) in d.iter().collect::<Vec<_>>() {
                    d.forget(&endpoint);
                }
            }
            for (endpoint, record) in d.take_changed() {
                match record {
                    Some(record) => kept.insert(endpoint, record),
                    None => kept.remove(&endpoint),
                };
            }
            let kept: Vec<_> = kept.values().copied().collect();
            let mut all = d.export();
            all.sort_by_key(|record| record.endpoint);
            prop_assert_eq!(&kept, &all);
            let mut next = drains();
            next.import(all, at(now));
            let only_what_import_ended = next.take_changed().into_iter().all(|(_, record)| {
                record.is_some_and(|record| record.state == EndpointState::Gone)
            });
            prop_assert!(only_what_import_ended);
        }
    }

    #[test]
    fn effects_tell_the_whole_story_once(events in history(), cap in proptest::option::of(1..40_u64)) {
        let (mut d, mut now, mut effects) = (drains(), 0, Vec::new());
        for event in &events {
            now = play(&mut d, event, cap, now, &mut effects);
        }
        let mut told: BTreeMap<EndpointRef, (EndpointState, u32)> = BTreeMap::new();
        for effect in &effects {
            match effect {
                Effect::State { endpoint, from, to, .. } => {
                    let before = told.get(endpoint).map(|(state, _)| *state);
                    prop_assert_eq!(before, *from);
                    prop_assert!(before != Some(EndpointState::Gone), "the end is the end");
                    told.entry(*endpoint).or_insert((*to, 0)).0 = *to;
                }
                Effect::Reset { endpoint } => {
                    prop_assert_eq!(endpoint.frontend.protocol, Protocol::Tcp);
                    told.get_mut(endpoint).expect("known").1 += 1;
                }
                Effect::MoveUdp { endpoint } => {
                    prop_assert_eq!(endpoint.frontend.protocol, Protocol::Udp);
                }
                Effect::Selection { .. } | Effect::Probe { .. } => {}
            }
        }
        for (endpoint, life) in d.iter() {
            let (state, resets) = told[&endpoint];
            prop_assert_eq!(state, life.state);
            let tcp_gone = endpoint.frontend.protocol == Protocol::Tcp && state == EndpointState::Gone;
            prop_assert_eq!(resets, u32::from(tcp_gone));
        }
        prop_assert_eq!(told.len(), d.iter().count());
    }

    #[test]
    fn whatever_is_never_listed_again_ends_and_frees_its_vip(events in history()) {
        let (mut d, mut now) = (drains(), 0);
        for event in &events {
            now = play(&mut d, event, None, now, &mut Vec::new());
        }
        d.observe(&Snapshot::empty().0, at(now));
        d.handle_timeout(at(now + 60));
        prop_assert_eq!(d.poll_timeout(), None);
        for (endpoint, life) in d.iter().collect::<Vec<_>>() {
            prop_assert_eq!(life.state, EndpointState::Gone);
            prop_assert!(d.forget(&endpoint));
        }
        prop_assert!(d.holds().is_empty() && d.export().is_empty() && d.iter().next().is_none());
    }
}
