//! Each row of the table of endpoint states, and the orders in which its facts can arrive.

use std::time::Duration;

use crate::desired::{EndpointState, FrontendKey, Protocol, Via};

use super::super::{Cause, DrainRecord, Drains, Effect, EndpointRef, Flows, PodSight};
use super::support::{Says, Snapshot, at, drains, key, life, pod, tcp, udp};

const TCP: Protocol = Protocol::Tcp;
const UDP: Protocol = Protocol::Udp;
const A: Option<&str> = Some("pod-a");
const B: Option<&str> = Some("pod-b");

fn expect(drains: &Drains, last: u8, state: EndpointState, deadline: Option<u64>) {
    let (_, life) = life(drains, TCP, last);
    assert_eq!(
        (life.state, life.deadline),
        (state, deadline.map(at)),
        "{life:?}"
    );
}

fn resets(effects: &[Effect]) -> Vec<EndpointRef> {
    let reset = |effect: &Effect| match effect {
        Effect::Reset { endpoint } => Some(*endpoint),
        Effect::State { .. }
        | Effect::Selection { .. }
        | Effect::MoveUdp { .. }
        | Effect::Probe { .. } => None,
    };
    effects.iter().filter_map(reset).collect()
}

fn moves(effects: &[Effect]) -> usize {
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::MoveUdp { .. }))
        .count()
}

#[test]
fn ready_is_active_also_when_terminating() {
    let mut d = drains();
    d.observe(
        &tcp(
            Some(10),
            &[(1, Says::Ready, A), (2, Says::ReadyTerminating, B)],
        ),
        at(0),
    );
    expect(&d, 1, EndpointState::Active, None);
    expect(&d, 2, EndpointState::Active, None);
    assert!(d.handle_timeout(at(100_000)).is_empty(), "nothing is due");
    assert!(life(&d, TCP, 2).1.new_connections);
}

#[test]
fn not_ready_keeps_its_flows_for_ever() {
    let mut d = drains();
    d.observe(&tcp(Some(10), &[(1, Says::Ready, A)]), at(0));
    let effects = d.observe(&tcp(Some(10), &[(1, Says::Unready, A)]), at(1));
    expect(&d, 1, EndpointState::Unready, None);
    assert!(resets(&effects).is_empty());
    assert_eq!(d.poll_timeout(), None);
    assert_eq!(life(&d, TCP, 1).1.flows, Flows::Stay);
}

#[test]
fn terminating_has_no_deadline_of_its_own() {
    let mut d = drains();
    d.observe(
        &tcp(
            None,
            &[(1, Says::TerminatingServing, A), (2, Says::Ready, B)],
        ),
        at(0),
    );
    expect(&d, 1, EndpointState::Draining, None);
    assert!(!life(&d, TCP, 1).1.new_connections);
    assert_eq!(d.poll_timeout(), None);
}

#[test]
fn the_annotation_caps_terminating_from_when_it_was_first_seen() {
    let mut d = drains();
    d.observe(&tcp(Some(30), &[(1, Says::TerminatingServing, A)]), at(0));
    d.observe(&tcp(Some(30), &[(1, Says::Terminating, A)]), at(20));
    expect(&d, 1, EndpointState::Draining, Some(30));
    assert!(d.handle_timeout(at(29)).is_empty());
    assert_eq!(d.poll_timeout(), Some(at(30)));
    assert_eq!(resets(&d.handle_timeout(at(30))).len(), 1);
    expect(&d, 1, EndpointState::Gone, None);
    // Listed still, and told again and again: it stays gone, as one life.
    assert!(
        d.observe(&tcp(Some(30), &[(1, Says::Terminating, A)]), at(31))
            .is_empty()
    );
    assert_eq!(d.iter().count(), 1);
}

#[test]
fn the_last_ready_endpoint_terminating_keeps_flows_and_serves() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    let effects = d.observe(&tcp(None, &[(1, Says::TerminatingServing, A)]), at(1));
    assert!(resets(&effects).is_empty());
    let (_, life) = life(&d, TCP, 1);
    assert_eq!(life.state, EndpointState::Draining);
    assert!(life.new_connections, "nothing is ready: it must serve");
    assert_eq!(life.flows, Flows::Stay);
}

#[test]
fn vanished_from_ready_has_the_drain_timeout() {
    for (cap, due) in [(None, 60), (Some(15), 15), (Some(300), 300)] {
        let mut d = drains();
        d.observe(&tcp(cap, &[(1, Says::Ready, A)]), at(0));
        d.observe(&tcp(cap, &[]), at(7));
        expect(&d, 1, EndpointState::Draining, Some(7 + due));
        assert!(d.handle_timeout(at(6 + due)).is_empty());
        assert_eq!(resets(&d.handle_timeout(at(7 + due))).len(), 1);
        assert_eq!(life(&d, TCP, 1).1.cause, Cause::Deadline);
    }
}

#[test]
fn vanished_after_terminating_has_five_seconds_within_the_cap() {
    for (cap, due) in [(None, 15), (Some(300), 15), (Some(12), 12)] {
        let mut d = drains();
        d.observe(&tcp(cap, &[(1, Says::Terminating, A)]), at(0));
        d.observe(&tcp(cap, &[]), at(10));
        expect(&d, 1, EndpointState::Draining, Some(due));
    }
}

#[test]
fn a_pod_seen_gone_ends_at_once_in_either_order() {
    for sight_first in [false, true] {
        let mut d = drains();
        d.observe(
            &tcp(None, &[(1, Says::Ready, A), (2, Says::Ready, B)]),
            at(0),
        );
        let gone = PodSight::Gone(pod(1).ip());
        let listed_without = tcp(None, &[(2, Says::Ready, B)]);
        let effects = if sight_first {
            let effects = d.sight(gone, at(1));
            let (endpoint, life) = life(&d, TCP, 1);
            assert_eq!(
                life.state,
                EndpointState::Active,
                "the slices still say ready"
            );
            assert_eq!(
                effects,
                [Effect::Selection {
                    endpoint,
                    new_connections: false
                }]
            );
            d.observe(&listed_without, at(2))
        } else {
            d.observe(&listed_without, at(1));
            d.sight(gone, at(2))
        };
        assert_eq!(resets(&effects).len(), 1, "sight first: {sight_first}");
        let (_, life) = life(&d, TCP, 1);
        assert_eq!(
            (life.state, life.cause),
            (EndpointState::Gone, Cause::SeenGone)
        );
        expect(&d, 2, EndpointState::Active, None);
    }
}

#[test]
fn a_sighting_is_forgotten_when_the_pod_is_alive_again() {
    let mut d = drains();
    let ready = tcp(None, &[(1, Says::Ready, A)]);
    d.observe(&ready, at(0));
    d.sight(PodSight::Gone(pod(1).ip()), at(1));
    d.sight(PodSight::Alive(pod(1).ip()), at(2));
    assert!(life(&d, TCP, 1).1.new_connections);
    d.observe(&tcp(None, &[]), at(3));
    expect(&d, 1, EndpointState::Draining, Some(63));
    // Even after death: a node that reboots brings pods back under name and address.
    d.sight(PodSight::Gone(pod(1).ip()), at(4));
    expect(&d, 1, EndpointState::Gone, None);
    d.sight(PodSight::Alive(pod(1).ip()), at(5));
    d.observe(&ready, at(6));
    let (endpoint, life) = life(&d, TCP, 1);
    assert_eq!(endpoint.incarnation, 2);
    assert!(life.new_connections);
}

#[test]
fn suspicion_asks_for_a_probe_and_changes_nothing() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    let address = pod(1).ip();
    assert_eq!(
        d.sight(PodSight::Suspect(address), at(1)),
        [Effect::Probe { address }]
    );
    assert!(life(&d, TCP, 1).1.new_connections);
    assert!(
        d.sight(PodSight::Suspect(pod(9).ip()), at(1)).is_empty(),
        "nobody's address"
    );
}

#[test]
fn coming_back_in_time_is_as_if_nothing_happened() {
    let mut d = drains();
    let both = tcp(None, &[(1, Says::Ready, A), (2, Says::Ready, B)]);
    d.observe(&both, at(0));
    d.observe(&tcp(None, &[(2, Says::Ready, B)]), at(1));
    let effects = d.observe(&both, at(59));
    assert!(resets(&effects).is_empty());
    let (endpoint, life) = life(&d, TCP, 1);
    assert_eq!(
        (endpoint.incarnation, life.state),
        (1, EndpointState::Active)
    );
    assert!(d.handle_timeout(at(500)).is_empty());
    // A later vanishing starts anew.
    d.observe(&tcp(None, &[(2, Says::Ready, B)]), at(500));
    expect(&d, 1, EndpointState::Draining, Some(560));
}

#[test]
fn coming_back_too_late_is_another_life() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    d.observe(&tcp(None, &[]), at(1));
    assert_eq!(resets(&d.handle_timeout(at(61))).len(), 1);
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(62));
    let lives: Vec<_> = d
        .iter()
        .map(|(e, life)| (e.incarnation, life.state))
        .collect();
    assert_eq!(
        lives,
        [(2, EndpointState::Active), (1, EndpointState::Gone)]
    );
}

#[test]
fn another_pod_at_the_address_resets_the_old_flows_only() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    let old = life(&d, TCP, 1).0;
    let effects = d.observe(&tcp(None, &[(1, Says::Ready, B)]), at(1));
    assert_eq!(resets(&effects), [old]);
    let (new, life) = life(&d, TCP, 1);
    assert_ne!(new, old);
    assert_eq!(life.state, EndpointState::Active);
    let past: Vec<_> = d.iter().filter(|(endpoint, _)| *endpoint == old).collect();
    assert_eq!(past[0].1.cause, Cause::Replaced);
    assert!(d.forget(&old));
    assert!(!d.forget(&new), "it lives");
    assert_eq!(d.iter().count(), 1);
}

#[test]
fn another_pod_while_the_old_one_drains() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Terminating, A)]), at(0));
    d.observe(&tcp(None, &[]), at(1));
    assert_eq!(
        resets(&d.observe(&tcp(None, &[(1, Says::Unready, B)]), at(2))).len(),
        1
    );
    expect(&d, 1, EndpointState::Unready, None);
    assert_eq!(
        d.poll_timeout(),
        None,
        "the old deadline went with the old pod"
    );
}

#[test]
fn an_unknown_uid_proves_nothing() {
    let mut d = drains();
    for (second, uid) in [(0, None), (1, A), (2, None), (3, A)] {
        let effects = d.observe(&tcp(None, &[(1, Says::Ready, uid)]), at(second));
        assert!(resets(&effects).is_empty());
    }
    assert_eq!(
        resets(&d.observe(&tcp(None, &[(1, Says::Ready, B)]), at(4))).len(),
        1
    );
}

#[test]
fn a_stale_sighting_does_not_block_the_next_pod() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    d.sight(PodSight::Gone(pod(1).ip()), at(1));
    d.observe(&tcp(None, &[(1, Says::Ready, B)]), at(2));
    assert!(life(&d, TCP, 1).1.new_connections);
}

#[test]
fn a_deleted_service_drains_and_its_frontend_is_held() {
    let mut d = drains();
    d.observe(
        &tcp(Some(20), &[(1, Says::Ready, A), (2, Says::Ready, B)]),
        at(0),
    );
    assert!(d.holds().is_empty());
    d.observe(&Snapshot::empty().0, at(5));
    expect(&d, 1, EndpointState::Draining, Some(25));
    let holds = d.holds();
    assert_eq!(holds[&key(TCP)].until, at(25));
    assert_eq!(
        holds[&key(TCP)]
            .service
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some("shop/web")
    );
    assert_eq!(resets(&d.handle_timeout(at(25))).len(), 2);
    assert_eq!(d.holds().len(), 1, "until the resets are out");
    for (endpoint, _) in d.iter().collect::<Vec<_>>() {
        assert!(d.forget(&endpoint));
    }
    assert!(d.holds().is_empty());
    assert!(d.export().is_empty());
}

#[test]
fn a_changed_vip_is_a_vanishing_there_and_a_life_here() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    let other = FrontendKey {
        address: [192, 0, 2, 11].into(),
        ..key(TCP)
    };
    d.observe(
        &Snapshot::empty()
            .with(other, None, &[(1, Says::Ready, A)])
            .0,
        at(1),
    );
    expect(&d, 1, EndpointState::Draining, Some(61));
    let (_, life) = d.current(&other, pod(1)).expect("listed");
    assert_eq!(life.state, EndpointState::Active);
    assert_eq!(d.holds().keys().collect::<Vec<_>>(), [&key(TCP)]);
    // The VIP returns to its Service: nothing is held.
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(2));
    assert!(!d.holds().contains_key(&key(TCP)));
    expect(&d, 1, EndpointState::Active, None);
}

#[test]
fn udp_moves_when_neither_ready_nor_serving_or_vanished() {
    for (says, moved) in [
        (Says::ReadyTerminating, 0),
        (Says::UnreadyServing, 0),
        (Says::TerminatingServing, 0),
        (Says::Unready, 1),
        (Says::Terminating, 1),
    ] {
        let mut d = drains();
        d.observe(&udp(&[(1, Says::Ready, A)]), at(0));
        assert_eq!(
            moves(&d.observe(&udp(&[(1, says, A)]), at(1))),
            moved,
            "{says:?}"
        );
        assert_eq!(
            moves(&d.observe(&udp(&[]), at(2))),
            1 - moved,
            "vanished after {says:?}"
        );
        let effects = d.handle_timeout(at(1000));
        assert_eq!(
            (moves(&effects), resets(&effects).len()),
            (0, 0),
            "moved once, never reset"
        );
        assert_eq!(life(&d, UDP, 1).1.flows, Flows::Move);
    }
}

#[test]
fn a_deadline_follows_the_annotation() {
    let mut d = drains();
    let pods = [(1, Says::Terminating, A)];
    d.observe(&tcp(None, &pods), at(0));
    d.observe(&tcp(Some(40), &pods), at(10));
    expect(&d, 1, EndpointState::Draining, Some(40));
    d.observe(&tcp(Some(20), &pods), at(11));
    expect(&d, 1, EndpointState::Draining, Some(20));
    d.observe(&tcp(None, &pods), at(12));
    expect(&d, 1, EndpointState::Draining, None);
    assert_eq!(
        resets(&d.observe(&tcp(Some(5), &pods), at(13))).len(),
        1,
        "overdue already"
    );
}

#[test]
fn a_cap_does_not_revive_what_it_cut_but_health_does() {
    let mut d = drains();
    d.observe(&tcp(Some(5), &[(1, Says::TerminatingServing, A)]), at(0));
    d.handle_timeout(at(5));
    d.observe(&tcp(Some(5), &[]), at(6));
    assert!(
        d.observe(&tcp(Some(5), &[(1, Says::Terminating, A)]), at(7))
            .is_empty()
    );
    expect(&d, 1, EndpointState::Gone, None);
    d.observe(&tcp(Some(5), &[(1, Says::Ready, A)]), at(8));
    expect(&d, 1, EndpointState::Active, None);
}

#[test]
fn forgetting_a_listed_end_does_not_revive_it() {
    let mut d = drains();
    let pods = [(1, Says::Terminating, A)];
    d.observe(&tcp(Some(5), &pods), at(0));
    d.handle_timeout(at(5));
    let endpoint = life(&d, TCP, 1).0;
    assert!(d.forget(&endpoint));
    assert!(!d.forget(&endpoint), "once");
    assert!(d.observe(&tcp(Some(5), &pods), at(6)).is_empty());
    assert_eq!(d.iter().count(), 0);
    d.observe(&tcp(Some(5), &[]), at(7));
    assert!(d.export().is_empty());
}

#[test]
fn nothing_vanishes_and_nothing_ends_before_the_first_complete_listing() {
    let mut d = drains();
    d.observe(
        &tcp(
            None,
            &[
                (1, Says::Ready, A),
                (2, Says::Ready, B),
                (3, Says::Ready, None),
            ],
        ),
        at(0),
    );
    d.observe(
        &tcp(None, &[(1, Says::Ready, A), (3, Says::Ready, None)]),
        at(1),
    );
    let records = d.export();
    // The agent was away past pod 2's deadline; pod 3 went meanwhile.
    let mut d = drains();
    d.import(records, at(100));
    assert_eq!(d.poll_timeout(), None);
    let partial = Snapshot(tcp(None, &[(1, Says::Ready, A)])).incomplete().0;
    assert!(resets(&d.observe(&partial, at(101))).is_empty());
    assert!(d.handle_timeout(at(101)).is_empty());
    assert!(d.holds().is_empty());
    expect(&d, 3, EndpointState::Active, None);
    let effects = d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(102));
    assert_eq!(resets(&effects).len(), 1, "pod 2 is overdue");
    expect(&d, 1, EndpointState::Active, None);
    expect(&d, 2, EndpointState::Gone, None);
    expect(&d, 3, EndpointState::Draining, Some(162));
}

#[test]
fn a_pod_replaced_while_the_agent_was_away_is_another_life() {
    let mut d = drains();
    d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(0));
    let mut restarted = drains();
    restarted.import(d.export(), at(10));
    let effects = restarted.observe(&tcp(None, &[(1, Says::Ready, B)]), at(11));
    assert_eq!(resets(&effects).len(), 1);
    assert_eq!(life(&restarted, TCP, 1).0.incarnation, 2);
}

#[test]
fn an_endpoint_without_a_record_is_taken_as_it_is_found() {
    let endpoint = EndpointRef {
        frontend: key(TCP),
        address: pod(1),
        incarnation: 7,
    };
    let mut d = drains();
    d.import(
        [DrainRecord::of_unrecorded(endpoint, Via::Local, at(0))],
        at(0),
    );
    assert!(
        d.observe(&tcp(None, &[(1, Says::Ready, A)]), at(1))
            .is_empty()
    );
    assert_eq!(life(&d, TCP, 1).0, endpoint);
    assert_eq!(
        resets(&d.observe(&tcp(None, &[(1, Says::Ready, B)]), at(2))),
        [endpoint]
    );
}

#[test]
fn a_map_entry_says_what_the_record_says() {
    let mut d = drains();
    d.observe(&tcp(Some(30), &[(1, Says::TerminatingServing, A)]), at(0));
    let record = d.export()[0];
    let (map_key, value) = record.to_map().expect("IPv4");
    assert_eq!(DrainRecord::from_map(&map_key, &value), Ok(record));
    assert_eq!(value.deadline, 1_030_000_000_000);
    assert_eq!((value.state, value.cap_ms), (2, 30_000));
    let six = EndpointRef {
        address: ([0, 0, 0, 0, 0, 0, 0, 1], 80).into(),
        ..record.endpoint
    };
    assert!(
        DrainRecord::of_unrecorded(six, Via::Nat, Duration::ZERO)
            .to_map()
            .is_err()
    );
}
