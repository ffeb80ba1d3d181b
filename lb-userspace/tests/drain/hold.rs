//! A VIP whose Service is gone: answered while connections drain, and given to nobody else.

use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::time::Duration;

use lab::Lab;

use crate::stage::{Client, Service, Stage, builder};

const SOON: Duration = Duration::from_secs(3);

/// New connections are refused, and quickly: the VIP is answered for.
fn refuses(stage: &Stage, vip: SocketAddrV4) {
    let client = stage.lab.client(0).netns();
    let error = Client::connect(client, vip)
        .err()
        .expect("must not connect");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

#[test]
#[ignore = "root"]
fn a_deleted_service_keeps_its_vip_until_its_connections_have_ended() {
    let Some(builder) = builder("a_deleted_service_keeps_its_vip") else {
        return;
    };
    let mut stage = Stage::new("hold", builder.pods(2), &["--drain-timeout=8"]);
    let mut held = stage.connect_to("pod-0");

    // In one step: the old Service goes, and another asks for its VIP and port.
    let other = Service {
        name: "other",
        endpoints: vec![stage.service().endpoints.remove(1)],
        ..stage.service()
    };
    stage.write(std::slice::from_ref(&other));
    stage.until("the frontend is held", SOON, |stage| {
        stage.frontend(stage.vip, "TCP").is_some_and(|f| f.held)
    });
    refuses(&stage, stage.vip);
    assert_eq!(held.ask().expect("stays"), "pod-0");
    let waiting = |stage: &Stage| {
        let ignored = stage.state().ignored.into_iter();
        let mut of_other = ignored.filter(|ignored| ignored.object == "Service/lab/other");
        of_other.any(|ignored| {
            ignored
                .reason
                .contains("still draining for Service lab/web")
        })
    };
    assert!(waiting(&stage), "{:?}", stage.state().ignored);

    // A restart forgets none of it.
    stage.agent.kill().expect("killed");
    stage.agent.run().expect("ready again");
    assert!(stage.frontend(stage.vip, "TCP").expect("held").held);
    refuses(&stage, stage.vip);
    assert_eq!(held.ask().expect("stays"), "pod-0");

    assert_eq!(
        held.listen(Duration::from_secs(12)),
        Some(ErrorKind::ConnectionReset)
    );
    stage.until(
        "the other Service has the VIP",
        Duration::from_secs(8),
        |stage| {
            stage
                .frontend(stage.vip, "TCP")
                .is_some_and(|f| f.service == "lab/other")
        },
    );
    assert_eq!(stage.connect().server, "pod-1");
}

#[test]
#[ignore = "root"]
fn a_changed_vip_drains_at_the_old_one_and_serves_at_the_new_one() {
    let Some(builder) = builder("a_changed_vip_drains") else {
        return;
    };
    let stage = Stage::new("hold-moved", builder.pods(2), &["--drain-timeout=3"]);
    let mut held = stage.connect_to("pod-0");
    let new = SocketAddrV4::new(Lab::vip(1), 80);
    stage.write(&[Service {
        vip: new,
        ..stage.service()
    }]);
    stage.until("the old frontend is held", SOON, |stage| {
        stage.frontend(stage.vip, "TCP").is_some_and(|f| f.held)
    });
    refuses(&stage, stage.vip);
    let client = stage.lab.client(0).netns();
    Client::connect(client, new).expect("served at the new address");
    assert_eq!(held.ask().expect("stays"), "pod-0");
    assert_eq!(
        held.listen(Duration::from_secs(7)),
        Some(ErrorKind::ConnectionReset)
    );
    stage.until(
        "nothing is held any more",
        Duration::from_secs(8),
        |stage| stage.frontend(stage.vip, "TCP").is_none(),
    );
}
