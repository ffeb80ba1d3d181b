//! Servers of each kind and the load generator: what is counted, and on which side of SYN-ACK.

mod support;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use lab::Lab;
use lab::drive::{Load, Server};
use lab::load::{Options, Sources};
use lab::report::{Outcome, Traffic};
use lab::serve::Kind;
use nix::sys::signal::Signal;
use support::lab_or_skip;

const SECOND: Duration = Duration::from_secs(1);

fn at(addr: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(addr, 8080)
}

fn direct(lab: &Lab) -> Options {
    let mut options = Options::to(at(lab.pod(0).addr()));
    options.sources = Some(Sources(lab.client(0).addrs().to_vec()));
    options.own_address = true;
    options.duration = 1.5;
    options
}

#[test]
fn every_kind_of_traffic_is_answered_and_nothing_fails() {
    let Some(builder) = lab_or_skip("every_kind_of_traffic") else {
        return;
    };
    let lab = builder.pod_routes(true).build().expect("lab");
    let _server = Server::named("one")
        .start(lab.pod(0).netns())
        .expect("server");
    let mut options = direct(&lab);
    options.mix = Traffic::ALL.to_vec();
    options.rate = 500;
    options.download_bytes = 200_000;
    let report = Load::start(lab.client(0).netns(), &options)
        .expect("load")
        .finish()
        .expect("report");
    eprintln!("{}", report.summary());
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures);
    let short = report.of(Traffic::Short);
    assert_eq!(short.attempts, 750, "the rate is kept");
    assert_eq!(short.of(Outcome::Answered), short.attempts);
    for kind in Traffic::ALL {
        assert!(report.of(kind).of(Outcome::Answered) > 0, "{kind}");
    }
    // One answer at the start, one at the end.
    assert_eq!(report.of(Traffic::Idle).of(Outcome::Answered), 32);
    assert_eq!(report.servers.keys().collect::<Vec<_>>(), ["one"]);
    let spread: u64 = report.timeline.values().map(|bucket| bucket.answered).sum();
    assert_eq!(
        spread,
        report.total().of(Outcome::Answered),
        "the timeline has them all"
    );
}

#[test]
fn kind_a_refuses_at_once_and_finishes_what_is_open() {
    let Some(builder) = lab_or_skip("kind_a") else {
        return;
    };
    let lab = builder.pod_routes(true).build().expect("lab");
    let mut server = Server::named("a")
        .kind(Kind::A)
        .start(lab.pod(0).netns())
        .expect("server");
    let mut options = direct(&lab);
    options.mix = vec![Traffic::Keepalive, Traffic::Download];
    options.downloads = 1;
    (options.download_bytes, options.download_rate) = (400_000, 400_000);
    options.duration = 2.0;
    let load = Load::start(lab.client(0).netns(), &options).expect("load");
    std::thread::sleep(SECOND / 2);
    server.terminate().expect("SIGTERM");
    std::thread::sleep(SECOND / 10);
    assert!(
        server.try_wait().expect("wait").is_none(),
        "the download is not over"
    );
    assert!(
        server
            .wait_timeout(3 * SECOND)
            .expect("ends by itself once it is")
            .success()
    );
    let report = load.stop().expect("report");
    eprintln!("{}", report.summary());
    assert_eq!(
        report.total().after(),
        0,
        "nothing that was open is cut: {:?}",
        report.failures
    );
    assert_eq!(report.of(Traffic::Download).of(Outcome::Answered), 1);
    assert!(
        report.of(Traffic::Keepalive).of(Outcome::Refused) > 0,
        "new connections are refused"
    );
}

#[test]
fn kind_b_is_gone_at_once_and_cuts_what_is_open() {
    let Some(builder) = lab_or_skip("kind_b") else {
        return;
    };
    let lab = builder.pod_routes(true).build().expect("lab");
    let mut server = Server::named("b")
        .kind(Kind::B)
        .start(lab.pod(0).netns())
        .expect("server");
    let mut options = direct(&lab);
    options.mix = vec![Traffic::Download, Traffic::Udp, Traffic::Idle];
    options.udp_timeout_ms = 200;
    let load = Load::start(lab.client(0).netns(), &options).expect("load");
    std::thread::sleep(SECOND / 2);
    server.terminate().expect("SIGTERM");
    assert!(server.wait_timeout(SECOND).expect("at once").success());
    let report = load.finish().expect("report");
    eprintln!("{}", report.summary());
    // More than were held at first: one that comes back while the process is dying may still be accepted by the
    // kernel, and is then lost with the listener. That is what the column after SYN-ACK is for.
    let download = report.of(Traffic::Download);
    assert!(download.connected >= 4);
    assert_eq!(
        download.after(),
        download.connected,
        "{:?}",
        report.failures
    );
    let idle = report.of(Traffic::Idle);
    assert!(idle.of(Outcome::Answered) >= 16);
    assert_eq!(
        idle.of(Outcome::ClosedIdle) + idle.after(),
        idle.connected,
        "each of the idle ones hears of it: {:?}",
        report.failures
    );
    assert!(
        report.of(Traffic::Udp).of(Outcome::Bounced) > 0,
        "port unreachable"
    );
    assert!(idle.before() > 0, "and cannot come back");
}

#[test]
fn kind_c_takes_no_notice_until_it_is_killed() {
    let Some(builder) = lab_or_skip("kind_c") else {
        return;
    };
    let lab = builder.pod_routes(true).build().expect("lab");
    let mut server = Server::named("c")
        .kind(Kind::C)
        .start(lab.pod(0).netns())
        .expect("server");
    let load = Load::start(lab.client(0).netns(), &direct(&lab)).expect("load");
    for _ in 0..3 {
        server.terminate().expect("SIGTERM");
        std::thread::sleep(SECOND / 10);
    }
    let report = load.finish().expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures);
    assert!(server.try_wait().expect("wait").is_none());
    let status = server.kill().expect("SIGKILL");
    assert!(lab::proc::ended_by(status, Signal::SIGKILL));
}

#[test]
fn kind_d_leaves_silence() {
    let Some(builder) = lab_or_skip("kind_d") else {
        return;
    };
    let mut lab = builder.pod_routes(true).build().expect("lab");
    let _server = Server::named("d")
        .kind(Kind::D)
        .start(lab.pod(0).netns())
        .expect("server");
    let mut options = direct(&lab);
    options.mix = vec![Traffic::Short, Traffic::Keepalive];
    options.rate = 50;
    (options.connect_timeout_ms, options.answer_timeout_ms) = (700, 700);
    let load = Load::start(lab.client(0).netns(), &options).expect("load");
    std::thread::sleep(SECOND / 2);
    lab.kill_pod(0).expect("killed");
    let report = load.finish().expect("report");
    eprintln!("{}", report.summary());
    assert_eq!(
        report.total().of(Outcome::Refused),
        0,
        "nobody is left to refuse"
    );
    assert!(report.of(Traffic::Short).of(Outcome::ConnectTimeout) > 20);
    assert_eq!(
        report.of(Traffic::Keepalive).of(Outcome::AnswerTimeout),
        16,
        "open connections hang"
    );
}

#[test]
fn unreachable_and_refused_are_before_the_syn_ack() {
    let Some(builder) = lab_or_skip("unreachable_and_refused") else {
        return;
    };
    let lab = builder.build().expect("lab");
    let client = lab.client(0).netns();
    let mut options = Options::to(at(lab.node(0).addr()));
    (options.duration, options.rate) = (0.3, 50);
    let refused = Load::start(client, &options)
        .expect("load")
        .finish()
        .expect("report")
        .of(Traffic::Short);
    assert_eq!(refused.of(Outcome::Refused), refused.attempts);
    assert!(refused.attempts > 5 && refused.connected == 0 && refused.after() == 0);

    client
        .run("ip", &["route", "add", "unreachable", "198.51.100.1"])
        .expect("route");
    options.target = at(Ipv4Addr::new(198, 51, 100, 1));
    let report = Load::start(client, &options)
        .expect("load")
        .finish()
        .expect("report");
    let unreachable = report.of(Traffic::Short);
    assert_eq!(
        unreachable.of(Outcome::Unreachable),
        unreachable.attempts,
        "{:?}",
        report.failures
    );
}

#[test]
fn accepted_but_unanswered_is_after_the_syn_ack() {
    let Some(builder) = lab_or_skip("accepted_but_unanswered") else {
        return;
    };
    let lab = builder.pod_routes(true).build().expect("lab");
    let mut server = Server::named("slow")
        .kind(Kind::B)
        .slow_ms(2000)
        .start(lab.pod(0).netns())
        .expect("server");
    let mut options = direct(&lab);
    (options.count, options.rate) = (Some(20), 1000);
    let load = Load::start(lab.client(0).netns(), &options).expect("load");
    std::thread::sleep(SECOND / 2);
    server.terminate().expect("SIGTERM");
    let report = load.finish().expect("report");
    let short = report.of(Traffic::Short);
    assert_eq!(
        (short.connected, short.before(), short.after()),
        (20, 0, 20),
        "{:?}",
        report.failures
    );
}

#[test]
fn thousands_of_short_connections_a_second() {
    let Some(builder) = lab_or_skip("thousands_of_short_connections") else {
        return;
    };
    let lab = builder.pod_routes(true).build().expect("lab");
    let _server = Server::named("fast")
        .start(lab.pod(0).netns())
        .expect("server");
    let mut options = direct(&lab);
    (options.rate, options.duration) = (2000, 2.0);
    let started = Instant::now();
    let report = Load::start(lab.client(0).netns(), &options)
        .expect("load")
        .finish()
        .expect("report");
    eprintln!("{:?}\n{}", started.elapsed(), report.summary());
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures);
    assert_eq!(
        report.total().of(Outcome::Local),
        0,
        "ports did not run out"
    );
}
