//! A life as it survives the agent: plain data, and its form in the pinned map `drains`.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use lb_common::V4;
use lb_common::abi::{
    self, DRAIN_CAPPED, DRAIN_FORGOTTEN, DRAIN_LOCAL, DRAIN_SEEN_GONE, DRAIN_SELECTED,
    DRAIN_SERVING, DRAIN_TERMINATING, DrainKey, DrainState, DrainValue,
};
use thiserror::Error;

use crate::desired::{EndpointState, FrontendKey, Protocol, ServiceId, Via};

use super::effect::{Cause, EndpointRef, PodId};
use super::track::{Listing, Track};

/// Why a record has no place in the map, or a map entry is no record.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RecordError {
    /// The map holds IPv4 only.
    #[error("{0} is no IPv4 address")]
    NotV4(IpAddr),
    /// Neither 6 nor 17.
    #[error("protocol {0} in map `drains`; expected 6 or 17")]
    Protocol(u8),
    /// Not a state this release knows.
    #[error("state {0} in map `drains`")]
    State(u8),
}

/// What must survive of one life. Opaque but for what the agent decides by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrainRecord {
    /// Whose.
    pub endpoint: EndpointRef,
    /// Its state.
    pub state: EndpointState,
    /// When it was first seen terminating or vanished; else when the state began.
    pub since: Duration,
    /// When it becomes `Gone`; when it did, once it is.
    pub deadline: Option<Duration>,
    vanished: Option<Duration>,
    pub(super) service: Option<ServiceId>,
    uid: Option<PodId>,
    cap: Option<Duration>,
    flags: u8,
}

impl EndpointRef {
    /// Key in map `drains`.
    pub fn to_map(self) -> Result<DrainKey<V4>, RecordError> {
        let Self {
            frontend,
            address,
            incarnation,
        } = self;
        Ok(DrainKey {
            frontend: abi::FrontendKey {
                address: v4(frontend.address)?,
                port: frontend.port,
                protocol: frontend.protocol.number(),
                zero: 0,
            },
            address: v4(address.ip())?,
            port: address.port(),
            zero: 0,
            incarnation,
        })
    }
}

impl DrainRecord {
    /// An endpoint known only from the kernel's `endpoints` map (its own record did not fit,
    /// or was never written): as if active since `now`, of an unknown pod.
    pub fn of_unrecorded(endpoint: EndpointRef, via: Via, now: Duration) -> Self {
        let local = match via {
            Via::Local => DRAIN_LOCAL,
            Via::Nat => 0,
        };
        Self {
            endpoint,
            state: EndpointState::Active,
            since: now,
            deadline: None,
            vanished: None,
            service: None,
            uid: None,
            cap: None,
            flags: DRAIN_SERVING | DRAIN_SELECTED | local,
        }
    }

    /// Loses something that matters if it is not pinned: anything but a healthy endpoint. When
    /// map `drains` is short of room these go first.
    pub fn is_draining(&self) -> bool {
        match self.state {
            EndpointState::Active | EndpointState::Unready => self.flags & DRAIN_TERMINATING != 0,
            EndpointState::Draining | EndpointState::Gone => true,
        }
    }

    /// Key and value in map `drains`.
    pub fn to_map(&self) -> Result<(DrainKey<V4>, DrainValue), RecordError> {
        let key = self.endpoint.to_map()?;
        let cap_ms = self
            .cap
            .map(|cap| u32::try_from(cap.as_millis()).unwrap_or(u32::MAX));
        let value = DrainValue {
            since: nanos(self.since),
            deadline: self.deadline.map_or(0, nanos),
            vanished: self.vanished.map_or(0, nanos),
            uid: self.uid.map_or(0, PodId::raw),
            service: self.service.map_or(0, ServiceId::raw),
            cap_ms: cap_ms.unwrap_or(0),
            state: match self.state {
                EndpointState::Active => DrainState::Active,
                EndpointState::Unready => DrainState::Unready,
                EndpointState::Draining => DrainState::Draining,
                EndpointState::Gone => DrainState::Gone,
            } as u8,
            flags: self.flags | if cap_ms.is_some() { DRAIN_CAPPED } else { 0 },
            zero: 0,
        };
        Ok((key, value))
    }

    /// From map `drains`.
    pub fn from_map(key: &DrainKey<V4>, value: &DrainValue) -> Result<Self, RecordError> {
        let protocol = match key.frontend.protocol {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            other => return Err(RecordError::Protocol(other)),
        };
        let state = match DrainState::from_u8(value.state) {
            DrainState::Active => EndpointState::Active,
            DrainState::Unready => EndpointState::Unready,
            DrainState::Draining => EndpointState::Draining,
            DrainState::Gone => EndpointState::Gone,
            DrainState::Unknown => return Err(RecordError::State(value.state)),
        };
        let capped = value.flags & DRAIN_CAPPED != 0;
        Ok(Self {
            endpoint: EndpointRef {
                frontend: FrontendKey {
                    address: IpAddr::V4(key.frontend.address.into()),
                    port: key.frontend.port,
                    protocol,
                },
                address: SocketAddr::V4(SocketAddrV4::new(key.address.into(), key.port)),
                incarnation: key.incarnation,
            },
            state,
            since: Duration::from_nanos(value.since),
            deadline: time(value.deadline),
            vanished: time(value.vanished),
            uid: PodId::from_raw(value.uid),
            service: ServiceId::from_raw(value.service),
            cap: capped.then(|| Duration::from_millis(u64::from(value.cap_ms))),
            flags: value.flags & !DRAIN_CAPPED,
        })
    }

    pub(super) fn of(endpoint: EndpointRef, service: Option<ServiceId>, track: &Track) -> Self {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let Listing {
            ready: _,
            serving,
            terminating,
            selected,
            local,
        } = track.listing;
        Self {
            endpoint,
            state: track.state,
            since: track.anchor.unwrap_or(track.entered),
            deadline: if track.gone() {
                Some(track.entered)
            } else {
                track.deadline
            },
            vanished: track.vanished,
            service,
            uid: track.uid,
            cap: track.cap,
            flags: bit(terminating, DRAIN_TERMINATING)
                | bit(serving, DRAIN_SERVING)
                | bit(selected, DRAIN_SELECTED)
                | bit(local, DRAIN_LOCAL)
                | bit(track.seen_gone, DRAIN_SEEN_GONE)
                | bit(track.forgotten, DRAIN_FORGOTTEN),
        }
    }

    /// The life this record tells of. A clock that reads less than the record's does not
    /// happen on one boot; if it does, the time away counts as none.
    pub(super) fn track(&self, now: Duration) -> Track {
        let flag = |bit: u8| self.flags & bit != 0;
        let since = self.since.min(now);
        let anchored = flag(DRAIN_TERMINATING) || self.vanished.is_some();
        let gone = self.state == EndpointState::Gone;
        Track {
            incarnation: self.endpoint.incarnation,
            uid: self.uid,
            listing: Listing {
                ready: self.state == EndpointState::Active,
                serving: flag(DRAIN_SERVING),
                terminating: flag(DRAIN_TERMINATING),
                selected: flag(DRAIN_SELECTED),
                local: flag(DRAIN_LOCAL),
            },
            vanished: self.vanished.map(|at| at.min(now)),
            anchor: anchored.then_some(since),
            cap: self.cap,
            seen_gone: flag(DRAIN_SEEN_GONE),
            forgotten: flag(DRAIN_FORGOTTEN),
            generation: 0,
            state: self.state,
            cause: Cause::Restored,
            entered: if gone {
                self.deadline.unwrap_or(since).min(now)
            } else {
                since
            },
            deadline: self.deadline.filter(|_| !gone),
        }
    }
}

fn v4(address: IpAddr) -> Result<V4, RecordError> {
    match address {
        IpAddr::V4(v4) => Ok(v4.into()),
        IpAddr::V6(_) => Err(RecordError::NotV4(address)),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(nanos: u64) -> Option<Duration> {
    (nanos != 0).then(|| Duration::from_nanos(nanos))
}
