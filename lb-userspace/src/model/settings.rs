//! What a Service asks for, checked: ports, policy, affinity, ranges, addresses.
//!
//! One bad field costs that field, never the Service; each is named with what was expected.
//! A filter that cannot be read never becomes "no filter".

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use thiserror::Error;

use crate::desired::{Policy, Protocol};
use crate::model::annotation::{self, AnnotationError};
use crate::model::context::Context;
use crate::model::{Family, merge};
use crate::watch::object::Service;

/// `sessionAffinityConfig.clientIP.timeoutSeconds` when absent.
const AFFINITY_TIMEOUT: u32 = 10_800;
/// Its largest value.
const AFFINITY_TIMEOUT_MAX: u32 = 86_400;

/// One good port of a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) number: u16,
    pub(super) protocol: Protocol,
}

/// Which clients may connect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Clients {
    All,
    Within(Vec<IpNet>),
    /// Ranges were given and none can be read.
    Nobody,
}

/// The addresses a Service wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    /// These, by annotation or `loadBalancerIP`.
    These(Vec<IpAddr>),
    /// Any, of these families; empty when the Service does not say.
    Any(Vec<Family>),
    /// It asked for something unreadable: giving it another address would be wrong.
    Unreadable,
}

/// A Service of ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Settings {
    pub(super) ports: Vec<Port>,
    pub(super) policy: Policy,
    pub(super) affinity: Option<Duration>,
    pub(super) clients: Clients,
    pub(super) drain_timeout: Option<Duration>,
    pub(super) wanted: Wanted,
    pub(super) pool: Option<String>,
    pub(super) shared_key: Option<String>,
    /// VIP-mode addresses of the status; `None` when the status has no entry at all.
    pub(super) published: Option<Vec<IpAddr>>,
    pub(super) problems: Vec<SettingError>,
}

/// A field that cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum SettingError {
    /// No ports.
    #[error("spec.ports is empty: expected at least one port")]
    NoPorts,
    /// Not a port number.
    #[error("spec.ports[{index}].port is {port}: expected 1-65535")]
    Port {
        /// Place in the list.
        index: usize,
        /// What it says.
        port: i32,
    },
    /// SCTP and the like.
    #[error(
        "spec.ports[{index}].protocol is {protocol}: expected TCP or UDP (others are not supported)"
    )]
    Protocol {
        /// Place in the list.
        index: usize,
        /// What it says.
        protocol: String,
    },
    /// One port twice.
    #[error("spec.ports[{index}] is {port}/{protocol} again: expected each port once")]
    Duplicate {
        /// Place in the list.
        index: usize,
        /// Port number.
        port: u16,
        /// Protocol.
        protocol: Protocol,
    },
    /// Unknown externalTrafficPolicy.
    #[error("spec.externalTrafficPolicy is {0:?}: expected Cluster or Local; Cluster is used")]
    Policy(String),
    /// Unknown sessionAffinity.
    #[error("spec.sessionAffinity is {0:?}: expected None or ClientIP; None is used")]
    Affinity(String),
    /// Timeout out of bounds.
    #[error(
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds is {0}: expected 1-86400; 10800 is used"
    )]
    AffinityTimeout(i32),
    /// Not a network.
    #[error(
        "spec.loadBalancerSourceRanges[{index}] is {range:?}: expected a CIDR such as 198.51.100.0/24"
    )]
    SourceRange {
        /// Place in the list.
        index: usize,
        /// What it says.
        range: String,
    },
    /// No range at all can be read.
    #[error("spec.loadBalancerSourceRanges has no valid entry: every client is refused")]
    NoSourceRange,
    /// Not a family.
    #[error("spec.ipFamilies has {0:?}: expected IPv4 or IPv6")]
    Family(String),
    /// Not an address.
    #[error("status.loadBalancer.ingress[{index}].ip is {ip:?}: expected an IP address")]
    Ingress {
        /// Place in the list.
        index: usize,
        /// What it says.
        ip: String,
    },
    /// An annotation.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
}

/// Whose Service it is. Everything that is not `Ours` is left alone.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum NotOurs {
    /// Not a load balancer; nothing to say about it.
    #[error("spec.type is not LoadBalancer")]
    Type,
    /// Another implementation's.
    #[error("spec.loadBalancerClass is {class}: expected {ours}")]
    Class {
        /// What it says.
        class: String,
        /// What ours would be.
        ours: String,
    },
    /// Nobody's in particular.
    #[error("spec.loadBalancerClass is not set: expected {ours} (or --default-class)")]
    NoClass {
        /// What ours would be.
        ours: String,
    },
}

/// A Service is ours by type and class alone. The class cannot change while the type stays;
/// where it does all the same (manifests), the Service is simply no longer ours.
pub(super) fn ours(service: &Service, context: &Context) -> Result<(), NotOurs> {
    if service.service_type.as_deref() != Some("LoadBalancer") {
        return Err(NotOurs::Type);
    }
    let ours = || context.class.clone();
    match service.class.as_deref() {
        Some(class) if class == context.class => Ok(()),
        Some(class) => Err(NotOurs::Class {
            class: class.to_owned(),
            ours: ours(),
        }),
        None if context.default_class => Ok(()),
        None => Err(NotOurs::NoClass { ours: ours() }),
    }
}

impl Settings {
    /// Checks every field that is used.
    pub(super) fn of(service: &Service) -> Self {
        let mut problems = Vec::new();
        let drain = annotation::first(service, annotation::DRAIN_TIMEOUT);
        let drain = drain
            .map(|(key, value)| annotation::duration(key, value))
            .transpose();
        let text =
            |keys: &[&'static str]| annotation::first(service, keys).map(|(_, v)| v.to_owned());
        Self {
            ports: ports(service, &mut problems),
            policy: policy(service, &mut problems),
            affinity: affinity(service, &mut problems),
            clients: clients(service, &mut problems),
            drain_timeout: drain.unwrap_or_else(|error| {
                problems.push(error.into());
                None
            }),
            wanted: wanted(service, &mut problems),
            pool: text(annotation::POOL),
            shared_key: text(annotation::SHARED_KEY),
            published: published(service, &mut problems),
            problems,
        }
    }
}

fn ports(service: &Service, problems: &mut Vec<SettingError>) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::with_capacity(service.ports.len());
    if service.ports.is_empty() {
        problems.push(SettingError::NoPorts);
    }
    for (index, port) in service.ports.iter().enumerate() {
        let number = u16::try_from(port.port).ok().filter(|n| *n != 0);
        let protocol = merge::protocol(port.protocol.as_deref());
        match (number, protocol) {
            (None, _) => problems.push(SettingError::Port {
                index,
                port: port.port,
            }),
            (_, Err(protocol)) => problems.push(SettingError::Protocol { index, protocol }),
            (Some(number), Ok(protocol)) => {
                if ports
                    .iter()
                    .any(|p| p.number == number && p.protocol == protocol)
                {
                    problems.push(SettingError::Duplicate {
                        index,
                        port: number,
                        protocol,
                    });
                } else {
                    ports.push(Port {
                        name: port.name.clone(),
                        number,
                        protocol,
                    });
                }
            }
        }
    }
    ports
}

fn policy(service: &Service, problems: &mut Vec<SettingError>) -> Policy {
    match service.external_traffic_policy.as_deref() {
        None | Some("" | "Cluster") => Policy::Cluster,
        Some("Local") => Policy::Local,
        Some(other) => {
            problems.push(SettingError::Policy(other.to_owned()));
            Policy::Cluster
        }
    }
}

fn affinity(service: &Service, problems: &mut Vec<SettingError>) -> Option<Duration> {
    match service.session_affinity.as_deref() {
        None | Some("" | "None") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            problems.push(SettingError::Affinity(other.to_owned()));
            return None;
        }
    }
    let said = service.affinity_timeout;
    let valid = |n: &u32| (1..=AFFINITY_TIMEOUT_MAX).contains(n);
    let seconds = match said.map(|n| u32::try_from(n).ok().filter(valid).ok_or(n)) {
        None => AFFINITY_TIMEOUT,
        Some(Ok(seconds)) => seconds,
        Some(Err(seconds)) => {
            problems.push(SettingError::AffinityTimeout(seconds));
            AFFINITY_TIMEOUT
        }
    };
    Some(Duration::from_secs(seconds.into()))
}

fn clients(service: &Service, problems: &mut Vec<SettingError>) -> Clients {
    let mut good = Vec::new();
    for (index, range) in service.source_ranges.iter().enumerate() {
        match range.trim().parse::<IpNet>() {
            Ok(range) => good.push(range.trunc()),
            Err(_not_a_network) => {
                problems.push(SettingError::SourceRange {
                    index,
                    range: range.clone(),
                });
            }
        }
    }
    if service.source_ranges.is_empty() {
        Clients::All
    } else if good.is_empty() {
        problems.push(SettingError::NoSourceRange);
        Clients::Nobody
    } else {
        good.sort();
        good.dedup();
        Clients::Within(good)
    }
}

fn wanted(service: &Service, problems: &mut Vec<SettingError>) -> Wanted {
    let field = service
        .load_balancer_ip
        .as_deref()
        .map(str::trim)
        .filter(|ip| !ip.is_empty());
    let asked = annotation::first(service, annotation::ADDRESSES)
        .or_else(|| field.map(|ip| ("spec.loadBalancerIP", ip)));
    if let Some((key, value)) = asked {
        return annotation::addresses(key, value).map_or_else(
            |error| {
                problems.push(error.into());
                Wanted::Unreadable
            },
            Wanted::These,
        );
    }
    let mut families = Vec::new();
    for text in &service.ip_families {
        match Family::parse(text) {
            Some(family) => families.push(family),
            None => problems.push(SettingError::Family(text.clone())),
        }
    }
    Wanted::Any(families)
}

/// Addresses in mode VIP. An entry with a host name or in mode Proxy is another balancer's way
/// in, and packets for it never have the VIP as their destination.
fn published(service: &Service, problems: &mut Vec<SettingError>) -> Option<Vec<IpAddr>> {
    if service.ingress.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for (index, entry) in service.ingress.iter().enumerate() {
        let vip_mode = entry.ip_mode.as_deref().is_none_or(|mode| mode == "VIP");
        let Some(ip) = entry.ip.as_deref().filter(|ip| vip_mode && !ip.is_empty()) else {
            continue;
        };
        match ip.parse::<IpAddr>() {
            Ok(address) if !found.contains(&address) => found.push(address),
            Ok(_) => {}
            Err(_not_an_address) => {
                problems.push(SettingError::Ingress {
                    index,
                    ip: ip.to_owned(),
                });
            }
        }
    }
    Some(found)
}
