//! What was given before, as it is kept over a restart.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::desired::ObjectName;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// Addresses per Service.
///
/// As JSON: `{"version":1,"services":{"shop/web":["192.0.2.10"]}}`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Allocations {
    services: BTreeMap<ObjectName, Vec<IpAddr>>,
}

/// Why a prior cannot be read.
#[derive(Debug, Error)]
pub enum PriorError {
    /// Not the JSON we wrote.
    #[error("allocations cannot be parsed: {0}")]
    Json(#[from] serde_json::Error),
    /// From another version of Sluice.
    #[error("allocations have version {0}: expected {VERSION}")]
    Version(u32),
    /// Not `namespace/name`.
    #[error("allocations name Service {0:?}: expected namespace/name")]
    Name(String),
}

#[derive(Deserialize, Serialize)]
struct Form {
    version: u32,
    services: BTreeMap<String, Vec<IpAddr>>,
}

impl Allocations {
    /// Takes over what was given.
    pub fn new(services: BTreeMap<ObjectName, Vec<IpAddr>>) -> Self {
        Self { services }
    }

    /// Addresses of one Service.
    pub fn of(&self, service: &ObjectName) -> &[IpAddr] {
        self.services.get(service).map_or(&[], Vec::as_slice)
    }

    /// All of them.
    pub fn services(&self) -> &BTreeMap<ObjectName, Vec<IpAddr>> {
        &self.services
    }

    /// Reads the JSON form.
    pub fn from_json(text: &str) -> Result<Self, PriorError> {
        let form: Form = serde_json::from_str(text)?;
        if form.version != VERSION {
            return Err(PriorError::Version(form.version));
        }
        let mut services = BTreeMap::new();
        for (name, addresses) in form.services {
            let Some((namespace, short)) = name.split_once('/') else {
                return Err(PriorError::Name(name));
            };
            let name = ObjectName {
                namespace: namespace.to_owned(),
                name: short.to_owned(),
            };
            services.insert(name, addresses);
        }
        Ok(Self { services })
    }

    /// Writes the JSON form; equal allocations give equal text.
    pub fn to_json(&self) -> String {
        let services = self
            .services
            .iter()
            .map(|(name, a)| (name.to_string(), a.clone()));
        let form = Form {
            version: VERSION,
            services: services.collect(),
        };
        serde_json::to_string(&form).unwrap_or_default()
    }
}
