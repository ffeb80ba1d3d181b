//! Who may have a VIP on which connections drain.

use crate::desired::{FrontendKey, ObjectName, Protocol, ServiceId};

use super::super::Drains;
use super::support::{Says, Snapshot, at, drains, key};

fn service(name: &str) -> ObjectName {
    ObjectName {
        namespace: "shop".into(),
        name: name.into(),
    }
}

/// One pod behind each of these ports of the VIP.
fn snapshot(frontends: &[(u16, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::empty();
    for (port, name) in frontends {
        let key = at_port(*port);
        snapshot = snapshot.with(key, None, &[(1, Says::Ready, Some("pod-a"))]);
        let frontend = snapshot.0.frontends.get_mut(&key).expect("just added");
        frontend.service = service(name);
    }
    snapshot
}

fn at_port(port: u16) -> FrontendKey {
    FrontendKey {
        port,
        ..key(Protocol::Tcp)
    }
}

/// Names of the Services that may have the VIP; none when everybody may.
fn may(d: &Drains, next: &Snapshot, names: &[&'static str]) -> Option<Vec<&'static str>> {
    let leaving = d.leaving_vips(&next.0);
    let reservation = leaving.get(&key(Protocol::Tcp).address)?;
    let allowed = |name: &&&str| {
        let id = ServiceId::of(&service(name));
        reservation.services.contains(&id)
    };
    Some(names.iter().filter(allowed).copied().collect())
}

const ALL: [&str; 3] = ["web", "other", "new"];

#[test]
fn a_vip_is_reserved_before_it_is_given_away() {
    let mut d = drains();
    d.observe(&snapshot(&[(80, "web")]).0, at(0));
    assert_eq!(may(&d, &snapshot(&[(80, "web")]), &ALL), None);
    let taken_over = snapshot(&[(80, "new")]);
    assert_eq!(may(&d, &taken_over, &ALL), Some(vec!["web"]));
    let elsewhere = snapshot(&[(81, "new")]);
    assert_eq!(may(&d, &elsewhere, &ALL), Some(vec!["web"]));
    assert_eq!(may(&d, &elsewhere.incomplete(), &ALL), None);
}

#[test]
fn those_who_share_the_vip_keep_it() {
    let mut d = drains();
    d.observe(&snapshot(&[(80, "web"), (443, "other")]).0, at(0));
    let next = snapshot(&[(443, "other"), (80, "new")]);
    assert_eq!(may(&d, &next, &ALL), Some(vec!["web", "other"]));
}

#[test]
fn a_vip_is_free_when_the_last_connection_is_settled() {
    let mut d = drains();
    d.observe(&snapshot(&[(80, "web")]).0, at(0));
    let none = Snapshot::empty();
    d.observe(&none.0, at(1));
    assert_eq!(may(&d, &none, &ALL), Some(vec!["web"]));
    d.handle_timeout(at(61));
    assert_eq!(may(&d, &none, &ALL), Some(vec!["web"]), "resets go on");
    for (endpoint, _) in d.iter().collect::<Vec<_>>() {
        assert!(d.forget(&endpoint));
    }
    assert_eq!(may(&d, &none, &ALL), None);
}

#[test]
fn a_restart_knows_whose_vip_it_was() {
    let mut d = drains();
    d.observe(&snapshot(&[(80, "web"), (443, "other")]).0, at(0));
    d.observe(&snapshot(&[(443, "other")]).0, at(1));
    let mut next = drains();
    next.import(d.export(), at(2));
    for (port, name) in [(80, "new"), (443, "other")] {
        let listed = snapshot(&[(443, "other"), (port, name)]);
        assert_eq!(may(&next, &listed, &ALL), Some(vec!["web", "other"]));
    }
    // Back in time, under its own name.
    let back = snapshot(&[(80, "web"), (443, "other")]);
    assert_eq!(may(&next, &back, &ALL), None);
}
