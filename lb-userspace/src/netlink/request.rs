//! One blocking rtnetlink request at a time: send, then read until the kernel says it is done.
//!
//! Answers are small and come from the kernel at once, so blocking costs microseconds; a socket
//! per request keeps callers in other network namespaces (tests) honest.

use std::io;

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::NetlinkError;

/// All objects of a kind.
pub(super) fn dump(
    what: &'static str,
    message: RouteNetlinkMessage,
) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
    exchange(what, message, NLM_F_DUMP)
}

/// One object.
pub(super) fn one(
    what: &'static str,
    message: RouteNetlinkMessage,
) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
    exchange(what, message, NLM_F_ACK)
}

/// A change; `flags` are added to the request's.
pub(super) fn change(
    what: &'static str,
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<(), NetlinkError> {
    exchange(what, message, NLM_F_ACK | flags).map(|_| ())
}

fn exchange(
    what: &'static str,
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;

    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = 1;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if read(what, &datagram, &mut answers)? == Progress::Done {
            return Ok(answers);
        }
    }
}

#[derive(Eq, PartialEq)]
enum Progress {
    More,
    Done,
}

fn read(
    what: &'static str,
    mut datagram: &[u8],
    answers: &mut Vec<RouteNetlinkMessage>,
) -> Result<Progress, NetlinkError> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
            .map_err(|error| NetlinkError::Unreadable(error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => answers.push(inner),
            NetlinkPayload::Done(_) => return Ok(Progress::Done),
            NetlinkPayload::Error(error) if error.code.is_none() => return Ok(Progress::Done),
            NetlinkPayload::Error(error) => {
                let source = io::Error::from_raw_os_error(-error.raw_code());
                return Err(NetlinkError::Refused { what, source });
            }
            NetlinkPayload::Overrun(_) => {
                return Err(NetlinkError::Unreadable(
                    "more than the socket could hold".to_owned(),
                ));
            }
            _ => {}
        }
        let length = (message.header.length as usize).next_multiple_of(4).max(16);
        datagram = datagram.get(length..).unwrap_or_default();
    }
    Ok(Progress::More)
}
