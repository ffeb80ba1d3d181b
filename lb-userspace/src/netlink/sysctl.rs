//! The one switch of the node's stack that Sluice needs: no ICMP redirects out of the uplink.
//!
//! A node that forwards a steered packet back out of the interface it came in by tells the client
//! a pod's address in a redirect. The kernel obeys `all` *or* the interface, so both must be 0.
//! Container runtimes mount `/proc/sys` read-only: that is reported, and not fatal.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A switch that could not be set.
#[derive(Debug, Error)]
#[error("cannot set {path} to 0: {source}; clients may be told pod addresses in ICMP redirects", path = .path.display())]
pub struct SysctlError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Sets `send_redirects` to 0 for an interface of this thread's namespace, or for `all`.
pub fn disable_send_redirects(name: &str) -> Result<(), SysctlError> {
    let path: PathBuf = ["/proc/sys/net/ipv4/conf", name, "send_redirects"]
        .iter()
        .collect();
    let fail = |source| SysctlError {
        path: path.clone(),
        source,
    };
    // A read-only /proc/sys does not matter where the switch is off already.
    if std::fs::read_to_string(&path).map_err(fail)?.trim() == "0" {
        return Ok(());
    }
    std::fs::write(&path, "0").map_err(fail)
}
