//! UDP exchanges: they stay while their endpoint serves, and move at once when it does not.

use std::net::UdpSocket;
use std::time::Duration;

use crate::stage::{Listed, Stage, builder};

/// An exchange that is kept: one socket, so one flow.
struct Exchange(UdpSocket);

impl Exchange {
    fn start(stage: &Stage) -> Self {
        let vip = stage.vip;
        let bound = stage.lab.client(0).netns().enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(vip)?;
            socket.set_read_timeout(Some(Duration::from_millis(300)))?;
            Ok::<_, std::io::Error>(socket)
        });
        Self(bound.expect("enters").expect("a socket"))
    }

    /// Who answers one datagram, if anybody does.
    fn ask(&self) -> Option<String> {
        self.0.send(b"hello").ok()?;
        let mut buffer = [0; 64];
        let read = self.0.recv(&mut buffer).ok()?;
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        Some(text.split(' ').next().unwrap_or_default().to_owned())
    }
}

/// An exchange, with whom it is, and the Service whose first endpoint that is.
fn begin(stage: &Stage) -> (Exchange, String, Vec<Listed>) {
    let exchange = Exchange::start(stage);
    let server = exchange.ask().expect("an answer");
    for _ in 0..3 {
        assert_eq!(exchange.ask().as_ref(), Some(&server), "it stays");
    }
    let mut endpoints = stage.service().endpoints;
    let at = endpoints.iter().position(|listed| listed.uid == server);
    endpoints.swap(0, at.expect("one of ours"));
    (exchange, server, endpoints)
}

/// The exchange goes on with another endpoint, at once.
fn moves(stage: &Stage, exchange: &Exchange, from: &str) {
    let took = stage.until("another endpoint answers", Duration::from_secs(2), |_| {
        exchange.ask().is_some_and(|server| server != from)
    });
    eprintln!("moved after {took:?}");
}

fn rows(stage: &Stage) {
    let write = |endpoints: Vec<Listed>| {
        let mut service = stage.service();
        service.endpoints = endpoints;
        stage.write(&[service]);
    };
    // Unready: neither ready nor serving.
    let (exchange, server, mut endpoints) = begin(stage);
    endpoints[0].ready = false;
    write(endpoints);
    moves(stage, &exchange, &server);

    // Terminating, and serving still: it stays.
    write(stage.service().endpoints);
    stage.until("all are ready", Duration::from_secs(2), |stage| {
        let frontend = stage.frontend(stage.vip, "UDP").expect("the Service's");
        frontend.endpoints.iter().all(|life| life.state == "active")
    });
    let (exchange, server, mut endpoints) = begin(stage);
    endpoints[0].ready = false;
    endpoints[0].terminating = true;
    write(endpoints.clone());
    stage.until("it drains", Duration::from_secs(2), |stage| {
        let frontend = stage.frontend(stage.vip, "UDP").expect("the Service's");
        let mut lives = frontend.endpoints.iter();
        lives.any(|life| life.state == "draining")
    });
    for _ in 0..10 {
        assert_eq!(exchange.ask().as_ref(), Some(&server), "it serves still");
    }
    // Vanished.
    endpoints.remove(0);
    write(endpoints);
    moves(stage, &exchange, &server);
}

#[test]
#[ignore = "root"]
fn exchanges_with_pods_move_when_nobody_serves_them() {
    let Some(builder) = builder("exchanges_with_pods_move") else {
        return;
    };
    rows(&Stage::new("udp-local", builder.pods(2), &[]));
}

#[test]
#[ignore = "root"]
fn exchanges_by_full_nat_move_when_nobody_serves_them() {
    let Some(builder) = builder("exchanges_by_full_nat_move") else {
        return;
    };
    let builder = builder.pods(0).lan_servers(2);
    rows(&Stage::new("udp-nat", builder, &["--xdp-mode=native"]));
}

#[test]
#[ignore = "root"]
fn an_exchange_whose_server_has_died_moves_on_the_first_refusal() {
    let Some(builder) = builder("an_exchange_whose_server_has_died") else {
        return;
    };
    let pods = builder.clone().pods(2);
    let servers = builder.pods(0).lan_servers(2);
    for (name, builder, args) in [
        ("udp-refused", pods, &[][..]),
        ("udp-refused-nat", servers, &["--xdp-mode=native"][..]),
    ] {
        let mut stage = Stage::new(name, builder, args);
        let (exchange, server, _) = begin(&stage);
        // The name ends with the index.
        let index: usize = server[4..].parse().expect("a number");
        stage.servers[index] = None;
        moves(&stage, &exchange, &server);
    }
}
