//! The product's own object, as it is attached to a link, with the scene in its maps. Nothing is
//! pinned, and all is gone when this is dropped.

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hash;

use anyhow::{Context, Result};
use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, Pod};
use lb_common::abi::{Counter, Flow, FlowKey, Handshake, LINK_NONE, LINK_VIRTUAL, Link};
use lb_common::{Mac, Reason, V4};

use super::LinkKind;
use super::scene::{self, Flows, LOCAL, NAT, NODE_MAC, UPLINK};
use crate::objects;

/// The program that is measured.
const PROGRAM: &str = "sluice_xdp";

/// The loaded object.
pub(super) struct Product(Ebpf);

impl Product {
    /// Loads it for a kind of link and fills its maps.
    pub(super) fn load(link: LinkKind) -> Result<Self> {
        let path = objects::PRODUCT.path();
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let link = Link {
            ifindex: UPLINK,
            mac: Mac(NODE_MAC),
            flags: match link {
                LinkKind::Virtual => LINK_VIRTUAL,
                LinkKind::Physical => LINK_NONE,
            },
            zero: 0,
        };
        let mut product = Self(
            EbpfLoader::new()
                .override_global("LINK", &link, true)
                .load(&bytes)
                .context("loading the product's object")?,
        );
        let program = product.0.program_mut(PROGRAM).context(PROGRAM)?;
        <&mut Xdp>::try_from(program)?.load().context(PROGRAM)?;
        product.fill().context("filling the product's maps")?;
        Ok(product)
    }

    fn fill(&mut self) -> Result<()> {
        self.put("config", 0, scene::config())?;
        let mut bitmap = BTreeMap::new();
        for bit in scene::bits() {
            *bitmap.entry(bit >> 6).or_insert(0u64) |= 1 << (bit & 63);
        }
        for (index, word) in bitmap {
            self.put("dest_bitmap", index, word)?;
        }
        let (address, vip) = scene::vip();
        self.hash("vips")?.insert(address, vip, 0)?;
        for service in [LOCAL, NAT] {
            let (key, frontend) = service.frontend();
            self.hash("frontends")?.insert(key, frontend, 0)?;
            for (id, endpoint) in service.endpoints() {
                self.put("endpoints", id, endpoint)?;
            }
            for (element, words) in service.table() {
                self.put("tables", element, words)?;
            }
        }
        Ok(())
    }

    /// Fills the flow table with these and no others.
    pub(super) fn hold(&mut self, flows: Flows) -> Result<()> {
        let mut table = self.hash::<FlowKey<V4>, Flow<V4>>("flows")?;
        let keys: Vec<_> = table.keys().collect::<Result<_, _>>()?;
        for key in keys {
            table.remove(&key)?;
        }
        for (key, flow) in flows.entries() {
            table.insert(key, flow, 0)?;
        }
        Ok(())
    }

    /// The measured program.
    pub(super) fn program(&self) -> Result<&Xdp> {
        let program = self.0.program(PROGRAM).context(PROGRAM)?;
        Ok(program.try_into()?)
    }

    /// How often a packet met this fate so far.
    pub(super) fn count(&self, reason: Reason) -> Result<u64> {
        let map = self.0.map("counters").context("counters")?;
        let counters = PerCpuArray::<_, Counter>::try_from(map)?;
        let slots = counters.get(&(reason as u32), 0)?;
        Ok(slots.iter().map(|counter| counter.packets).sum())
    }

    /// Forgets all handshakes, oldest first: in the order of a table, their room would be handed
    /// out again from all over the memory, as it never is to the first ones.
    pub(super) fn clear_handshakes(&mut self) -> Result<()> {
        let mut handshakes = self.hash::<FlowKey<V4>, Handshake<V4>>("handshakes")?;
        let mut entries: Vec<_> = handshakes.iter().collect::<Result<_, _>>()?;
        entries.sort_by_key(|(_, handshake)| scene::number(handshake));
        for (key, _) in entries {
            handshakes.remove(&key)?;
        }
        Ok(())
    }

    fn hash<K: Pod + Eq + Hash, V: Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<&mut MapData, K, V>> {
        Ok(HashMap::try_from(self.0.map_mut(name).context(name)?)?)
    }

    fn put<V: Pod>(&mut self, name: &'static str, index: u32, value: V) -> Result<()> {
        let mut array = Array::<_, V>::try_from(self.0.map_mut(name).context(name)?)?;
        array.set(index, value, 0).context(name)
    }
}
