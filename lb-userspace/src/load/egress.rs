//! The egress program: on every interface by which a reply may leave, by a pinned TCX link.
//!
//! It comes first of its chain: another program that ends the chain would keep it from ever
//! running, while it lets the others decide after it. They then see the VIP as the source.

use aya::programs::TcAttachType;
use aya::programs::links::{FdLink, LinkOrder, PinnedLink};
use aya::programs::tc::TcAttachOptions;

use super::{Attachment, Datapath, LoadError, Mode, program, sys};
use crate::netlink::link_by_name;

impl Datapath {
    /// Attaches the egress program, or replaces the one that an earlier agent attached.
    pub fn attach_egress(&mut self, interface: &str) -> Result<&Attachment, LoadError> {
        let link = link_by_name(interface)?;
        let pin = self.pins.egress(interface);
        let pin_error = |source| LoadError::Link {
            path: pin.clone(),
            source,
        };
        let mut ebpf = self.instance(&link, Mode::Native)?;
        let program = program::classifier(&mut ebpf, program::EGRESS)?;
        let program_id = self.identify(interface, program)?;

        let pinned = sys::pinned_link(&pin).map_err(LoadError::io(&pin))?;
        if pinned.is_some_and(|pinned| pinned.ifindex == link.index) {
            let old = PinnedLink::from_pin(&pin).map_err(pin_error)?;
            let old = FdLink::from(old).try_into().map_err(pin_error)?;
            let id = program
                .attach_to_link(old)
                .map_err(LoadError::program("replace the egress program"))?;
            // Closes the descriptor; the pin keeps the link.
            drop(
                program
                    .take_link(id)
                    .map_err(LoadError::program("take the egress link"))?,
            );
        } else {
            if pinned.is_some() {
                sys::remove_link(&pin).map_err(LoadError::io(&pin))?;
            }
            let first = TcAttachOptions::TcxOrder(LinkOrder::first());
            let id = program
                .attach_with_options(interface, TcAttachType::Egress, first)
                .map_err(LoadError::program("attach the egress program"))?;
            let attached = program
                .take_link(id)
                .map_err(LoadError::program("take the egress link"))?;
            let attached = FdLink::try_from(attached).map_err(pin_error)?;
            attached.pin(&pin).map_err(|source| LoadError::Pin {
                path: pin.clone(),
                source,
            })?;
        }

        let attachment = self
            .attached
            .entry(interface.to_owned())
            .and_modify(|attachment| attachment.link = link.clone())
            .or_insert_with(|| Attachment::new(link));
        attachment.egress_program = Some(program_id);
        Ok(attachment)
    }
}
