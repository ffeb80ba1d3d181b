//! One interface that we are to be attached to, through absence, return and change.
//!
//! A failure is kept and tried again; a program of somebody else is never removed.

use std::net::Ipv4Addr;

use nix::ifaddrs::getifaddrs;

use crate::load::{Attachment, Datapath, XdpMode};
use crate::netlink::{Link, disable_send_redirects};

/// An interface's standing.
#[derive(Clone, Debug, Default)]
pub(super) struct Uplink {
    /// What is attached.
    pub(super) attachment: Option<Attachment>,
    /// Why nothing is, or what went wrong last.
    pub(super) error: Option<String>,
    /// Its first IPv4 address.
    pub(super) address: Option<Ipv4Addr>,
    seen: Option<(u32, Option<[u8; 6]>)>,
}

impl Uplink {
    /// Follows the interface to what it is now; true when a program was attached or replaced.
    pub(super) fn follow(
        &mut self,
        link: Option<&Link>,
        datapath: &mut Datapath,
        mode: XdpMode,
    ) -> bool {
        let Some(link) = link else {
            self.seen = None;
            self.attachment = None;
            self.error = Some("there is no such interface; waiting for it".to_owned());
            return false;
        };
        self.address = first_address(&link.name);
        let identity = (link.index, link.mac);
        if self.seen == Some(identity) && self.error.is_none() {
            return false;
        }
        let attached = datapath
            .attach(&link.name, mode)
            .map(|_| ())
            .and_then(|()| datapath.attach_egress(&link.name).cloned());
        self.seen = Some(identity);
        match attached {
            Ok(attachment) => {
                keep_quiet(&link.name);
                if let Some(note) = &attachment.note {
                    tracing::warn!(interface = %link.name, note, "attached");
                } else {
                    tracing::info!(interface = %link.name, mode = ?attachment.mode, "attached");
                }
                self.attachment = Some(attachment);
                self.error = None;
                true
            }
            Err(error) => {
                let error = error.to_string();
                if self.error.as_ref() != Some(&error) {
                    tracing::error!(interface = %link.name, %error, "cannot attach");
                }
                self.error = Some(error);
                false
            }
        }
    }

    /// What was attached is not there as it was; [`Self::follow`] attaches again.
    pub(super) fn lost(&mut self, why: &str) {
        if self.attachment.is_some() {
            self.error = Some(why.to_owned());
        }
    }

    /// True when the interface is there and attaching to it failed.
    pub(super) fn wants_retry(&self) -> bool {
        self.seen.is_some() && self.error.is_some()
    }
}

/// Keeps the kernel from naming pods in redirects that leave by this interface, or by `all`. An
/// interface that comes back comes with its switch on.
pub(super) fn keep_quiet(interface: &str) {
    if let Err(problem) = disable_send_redirects(interface) {
        tracing::warn!(path = %problem.path.display(), error = %problem.source,
            "cannot be switched off: the kernel may tell clients of pods");
    }
}

fn first_address(interface: &str) -> Option<Ipv4Addr> {
    getifaddrs().ok()?.find_map(|entry| {
        let of_this = entry.interface_name == interface;
        let address = entry.address.as_ref()?.as_sockaddr_in()?.ip();
        of_this.then_some(address)
    })
}
