//! Which interfaces have an XDP program, as the kernel tells it (rtnetlink, IFLA_XDP).
//!
//! Read without the agent, so that `sluice status` is right also when the agent is gone.

use std::io;

use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage, LinkXdp, XdpAttached};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use thiserror::Error;

/// Why interfaces cannot be listed.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The netlink socket failed.
    #[error("cannot list interfaces: {0}")]
    Socket(#[from] io::Error),
    /// The answer made no sense.
    #[error("cannot read the list of interfaces: {0}")]
    Answer(String),
}

/// An interface with an XDP program, ours or not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct XdpLink {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// `native`, `generic`, `offload` or `several`.
    pub mode: &'static str,
    /// The program's id.
    pub program: u32,
}

/// All interfaces of this network namespace that have an XDP program.
pub fn xdp_links() -> Result<Vec<XdpLink>, LinkError> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let payload = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut request = NetlinkMessage::from(payload);
    request.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut links = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| LinkError::Answer(error.to_string()))?;
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(links),
                NetlinkPayload::Error(error) => return Err(LinkError::Socket(error.to_io())),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    links.extend(xdp(&link));
                }
                NetlinkPayload::Noop | NetlinkPayload::InnerMessage(_) | _ => {}
            }
        }
    }
}

fn xdp(link: &LinkMessage) -> Option<XdpLink> {
    let mut name = String::new();
    let (mut mode, mut program) = (None, None);
    for attribute in &link.attributes {
        if let LinkAttribute::IfName(value) = attribute {
            name.clone_from(value);
        }
        let LinkAttribute::Xdp(parts) = attribute else {
            continue;
        };
        for part in parts {
            if let LinkXdp::Attached(attached) = part {
                mode = mode_name(*attached);
            } else if let LinkXdp::ProgId(id) = part {
                program = Some(*id);
            }
        }
    }
    Some(XdpLink {
        name,
        ifindex: link.header.index,
        mode: mode?,
        program: program.unwrap_or(0),
    })
}

fn mode_name(attached: XdpAttached) -> Option<&'static str> {
    match attached {
        XdpAttached::Driver => Some("native"),
        XdpAttached::SocketBuffer => Some("generic"),
        XdpAttached::Hardware => Some("offload"),
        XdpAttached::Multiple => Some("several"),
        XdpAttached::None | XdpAttached::Other(_) | _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interfaces_with_a_program_are_named() {
        let mut link = LinkMessage::default();
        link.header.index = 7;
        link.attributes.push(LinkAttribute::IfName("eth0".into()));
        let none = LinkAttribute::Xdp(vec![LinkXdp::Attached(XdpAttached::None)]);
        link.attributes.push(none);
        assert_eq!(xdp(&link), None);
        let generic = vec![
            LinkXdp::Attached(XdpAttached::SocketBuffer),
            LinkXdp::ProgId(42),
        ];
        link.attributes.push(LinkAttribute::Xdp(generic));
        let name = "eth0".to_owned();
        assert_eq!(
            xdp(&link),
            Some(XdpLink {
                name,
                ifindex: 7,
                mode: "generic",
                program: 42
            })
        );
    }

    #[test]
    fn this_machine_can_be_listed() {
        xdp_links().expect("needs no rights");
    }
}
