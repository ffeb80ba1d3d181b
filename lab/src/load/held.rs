//! Connections that are held: keep-alive, downloads, idle ones. A lost one is counted and replaced.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::time::timeout;

use super::Run;
use super::connect::{Connection, connect};
use crate::payload;
use crate::report::{Outcome, Traffic};

/// Between a failed connect and the next one; the failure itself is counted, so nothing is hidden.
const RECONNECT: Duration = Duration::from_millis(20);

/// A request, a pause, a request, on one connection until the server or the run ends it.
pub(super) async fn keepalive(run: &Run) {
    while !run.is_stopped() {
        let Some(mut connection) = connect(run, Traffic::Keepalive).await else {
            run.pause(RECONNECT).await;
            continue;
        };
        while !run.is_stopped() {
            match connection.exchange(run, "/").await {
                Some(head) if !head.close => {}
                Some(_) | None => break,
            }
            if !connection
                .stays_quiet(run, Traffic::Keepalive, run.options.think())
                .await
            {
                break;
            }
        }
    }
}

/// A connection that says nothing from its first answer to the end of the run, and must still work then.
pub(super) async fn idle(run: &Run) {
    while !run.is_stopped() {
        let Some(mut connection) = connect(run, Traffic::Idle).await else {
            run.pause(RECONNECT).await;
            continue;
        };
        if connection
            .exchange(run, "/hold")
            .await
            .is_some_and(|head| !head.close)
            && connection
                .stays_quiet(run, Traffic::Idle, Duration::MAX)
                .await
        {
            connection.exchange(run, "/hold").await;
        }
    }
}

/// Downloads, one after the other.
pub(super) async fn download(run: &Run) {
    while !run.is_stopped() {
        let Some(mut connection) = connect(run, Traffic::Download).await else {
            run.pause(RECONNECT).await;
            continue;
        };
        let result = tokio::select! {
            result = connection.download(run) => result,
            () = run.stop() => {
                run.outcome(Traffic::Download, Outcome::Unfinished, run.clock.now_ms(), String::new);
                return;
            }
        };
        match result {
            Ok(()) => run.outcome(
                Traffic::Download,
                Outcome::Answered,
                run.clock.now_ms(),
                String::new,
            ),
            Err(error) => connection.failed(run, &error),
        }
    }
}

impl Connection {
    /// True when nothing came for this long, or until the run was over; anything else is counted.
    async fn stays_quiet(&mut self, run: &Run, traffic: Traffic, pause: Duration) -> bool {
        let heard = tokio::select! {
            heard = self.stream.fill_buf() => heard,
            () = run.pause(pause) => return true,
        };
        match heard {
            Ok([]) => run.outcome(
                traffic,
                Outcome::ClosedIdle,
                run.clock.now_ms(),
                String::new,
            ),
            Ok(_) => self.failed(
                run,
                &io::Error::new(io::ErrorKind::InvalidData, "bytes that nobody asked for"),
            ),
            Err(error) => self.failed(run, &error),
        }
        false
    }

    async fn download(&mut self, run: &Run) -> io::Result<()> {
        let options = &run.options;
        // Each download another stream: bytes of a neighbour's connection must not pass for one's own.
        let seed = u64::from(self.stream.get_ref().local_addr()?.port()) ^ run.clock.now_ms() << 16;
        let length = options.download_bytes;
        let target = format!("/bytes/{length}?seed={seed}&rate={}", options.download_rate);
        let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "no more bytes");
        let started = Instant::now();
        let head = timeout(options.answer_timeout(), self.ask_head(&target))
            .await
            .map_err(slow)??;
        if head.content_length != length {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong length"));
        }
        let mut buffer = vec![0; 64 * 1024];
        let mut at = 0;
        while at < length {
            let want = (length - at).min(buffer.len() as u64) as usize;
            let read = timeout(
                options.answer_timeout(),
                self.stream.read(&mut buffer[..want]),
            )
            .await
            .map_err(slow)??;
            if read == 0 {
                let text = format!(
                    "closed at byte {at} of {length} after {:?}",
                    started.elapsed()
                );
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            if !payload::matches(seed, at, &buffer[..read]) {
                let text = format!("wrong bytes after byte {at} of {length}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            at += read as u64;
        }
        Ok(())
    }
}
