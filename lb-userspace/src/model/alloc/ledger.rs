//! Who holds which address within one run, and who may join.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::desired::{ObjectName, Protocol, ServiceId};
use crate::model::alloc::{AllocError, Request};
use crate::model::context::{Reservation, Reserved};

/// Addresses taken so far.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    /// Only ever asked for one address: its order is nobody's business.
    held: HashMap<IpAddr, Held<'a>>,
    by_key: BTreeMap<&'a str, Vec<IpAddr>>,
    reserved: &'a Reserved,
}

#[derive(Debug)]
struct Held<'a> {
    first: &'a ObjectName,
    key: Option<&'a str>,
    ports: Vec<(Protocol, u16, &'a ObjectName)>,
}

impl<'a> Held<'a> {
    fn holder(&self, protocol: Protocol, number: u16) -> Option<&'a ObjectName> {
        let mut ports = self.ports.iter();
        let found = ports.find(|(p, n, _)| (*p, *n) == (protocol, number));
        found.map(|(_, _, holder)| *holder)
    }
}

impl<'a> Ledger<'a> {
    pub(super) fn new(reserved: &'a Reserved) -> Self {
        Self {
            held: HashMap::new(),
            by_key: BTreeMap::new(),
            reserved,
        }
    }

    /// Whether the Service may have the address, alone or with those who have it.
    pub(super) fn may(&self, address: IpAddr, request: &Request<'_>) -> Result<(), AllocError> {
        if let Some(reservation) = self.drains_for(address, request) {
            let by = match &reservation.by {
                Some(name) => format!("Service {name}"),
                None => "an earlier Service".to_owned(),
            };
            return Err(AllocError::Draining { address, by });
        }
        let Some(held) = self.held.get(&address) else {
            return Ok(());
        };
        for port in &request.settings.ports {
            if let Some(by) = held.holder(port.protocol, port.number) {
                let (port, protocol) = (port.number, port.protocol);
                return Err(AllocError::PortTaken {
                    address,
                    port,
                    protocol,
                    by: by.clone(),
                });
            }
        }
        if held.key.is_some() && held.key == request.settings.shared_key.as_deref() {
            Ok(())
        } else {
            Err(AllocError::Taken {
                address,
                by: held.first.clone(),
            })
        }
    }

    pub(super) fn is_free(&self, address: IpAddr, request: &Request<'_>) -> bool {
        !self.held.contains_key(&address) && self.drains_for(address, request).is_none()
    }

    fn drains_for(&self, address: IpAddr, request: &Request<'_>) -> Option<&Reservation> {
        let reservation = self.reserved.get(&address)?;
        let own = ServiceId::of(&request.service.name);
        (!reservation.services.contains(&own)).then_some(reservation)
    }

    /// Writes the Service down as a holder; whether it may was asked before.
    pub(super) fn take(&mut self, address: IpAddr, request: &Request<'a>) {
        let name = &request.service.name;
        let key = request.settings.shared_key.as_deref();
        let ports = &request.settings.ports;
        if let Some(held) = self.held.get_mut(&address) {
            for port in ports {
                if held.holder(port.protocol, port.number).is_none() {
                    held.ports.push((port.protocol, port.number, name));
                }
            }
            return;
        }
        if let Some(key) = key {
            self.by_key.entry(key).or_default().push(address);
        }
        let ports = ports.iter().map(|p| (p.protocol, p.number, name)).collect();
        self.held.insert(
            address,
            Held {
                first: name,
                key,
                ports,
            },
        );
    }

    /// Addresses whose holders share under the key, in the order they were taken.
    pub(super) fn of_key(&self, key: Option<&str>) -> Vec<IpAddr> {
        key.and_then(|key| self.by_key.get(key))
            .cloned()
            .unwrap_or_default()
    }
}
