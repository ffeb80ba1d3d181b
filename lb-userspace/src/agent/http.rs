//! The agent's HTTP side: what `/healthz` depends on, and nothing else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;

use super::{Agent, boot_clock};
use crate::observe::http::{HttpState, serve};

/// A loop that has not turned for this long is stuck.
const STUCK: Duration = Duration::from_secs(30);

impl Agent {
    pub(super) async fn serve_http(
        &self,
    ) -> anyhow::Result<tokio::task::JoinHandle<io::Result<()>>> {
        let address = self.settings.metrics_address;
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("listening on {address} (--metrics-address)"))?;
        let turned = Arc::clone(&self.turned);
        let state = HttpState {
            snapshot: self.snapshots.subscribe(),
            metrics: Arc::clone(&self.metrics),
            alive: Arc::new(move || {
                let last = Duration::from_secs(turned.load(Ordering::Relaxed));
                let age = boot_clock().saturating_sub(last);
                if age > STUCK {
                    return Err(format!("the loop has not turned for {} s", age.as_secs()));
                }
                Ok(())
            }),
        };
        Ok(tokio::spawn(serve(listener, state, std::future::pending())))
    }
}
