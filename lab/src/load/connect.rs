//! One connect, and which side of SYN-ACK its failure lies on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::Run;
use crate::http::{Head, read_head, request};
use crate::report::{Outcome, Traffic};

/// An established connection.
pub(super) struct Connection {
    pub(super) stream: BufReader<TcpStream>,
    local: SocketAddr,
    traffic: Traffic,
}

/// Connects and counts; `None` when it failed.
pub(super) async fn connect(run: &Run, traffic: Traffic) -> Option<Connection> {
    let source = run.source();
    let started = Instant::now();
    let at_ms = run.clock.ms(started);
    run.report().attempt(traffic, at_ms);
    let connected = match socket(source) {
        Ok(socket) => match timeout(
            run.options.connect_timeout(),
            socket.connect(run.options.target.into()),
        )
        .await
        {
            Ok(result) => result,
            Err(_elapsed) => Err(io::Error::from(Errno::ETIMEDOUT)),
        },
        Err(error) => Err(error),
    };
    let result = connected.and_then(|stream| {
        let took = started.elapsed();
        {
            let mut report = run.report();
            report.connect.record(took);
            report.traffic.entry(traffic).or_default().connected += 1;
        }
        stream.set_nodelay(true)?;
        Ok((stream.local_addr()?, stream))
    });
    match result {
        Ok((local, stream)) => Some(Connection {
            stream: BufReader::new(stream),
            local,
            traffic,
        }),
        Err(error) => {
            let outcome = connect_failure(&error);
            run.outcome(traffic, outcome, at_ms, || {
                format!("from {source} after {:?}: {error}", started.elapsed())
            });
            None
        }
    }
}

/// The port is chosen at connect, by the whole 4-tuple: at bind, the ports of one address would be used up by
/// connections that merely wait for their end.
fn socket(source: Ipv4Addr) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind(&SocketAddrV4::new(source, 0).into())?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

fn connect_failure(error: &io::Error) -> Outcome {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => Outcome::Refused,
        Some(Errno::ETIMEDOUT) => Outcome::ConnectTimeout,
        // A RST that came before this task was told of the SYN-ACK: the kernel only says so once established.
        Some(Errno::ECONNRESET | Errno::EPIPE | Errno::ENOTCONN) => Outcome::Reset,
        Some(
            Errno::EADDRNOTAVAIL
            | Errno::EADDRINUSE
            | Errno::EMFILE
            | Errno::ENFILE
            | Errno::ENOBUFS
            | Errno::ENOMEM,
        ) => Outcome::Local,
        // EHOSTUNREACH, ENETUNREACH and whatever else an ICMP error turns into.
        _ => Outcome::Unreachable,
    }
}

/// What an error on an established connection counts as.
pub(super) fn failure(error: &io::Error) -> Outcome {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Outcome::NoAnswer
    } else if error.kind() == io::ErrorKind::TimedOut {
        Outcome::AnswerTimeout
    } else if error.kind() == io::ErrorKind::InvalidData {
        Outcome::WrongBytes
    } else {
        Outcome::Reset
    }
}

impl Connection {
    /// One request and its whole answer, counted; the head when all went well.
    pub(super) async fn exchange(&mut self, run: &Run, target: &str) -> Option<Head> {
        let started = Instant::now();
        let result = match timeout(run.options.answer_timeout(), self.ask(target)).await {
            Ok(result) => result.and_then(|(head, body)| Ok((head, self.check(run, &body)?))),
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        };
        match result {
            Ok((head, server)) => {
                let mut report = run.report();
                report.answer.record(started.elapsed());
                *report.servers.entry(server).or_default() += 1;
                report.outcome(
                    self.traffic,
                    Outcome::Answered,
                    run.clock.now_ms(),
                    String::new,
                );
                Some(head)
            }
            Err(error) => {
                self.failed(run, &error);
                None
            }
        }
    }

    /// Counts a failure of this connection.
    pub(super) fn failed(&self, run: &Run, error: &io::Error) {
        let local = self.local;
        run.outcome(self.traffic, failure(error), run.clock.now_ms(), || {
            format!("{local}: {error}")
        });
    }

    /// Sends a request and reads the head of its answer.
    pub(super) async fn ask_head(&mut self, target: &str) -> io::Result<Head> {
        self.stream
            .get_mut()
            .write_all(request(target).as_bytes())
            .await?;
        let head = read_head(&mut self.stream).await?;
        let head = head.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer")
        })?;
        if head.is_ok() {
            Ok(head)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, head.first_line))
        }
    }

    async fn ask(&mut self, target: &str) -> io::Result<(Head, Vec<u8>)> {
        let head = self.ask_head(target).await?;
        let mut body = vec![
            0;
            usize::try_from(head.content_length)
                .map_err(io::Error::other)?
                .min(1 << 20)
        ];
        self.stream.read_exact(&mut body).await?;
        Ok((head, body))
    }

    /// The server's name out of an answer `NAME ADDRESS:PORT`.
    fn check(&self, run: &Run, body: &[u8]) -> io::Result<String> {
        if run.options.any_body {
            return Ok("any".to_owned());
        }
        let wrong = |what: &str| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{what}: {}", String::from_utf8_lossy(body).trim()),
            )
        };
        let text = std::str::from_utf8(body)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let (name, seen) = text
            .trim_end()
            .split_once(' ')
            .ok_or_else(|| wrong("not an answer of lab serve"))?;
        let seen: SocketAddr = seen
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if run.options.own_address && seen != self.local {
            return Err(wrong("the server saw another client"));
        }
        Ok(name.to_owned())
    }
}
