//! Who holds which address within one run, and who may join.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::desired::{ObjectName, Protocol};
use crate::model::alloc::{AllocError, Request};

/// Addresses taken so far.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    held: BTreeMap<IpAddr, Held>,
    by_key: BTreeMap<String, Vec<IpAddr>>,
    reserved: &'a BTreeMap<IpAddr, ObjectName>,
}

#[derive(Debug)]
struct Held {
    first: ObjectName,
    key: Option<String>,
    ports: BTreeMap<(Protocol, u16), ObjectName>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(reserved: &'a BTreeMap<IpAddr, ObjectName>) -> Self {
        Self {
            held: BTreeMap::new(),
            by_key: BTreeMap::new(),
            reserved,
        }
    }

    /// Whether the Service may have the address, alone or with those who have it.
    pub(super) fn may(&self, address: IpAddr, request: &Request<'_>) -> Result<(), AllocError> {
        if let Some(by) = self.drains_for(address, request) {
            return Err(AllocError::Draining {
                address,
                by: by.clone(),
            });
        }
        let Some(held) = self.held.get(&address) else {
            return Ok(());
        };
        for port in &request.settings.ports {
            if let Some(by) = held.ports.get(&(port.protocol, port.number)) {
                let (port, protocol) = (port.number, port.protocol);
                return Err(AllocError::PortTaken {
                    address,
                    port,
                    protocol,
                    by: by.clone(),
                });
            }
        }
        if held.key.is_some() && held.key == request.settings.shared_key {
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

    fn drains_for(&self, address: IpAddr, request: &Request<'_>) -> Option<&ObjectName> {
        self.reserved
            .get(&address)
            .filter(|by| **by != request.service.name)
    }

    /// Writes the Service down as a holder; whether it may was asked before.
    pub(super) fn take(&mut self, address: IpAddr, request: &Request<'_>) {
        let name = &request.service.name;
        let key = request.settings.shared_key.clone();
        let held = self.held.entry(address).or_insert_with(|| {
            if let Some(key) = &key {
                self.by_key.entry(key.clone()).or_default().push(address);
            }
            Held {
                first: name.clone(),
                key,
                ports: BTreeMap::new(),
            }
        });
        for port in &request.settings.ports {
            held.ports
                .entry((port.protocol, port.number))
                .or_insert_with(|| name.clone());
        }
    }

    /// Addresses whose holders share under the key, in the order they were taken.
    pub(super) fn of_key(&self, key: Option<&str>) -> Vec<IpAddr> {
        key.and_then(|key| self.by_key.get(key))
            .cloned()
            .unwrap_or_default()
    }
}
