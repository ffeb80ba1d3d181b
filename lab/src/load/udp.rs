//! UDP: a request, its answer from the same address, for a while from one port, then from another.

use std::io;
use std::net::SocketAddrV4;
use std::time::Instant;

use tokio::net::UdpSocket;
use tokio::time::{Instant as Deadline, timeout_at};

use super::Run;
use crate::report::{Outcome, Traffic};

pub(super) async fn exchanges(run: &Run) {
    let mut number = 0_u64;
    while !run.is_stopped() {
        let socket = match socket(run).await {
            Ok(socket) => socket,
            Err(error) => {
                run.outcome(Traffic::Udp, Outcome::Local, run.clock.now_ms(), || {
                    error.to_string()
                });
                run.pause(run.options.think()).await;
                continue;
            }
        };
        for _ in 0..run.options.udp_flow.max(1) {
            if run.is_stopped() {
                return;
            }
            number += 1;
            exchange(run, &socket, number).await;
            run.pause(run.options.think()).await;
        }
    }
}

async fn socket(run: &Run) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddrV4::new(run.source(), 0)).await?;
    // Connected, so that an answer from any other address is none.
    socket.connect(run.options.target).await?;
    Ok(socket)
}

async fn exchange(run: &Run, socket: &UdpSocket, number: u64) {
    let started = Instant::now();
    let at_ms = run.clock.ms(started);
    run.report().attempt(Traffic::Udp, at_ms);
    let outcome = match ask(run, socket, number).await {
        Ok(server) => {
            let mut report = run.report();
            report.answer.record(started.elapsed());
            report.traffic.entry(Traffic::Udp).or_default().connected += 1;
            *report.servers.entry(server).or_default() += 1;
            report.outcome(
                Traffic::Udp,
                Outcome::Answered,
                run.clock.now_ms(),
                String::new,
            );
            return;
        }
        Err(error) => failure(&error),
    };
    let local = socket.local_addr();
    run.outcome(Traffic::Udp, outcome, at_ms, || {
        format!("{local:?} exchange {number}")
    });
}

fn failure(error: &io::Error) -> Outcome {
    let kind = error.kind();
    if kind == io::ErrorKind::TimedOut {
        Outcome::Lost
    } else if kind == io::ErrorKind::InvalidData {
        Outcome::WrongBytes
    } else if matches!(
        kind,
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    ) {
        Outcome::Bounced
    } else {
        Outcome::Local
    }
}

/// The name of the server that answered this very request.
async fn ask(run: &Run, socket: &UdpSocket, number: u64) -> io::Result<String> {
    let deadline = Deadline::now() + run.options.udp_timeout();
    let request = format!("request {number} from lab load");
    socket.send(request.as_bytes()).await?;
    let mut answer = [0; 256];
    loop {
        let received = timeout_at(deadline, socket.recv(&mut answer)).await;
        let length = received.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        let text = String::from_utf8_lossy(&answer[..length]);
        match text.split_once(' ') {
            Some((name, echoed)) if echoed == request => return Ok(name.to_owned()),
            // A late answer to a request that was given up: counted as lost then, no error now.
            Some((_, echoed)) if echoed.starts_with("request ") => {}
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    text.into_owned(),
                ));
            }
        }
    }
}
