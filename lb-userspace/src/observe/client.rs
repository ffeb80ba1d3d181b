//! Asks a running agent for its snapshot. Blocking, without a client library: one GET to an
//! address of this machine is all there is to it.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use thiserror::Error;

use super::state::StateSnapshot;

/// Why there is no snapshot.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Nobody answers there.
    #[error("no agent answers at {address}: {source}")]
    Connect {
        /// The agent's HTTP address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Something else than an agent answers, or one that is stuck.
    #[error("{address} answers, but not as an agent: {what}")]
    Answer {
        /// The agent's HTTP address.
        address: SocketAddr,
        /// What is wrong.
        what: String,
    },
}

const CONNECT: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(3);
/// More than the snapshot of a full node takes.
const MAX_BYTES: u64 = 256 << 20;

/// The agent's last snapshot.
pub fn fetch_state(address: SocketAddr) -> Result<StateSnapshot, FetchError> {
    let body = fetch(address, "/state")?;
    serde_json::from_str(&body).map_err(|error| FetchError::Answer {
        address,
        what: error.to_string(),
    })
}

fn fetch(address: SocketAddr, path: &str) -> Result<String, FetchError> {
    let answer = |what: String| FetchError::Answer { address, what };
    let stream = TcpStream::connect_timeout(&address, CONNECT)
        .map_err(|source| FetchError::Connect { address, source })?;
    let text = exchange(stream, address, path).map_err(|error| answer(error.to_string()))?;
    // HTTP/1.0: no chunks, the body ends with the connection.
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(answer("no HTTP".into()));
    };
    let status = head.split_whitespace().nth(1).unwrap_or("no status");
    if status == "200" {
        Ok(body.to_owned())
    } else {
        Err(answer(format!("status {status}")))
    }
}

fn exchange(mut stream: TcpStream, address: SocketAddr, path: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
