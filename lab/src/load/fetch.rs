//! `lab fetch`: one URL, its body or its hash; for scripts and tests that want no more.

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{read_head, request};
use crate::payload::hex;

/// Options of `lab fetch`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// `http://ADDRESS:PORT/PATH`.
    #[arg(long)]
    pub url: String,
    /// Print the SHA-256 of the body instead of the body.
    #[arg(long)]
    pub sha: bool,
    /// Seconds to wait for the connection, and for each next piece.
    #[arg(long, default_value_t = 8)]
    pub timeout: u64,
}

impl Options {
    /// Fetches this URL's body.
    pub fn url(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            sha: false,
            timeout: 8,
        }
    }
}

/// Fetches in the caller's namespace and blocks; for use inside [`crate::Ns::enter`].
pub fn blocking(options: &Options) -> Result<String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("a runtime")?
        .block_on(run(options))
}

/// Fetches; gives the body or, if asked, its hash.
pub async fn run(options: &Options) -> Result<String> {
    let limit = Duration::from_secs(options.timeout);
    let rest = options
        .url
        .strip_prefix("http://")
        .context("the URL must start with http://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address: SocketAddrV4 = match authority.parse() {
        Ok(address) => address,
        Err(_) => format!("{authority}:80")
            .parse()
            .with_context(|| format!("`{authority}` is not ADDRESS[:PORT]"))?,
    };
    let connected = timeout(limit, TcpStream::connect(address)).await;
    let stream = connected.with_context(|| format!("{address}: no answer"))?;
    let mut stream = BufReader::new(stream.with_context(|| format!("connecting to {address}"))?);
    stream
        .get_mut()
        .write_all(request(&format!("/{path}")).as_bytes())
        .await
        .context("sending the request")?;
    let head = timeout(limit, read_head(&mut stream))
        .await
        .context("no answer in time")?;
    let Some(head) = head.context("reading the answer")? else {
        bail!("closed without an answer")
    };
    ensure!(head.is_ok(), "{}: {}", options.url, head.first_line);

    let mut body = Vec::new();
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut left = head.content_length;
    while left > 0 {
        let want = left.min(buffer.len() as u64) as usize;
        let read = timeout(limit, stream.read(&mut buffer[..want]))
            .await
            .context("no more bytes in time")?;
        let read = read.context("reading the body")?;
        ensure!(read > 0, "closed {left} bytes before the end");
        if options.sha {
            hasher.update(&buffer[..read]);
        } else {
            body.extend_from_slice(&buffer[..read]);
        }
        left -= read as u64;
    }
    if options.sha {
        return Ok(hex(&hasher.finalize()));
    }
    Ok(String::from_utf8_lossy(&body).trim_end().to_owned())
}
