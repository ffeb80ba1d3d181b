//! As much of HTTP/1.1 as the lab's own servers and clients need of each other: heads with a length, keep-alive.
//!
//! Small on purpose: a failure must be the network's, and what exactly went wrong must not be hidden by a library.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

const MAX_HEAD: usize = 16 * 1024;

/// The head of a request or of a response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Head {
    /// Request line or status line.
    pub first_line: String,
    /// `Content-Length`, 0 when absent.
    pub content_length: u64,
    /// `Connection: close`.
    pub close: bool,
}

impl Head {
    /// The target of a request line (`GET TARGET HTTP/1.1`).
    pub fn target(&self) -> Option<&str> {
        self.first_line.split(' ').nth(1)
    }

    /// True for a status line that says 200.
    pub fn is_ok(&self) -> bool {
        self.first_line.split(' ').nth(1) == Some("200")
    }
}

/// Reads one head; `None` when the peer closed in an orderly way before its first byte.
pub async fn read_head(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Head>> {
    let mut head = Head::default();
    let mut line = String::new();
    let mut total = 0;
    loop {
        line.clear();
        let read = from.read_line(&mut line).await?;
        if read == 0 && total == 0 {
            return Ok(None);
        }
        total += read;
        let Some(text) = line.strip_suffix('\n').filter(|_| total <= MAX_HEAD) else {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "head cut short or too long",
            ));
        };
        let text = text.strip_suffix('\r').unwrap_or(text);
        if head.first_line.is_empty() {
            text.clone_into(&mut head.first_line);
        } else if text.is_empty() {
            return Ok(Some(head));
        } else if let Some((name, value)) = text.split_once(':') {
            head.take_header(name, value.trim())?;
        }
    }
}

impl Head {
    fn take_header(&mut self, name: &str, value: &str) -> io::Result<()> {
        if name.eq_ignore_ascii_case("content-length") {
            self.content_length = value
                .parse()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        } else if name.eq_ignore_ascii_case("connection") {
            self.close = value.eq_ignore_ascii_case("close");
        }
        Ok(())
    }
}

/// The head of a response.
pub fn response_head(status: &str, length: u64, close: bool) -> String {
    let connection = if close { "close" } else { "keep-alive" };
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n")
}

/// A GET request.
pub fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: lab\r\n\r\n")
}

/// A number from a target's query string.
pub fn query_number(target: &str, name: &str) -> Option<u64> {
    let (_, query) = target.split_once('?')?;
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn heads_are_read_one_after_the_other() {
        let text = format!(
            "{}{}",
            response_head("200 OK", 5, true),
            request("/bytes/9?seed=4&rate=7")
        );
        let mut from = text.as_bytes();
        let head = read_head(&mut from)
            .await
            .expect("response")
            .expect("not the end");
        assert!(head.is_ok() && head.close);
        assert_eq!(head.content_length, 5);
        let head = read_head(&mut from)
            .await
            .expect("request")
            .expect("not the end");
        let target = head.target().expect("target");
        assert_eq!(
            (query_number(target, "seed"), query_number(target, "rate")),
            (Some(4), Some(7))
        );
        assert_eq!(query_number(target, "see"), None);
        assert!(read_head(&mut from).await.expect("end").is_none());
    }

    #[tokio::test]
    async fn cut_short_is_an_error_and_so_is_an_endless_head() {
        assert!(read_head(&mut "GET / HT".as_bytes()).await.is_err());
        assert!(
            read_head(&mut "GET / HTTP/1.1\r\nA: b\r\n".as_bytes())
                .await
                .is_err()
        );
        let endless = "x: y\r\n".repeat(MAX_HEAD);
        assert!(read_head(&mut endless.as_bytes()).await.is_err());
        assert!(
            read_head(&mut "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n".as_bytes())
                .await
                .is_err()
        );
    }
}
