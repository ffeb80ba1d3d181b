//! Everything that was told, and the desired state that follows from it, kept up to date.
//!
//! Events only mark what they touch; `desired` recomputes that and nothing else, and notes
//! which keys became different, so that nobody has to compare 10k frontends after one
//! endpoint changed. Before every kind is complete nothing is desired at all: an empty list
//! read first must not look like an order to tear everything down.

mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::desired::{Desired, FrontendKey, Ignored, ObjectName};
use crate::model::alloc::Allocations;
use crate::model::assign::Assignment;
use crate::model::context::{Context, Reserved};
use crate::model::ending::Endings;
use crate::model::select::Use;
use crate::model::settings::{self, NotOurs, Settings};
use crate::model::store::{Store, Touched};
use crate::model::vip::Admission;
use crate::watch::object::{self, Node, Pod, Service, Slice};
use crate::watch::{Change, Right, WatchEvent};

/// What became different since it was last asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Frontends that appeared, changed or went.
    pub frontends: BTreeSet<FrontendKey>,
    /// VIPs that appeared, changed or went.
    pub vips: BTreeSet<IpAddr>,
    /// The list of what was left out is another.
    pub ignored: bool,
    /// The world became complete.
    pub completed: bool,
}

/// The world as told.
#[derive(Debug)]
pub struct World {
    context: Context,
    services: Store<Service>,
    slices: Store<Slice>,
    nodes: Store<Node>,
    pools: Store<object::Pool>,
    endings: Endings,
    source_problems: Vec<Ignored>,
    denied: BTreeSet<Right>,
    slices_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    admission: Admission,
    pool_problems: Vec<Ignored>,
    prior: Allocations,
    entries: BTreeMap<ObjectName, Entry>,
    users: BTreeMap<IpAddr, BTreeSet<ObjectName>>,
    stale: Stale,
    desired: Desired,
    changes: Changes,
}

/// What has to be looked at again.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a stage that may be skipped"
)]
struct Stale {
    /// Pools or other nodes' addresses: what an address may be.
    admission: bool,
    /// Who has which VIP.
    assignment: bool,
    /// Our own Node: whether we may answer.
    tiers: bool,
    ignored: bool,
    services: BTreeSet<ObjectName>,
}

/// A Service of ours and what was made of it.
#[derive(Debug)]
struct Entry {
    settings: Settings,
    assignment: Assignment,
    frontends: BTreeSet<FrontendKey>,
    reach: BTreeMap<IpAddr, Use>,
    ignored: Vec<Ignored>,
}

impl World {
    /// A world that knows nothing yet.
    pub fn new(context: Context, prior: Allocations) -> Self {
        Self {
            context,
            services: Store::default(),
            slices: Store::default(),
            nodes: Store::default(),
            pools: Store::default(),
            endings: Endings::default(),
            source_problems: Vec::new(),
            denied: BTreeSet::new(),
            slices_of: BTreeMap::new(),
            admission: Admission::default(),
            pool_problems: Vec::new(),
            prior,
            entries: BTreeMap::new(),
            users: BTreeMap::new(),
            stale: Stale {
                admission: true,
                ..Stale::default()
            },
            desired: Desired::default(),
            changes: Changes::default(),
        }
    }

    /// Takes what a source says.
    pub fn apply(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Service(change) => self.apply_service(change),
            WatchEvent::Slice(change) => self.apply_slice(change),
            WatchEvent::Node(change) => self.apply_node(change),
            WatchEvent::Pool(change) => {
                self.stale.admission |= !self.pools.apply(change).is_empty();
            }
            WatchEvent::Pod(change) => self.apply_pod(change),
            WatchEvent::Denied(denied) => self.denied = denied,
            WatchEvent::Problems(problems) => {
                self.source_problems = problems;
                self.stale.ignored = true;
            }
        }
    }

    fn apply_service(&mut self, change: Change<Service>) {
        for touched in self.services.apply(change) {
            let ours = self.services.get(&touched.name);
            let ours = ours.filter(|s| settings::ours(s, &self.context).is_ok());
            if ours.is_some() || self.entries.contains_key(&touched.name) {
                self.stale.assignment = true;
                self.stale.services.insert(touched.name);
            }
        }
    }

    fn apply_slice(&mut self, change: Change<Slice>) {
        for Touched { name, before } in self.slices.apply(change) {
            if let Some(service) = before.as_ref().and_then(service_of) {
                if let Some(slices) = self.slices_of.get_mut(&service) {
                    slices.remove(&name);
                    if slices.is_empty() {
                        self.slices_of.remove(&service);
                    }
                }
                self.stale.services.insert(service);
            }
            if let Some(service) = self.slices.get(&name).and_then(service_of) {
                self.slices_of
                    .entry(service.clone())
                    .or_default()
                    .insert(name);
                self.stale.services.insert(service);
            }
        }
    }

    fn apply_node(&mut self, change: Change<Node>) {
        for Touched { name, before } in self.nodes.apply(change) {
            let now = self.nodes.get(&name);
            let own = |n: &Node| (n.addresses.clone(), n.pod_cidrs.clone());
            self.stale.admission |= before.as_ref().map(own) != now.map(own);
            self.stale.tiers |= name.name == self.context.node_name;
        }
    }

    fn apply_pod(&mut self, change: Change<Pod>) {
        let news = self.endings.apply(change);
        if news.is_empty() {
            return;
        }
        let concerned = |slice: &&Slice| news.iter().any(|uid| lists(slice, uid));
        let slices = self.slices.values().filter(concerned);
        self.stale.services.extend(slices.filter_map(service_of));
        let slices = &self.slices;
        self.endings
            .forget_unless(|uid| slices.values().any(|slice| lists(slice, uid)));
    }

    /// Replaces what the operator and the outside say; everything is looked at again.
    pub fn set_context(&mut self, context: Context) {
        if context == self.context {
            return;
        }
        self.context = context;
        self.stale.admission = true;
        self.stale.tiers = true;
        self.stale
            .services
            .extend(self.services.values().map(|s| s.name.clone()));
    }

    /// These VIPs drain now: nobody else may have them.
    pub fn reserve(&mut self, reserved: Reserved) {
        if reserved != self.context.reserved {
            self.context.reserved = reserved;
            self.stale.assignment = true;
        }
    }

    /// What the operator and the outside say.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// True once every kind has been listed.
    pub fn is_complete(&self) -> bool {
        self.missing().is_empty()
    }

    /// Kinds that have not been listed yet, for readiness.
    pub fn missing(&self) -> Vec<&'static str> {
        let kinds = [
            ("Service", self.services.is_complete()),
            ("EndpointSlice", self.slices.is_complete()),
            ("Node", self.nodes.is_complete()),
            ("AddressPool", self.pools.is_complete()),
        ];
        kinds
            .into_iter()
            .filter(|(_, complete)| !complete)
            .map(|(kind, _)| kind)
            .collect()
    }

    /// What the source may not do.
    pub fn denied(&self) -> &BTreeSet<Right> {
        &self.denied
    }

    /// Addresses handed out, to be kept over a restart.
    pub fn allocations(&self) -> &Allocations {
        &self.prior
    }

    /// LoadBalancer Services that are another implementation's, for a dry run to show. They
    /// are no problem of ours, so `Desired::ignored` does not have them.
    pub fn not_ours(&self) -> impl Iterator<Item = Ignored> {
        self.services.values().filter_map(|service| {
            match settings::ours(service, &self.context).err()? {
                NotOurs::Type => None,
                reason @ (NotOurs::Class { .. } | NotOurs::NoClass { .. }) => Some(Ignored {
                    object: format!("Service/{}", service.name),
                    reason: reason.to_string(),
                }),
            }
        })
    }

    /// What became different in `desired` since this was last called.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// What this node should do, brought up to date.
    pub fn desired(&mut self) -> &Desired {
        if self.is_complete() {
            self.bring_up_to_date();
        }
        &self.desired
    }
}

impl Entry {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            assignment: Assignment::default(),
            frontends: BTreeSet::new(),
            reach: BTreeMap::new(),
            ignored: Vec::new(),
        }
    }
}

fn lists(slice: &Slice, uid: &str) -> bool {
    let uids = slice.endpoints.iter().filter_map(|e| e.uid.as_deref());
    uids.into_iter().any(|listed| listed == uid)
}

/// The Service that a slice belongs to.
fn service_of(slice: &Slice) -> Option<ObjectName> {
    let name = slice.service.as_deref().filter(|name| !name.is_empty())?;
    Some(ObjectName {
        namespace: slice.name.namespace.clone(),
        name: name.to_owned(),
    })
}
