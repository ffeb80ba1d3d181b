//! Interfaces: what the data plane must know of them, and how a name's fate is followed.
//!
//! An interface is known by its name in flags and manifests and by its index in the kernel. The
//! same name with another index is another interface: what was attached to the old one is gone.

use std::collections::BTreeMap;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp,
    XdpAttached as KernelAttached,
};

use super::{NetlinkError, request};

/// What of an interface matters to checksums and XDP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkKind {
    /// One end of a veth pair.
    Veth,
    /// A virtio network device.
    Virtio,
    /// TUN or TAP.
    Tap,
    /// A bridge.
    Bridge,
    /// Anything else; checksums are complete there.
    Other,
}

impl LinkKind {
    /// True where frames may carry checksums that nobody has finished.
    pub fn leaves_checksums_open(self) -> bool {
        match self {
            Self::Veth | Self::Virtio | Self::Tap | Self::Bridge => true,
            Self::Other => false,
        }
    }
}

/// An XDP program on an interface, ours or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct XdpAttached {
    /// Program id.
    pub program: u32,
    /// True for generic XDP (on socket buffers).
    pub generic: bool,
}

/// An interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Hardware address, where it is an Ethernet one.
    pub mac: Option<[u8; 6]>,
    /// Largest packet.
    pub mtu: u32,
    /// What it is.
    pub kind: LinkKind,
    /// Administratively up, with carrier.
    pub up: bool,
    /// Its bridge (or bond), if it is a port of one.
    pub controller: Option<u32>,
    /// The XDP program on it.
    pub xdp: Option<XdpAttached>,
}

/// The interface with this name.
pub fn link_by_name(name: &str) -> Result<Link, NetlinkError> {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    let no_link = || NetlinkError::NoLink {
        name: name.to_owned(),
    };
    match request::one("read an interface", RouteNetlinkMessage::GetLink(message)) {
        Ok(answers) => answers.iter().find_map(from_message).ok_or_else(no_link),
        Err(error)
            if matches!(
                error.errno(),
                Some(libc::ENODEV | libc::EINVAL | libc::ERANGE | libc::ENAMETOOLONG)
            ) =>
        {
            Err(no_link())
        }
        Err(error) => Err(error),
    }
}

/// All interfaces of this network namespace.
pub fn links() -> Result<Vec<Link>, NetlinkError> {
    let answers = request::dump(
        "list interfaces",
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
    )?;
    Ok(answers.iter().filter_map(from_message).collect())
}

fn from_message(message: &RouteNetlinkMessage) -> Option<Link> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Link::parse(link),
        _ => None,
    }
}

impl Link {
    /// From the kernel's message; `None` when it has no name.
    pub(super) fn parse(message: &LinkMessage) -> Option<Self> {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            mac: None,
            mtu: 0,
            kind: LinkKind::Other,
            up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            controller: None,
            xdp: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(address) => {
                    link.mac = address.as_slice().try_into().ok();
                }
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Controller(index) => link.controller = Some(*index),
                LinkAttribute::ParentDevBusName(bus) if bus == "virtio" => {
                    link.kind = LinkKind::Virtio;
                }
                LinkAttribute::LinkInfo(infos) => {
                    if let Some(kind) = infos.iter().find_map(kind_of) {
                        link.kind = kind;
                    }
                }
                LinkAttribute::Xdp(xdp) => link.xdp = xdp_of(xdp),
                _ => {}
            }
        }
        (!link.name.is_empty()).then_some(link)
    }
}

fn kind_of(info: &LinkInfo) -> Option<LinkKind> {
    match info {
        LinkInfo::Kind(InfoKind::Veth) => Some(LinkKind::Veth),
        LinkInfo::Kind(InfoKind::Tun) => Some(LinkKind::Tap),
        LinkInfo::Kind(InfoKind::Bridge) => Some(LinkKind::Bridge),
        _ => None,
    }
}

fn xdp_of(attributes: &[LinkXdp]) -> Option<XdpAttached> {
    let program = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id)
        | LinkXdp::DrvProgId(id)
        | LinkXdp::SkbProgId(id)
        | LinkXdp::HwProgId(id) => Some(*id),
        _ => None,
    })?;
    let generic = attributes
        .iter()
        .any(|attribute| matches!(attribute, LinkXdp::Attached(KernelAttached::SocketBuffer)));
    Some(XdpAttached { program, generic })
}

/// What happened to a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LinkChange {
    /// It was not there before.
    Appeared(Link),
    /// It is another interface now.
    Recreated {
        /// Index of the one that is gone.
        old_index: u32,
        /// The new one.
        link: Link,
    },
    /// The same interface, with another hardware address, MTU, state or program.
    Changed {
        /// As it was.
        old: Link,
        /// As it is.
        link: Link,
    },
    /// It is gone.
    Vanished(Link),
}

/// Interfaces by name, as the kernel last told; turns messages into changes.
#[derive(Clone, Debug, Default)]
pub struct Links {
    by_name: BTreeMap<String, Link>,
}

impl Links {
    /// The interface of this name.
    pub fn by_name(&self, name: &str) -> Option<&Link> {
        self.by_name.get(name)
    }

    /// The interface with this index.
    pub fn by_index(&self, index: u32) -> Option<&Link> {
        self.by_name.values().find(|link| link.index == index)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.by_name.values()
    }

    /// Takes in a new or changed interface.
    pub fn insert(&mut self, link: Link) -> Option<LinkChange> {
        let renamed = self
            .by_name
            .iter()
            .find(|(name, known)| known.index == link.index && **name != link.name)
            .map(|(name, _)| name.clone());
        if let Some(name) = renamed {
            self.by_name.remove(&name);
        }
        match self.by_name.insert(link.name.clone(), link.clone()) {
            None => Some(LinkChange::Appeared(link)),
            Some(old) if old.index != link.index => Some(LinkChange::Recreated {
                old_index: old.index,
                link,
            }),
            Some(old) if old != link => Some(LinkChange::Changed { old, link }),
            Some(_) => None,
        }
    }

    /// Lets go of the interface with this index.
    pub fn remove(&mut self, index: u32) -> Option<LinkChange> {
        let name = self.by_index(index)?.name.clone();
        self.by_name.remove(&name).map(LinkChange::Vanished)
    }

    /// Brings the list to `now`, after messages were lost.
    pub fn replace(&mut self, now: Vec<Link>) -> Vec<LinkChange> {
        let gone: Vec<u32> = self
            .by_name
            .values()
            .filter(|known| !now.iter().any(|link| link.name == known.name))
            .map(|link| link.index)
            .collect();
        let mut changes: Vec<_> = gone
            .into_iter()
            .filter_map(|index| self.remove(index))
            .collect();
        changes.extend(now.into_iter().filter_map(|link| self.insert(link)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, index: u32) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            kind: LinkKind::Veth,
            up: true,
            controller: None,
            xdp: None,
        }
    }

    #[test]
    fn a_name_with_another_index_is_another_interface() {
        let mut links = Links::default();
        assert_eq!(
            links.insert(link("up", 3)),
            Some(LinkChange::Appeared(link("up", 3)))
        );
        assert_eq!(links.insert(link("up", 3)), None);
        let change = links.insert(link("up", 7));
        assert_eq!(
            change,
            Some(LinkChange::Recreated {
                old_index: 3,
                link: link("up", 7)
            })
        );
        // The old one's farewell comes late: it must not take the new one away.
        assert_eq!(links.remove(3), None);
        assert_eq!(links.remove(7), Some(LinkChange::Vanished(link("up", 7))));
    }

    #[test]
    fn a_resync_reports_only_what_differs() {
        let mut links = Links::default();
        links.insert(link("a", 1));
        links.insert(link("b", 2));
        let mut down = link("b", 2);
        down.up = false;
        let changes = links.replace(vec![down.clone(), link("c", 3)]);
        assert_eq!(
            changes,
            [
                LinkChange::Vanished(link("a", 1)),
                LinkChange::Changed {
                    old: link("b", 2),
                    link: down
                },
                LinkChange::Appeared(link("c", 3)),
            ]
        );
    }

    #[test]
    fn loopback_is_there_and_nonsense_is_not() {
        let lo = link_by_name("lo").expect("loopback");
        assert_eq!((lo.name.as_str(), lo.kind), ("lo", LinkKind::Other));
        let error = link_by_name("no-such-link").expect_err("does not exist");
        assert!(error.to_string().contains("no-such-link"), "{error}");
        assert!(links().expect("list").contains(&lo));
    }
}
