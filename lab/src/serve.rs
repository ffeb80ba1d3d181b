//! The endpoint: a small HTTP/1.1 server, and UDP echo on the same port, that ends the way real pods end.
//!
//! How a process dies decides what its clients see, so each way is a [`Kind`] of its own. It must never be kinder
//! than real servers are: a listener is closed as it is, with whatever the kernel had accepted and nobody had read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::http::{query_number, read_head, response_head};
use crate::payload;

/// How the server takes SIGTERM.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Kind {
    /// Closes its listener at once, finishes what is open, ends when nothing is.
    #[default]
    A,
    /// Ends at once.
    B,
    /// Ignores it until it is killed.
    C,
    /// Ends at once; whoever runs the lab takes its namespace away at the same time.
    D,
}

impl Kind {
    /// The letter, as on the command line.
    pub fn letter(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
        }
    }
}

/// What to serve and how to end.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address and port, for TCP and UDP.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// How to take SIGTERM.
    #[arg(long, value_enum, default_value = "a")]
    pub kind: Kind,
    /// The name to answer with.
    #[arg(long)]
    pub name: String,
    /// Answer UDP as well.
    #[arg(long)]
    pub udp: bool,
    /// Milliseconds to wait before each HTTP answer.
    #[arg(long, default_value_t = 0)]
    pub slow_ms: u64,
    /// Kind a: seconds until open connections are given up.
    #[arg(long, default_value_t = 30)]
    pub grace: u64,
    /// Length of the accept queue.
    #[arg(long, default_value_t = 4096)]
    pub backlog: i32,
}

/// Serves until the end that its kind says.
pub async fn run(options: Options) -> Result<()> {
    let options = Arc::new(options);
    let listener = listen(&options).with_context(|| format!("listening on {}", options.listen))?;
    let mut terminate = signal(SignalKind::terminate()).context("catching SIGTERM")?;
    let udp = if options.udp {
        let socket = UdpSocket::bind(options.listen).await;
        Some(socket.with_context(|| format!("UDP on {}", options.listen))?)
    } else {
        None
    };
    let echo = udp.map(|socket| tokio::spawn(echo(socket, options.name.clone())));
    let (draining, on_drain) = watch::channel(false);
    // Every connection holds a sender: when the last one is gone, receiving ends.
    let (open, mut all_closed) = mpsc::channel::<()>(1);

    println!("ready {} {}", options.name, options.listen);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let (options, on_drain, open) = (Arc::clone(&options), on_drain.clone(), open.clone());
                    tokio::spawn(async move {
                        // A client that goes away is not the server's failure.
                        serve_connection(stream, peer, &options, &on_drain).await.ok();
                        drop(open);
                    });
                }
                Err(error) => {
                    eprintln!("{}: accept: {error}", options.name);
                    sleep(Duration::from_millis(10)).await;
                }
            },
            _ = terminate.recv() => match options.kind {
                Kind::A => break,
                Kind::B | Kind::D => std::process::exit(0),
                Kind::C => {}
            },
        }
    }
    drop(listener);
    if let Some(echo) = echo {
        echo.abort();
    }
    drop(open);
    draining.send(true).ok();
    // Over the limit or not, this is the end.
    timeout(Duration::from_secs(options.grace), all_closed.recv())
        .await
        .ok();
    Ok(())
}

fn listen(options: &Options) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(options.listen),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&options.listen.into())?;
    socket.listen(options.backlog)?;
    TcpListener::from_std(socket.into())
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    options: &Options,
    draining: &watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream).await? {
        let mut body = head.content_length;
        while body > 0 {
            let mut sink = [0; 4096];
            let want = body.min(sink.len() as u64) as usize;
            match stream.read(&mut sink[..want]).await? {
                0 => return Ok(()),
                read => body -= read as u64,
            }
        }
        if options.slow_ms > 0 {
            sleep(Duration::from_millis(options.slow_ms)).await;
        }
        let close = head.close || *draining.borrow();
        let target = head.target().unwrap_or("/");
        let path = target.split('?').next().unwrap_or(target);
        let to = stream.get_mut();
        match path.strip_prefix("/bytes/").map(str::parse) {
            Some(Ok(length)) => send_bytes(to, target, length, close).await?,
            Some(Err(_)) => {
                let usage = "/bytes/N?seed=S&rate=R\n";
                send_text(to, "400 Bad Request", usage, close).await?;
            }
            None if matches!(path, "/" | "/hold") => {
                // The address the server sees is the proof that it was kept on the way.
                let body = format!("{} {peer}\n", options.name);
                send_text(to, "200 OK", &body, close).await?;
            }
            None => send_text(to, "404 Not Found", "/, /hold, /bytes/N\n", close).await?,
        }
        if close {
            return stream.get_mut().shutdown().await;
        }
    }
    Ok(())
}

async fn send_text(
    stream: &mut TcpStream,
    status: &str,
    body: &str,
    close: bool,
) -> io::Result<()> {
    // One write, one segment: the answer comes whole or not at all.
    let text = response_head(status, body.len() as u64, close) + body;
    stream.write_all(text.as_bytes()).await
}

/// Streams pseudo-random bytes; with `rate` (bytes per second) as slowly as asked, so that a download can be long.
async fn send_bytes(
    stream: &mut TcpStream,
    target: &str,
    length: u64,
    close: bool,
) -> io::Result<()> {
    let seed = query_number(target, "seed").unwrap_or(0);
    let rate = query_number(target, "rate").filter(|rate| *rate > 0);
    stream
        .write_all(response_head("200 OK", length, close).as_bytes())
        .await?;
    let started = Instant::now();
    let mut chunk =
        vec![0; rate.map_or(64 * 1024, |rate| (rate / 20).clamp(1, 64 * 1024)) as usize];
    let mut sent = 0;
    while sent < length {
        let take = (length - sent).min(chunk.len() as u64) as usize;
        payload::fill(seed, sent, &mut chunk[..take]);
        stream.write_all(&chunk[..take]).await?;
        sent += take as u64;
        if let Some(rate) = rate {
            sleep_until(started + Duration::from_micros(sent.saturating_mul(1_000_000) / rate))
                .await;
        }
    }
    Ok(())
}

async fn echo(socket: UdpSocket, name: String) {
    let mut datagram = vec![0; 65_536];
    loop {
        // An error here is the echo of an answer that nobody took.
        let Ok((length, peer)) = socket.recv_from(&mut datagram).await else {
            continue;
        };
        let mut answer = name.clone().into_bytes();
        answer.push(b' ');
        answer.extend_from_slice(&datagram[..length]);
        socket.send_to(&answer, peer).await.ok();
    }
}
