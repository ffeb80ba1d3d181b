//! Reads the maps back into [`Applied`], so that an agent that starts over rewrites nothing that
//! is right already, and live flows keep their endpoints' ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::Ipv4Net;
use lb_common::abi;
use lb_common::select::Layout;

use super::{Contents, MapStore, StoreError};
use crate::plan::{Applied, AppliedFrontend};

/// What the maps hold.
pub fn read_back(store: &dyn MapStore) -> Result<Applied, StoreError> {
    let Contents {
        config,
        frontends,
        endpoints,
        vips,
        ranges,
        bitmap,
    } = store.contents()?;
    let mut applied = Applied {
        config,
        endpoints: endpoints.into_iter().collect(),
        vips: vips.into_iter().collect(),
        ranges: by_frontend(ranges),
        bitmap,
        ..Applied::default()
    };
    for (key, value) in frontends {
        let members = members(store, &value)?;
        // Tables are written with the seed that stands in the settings.
        let frontend = AppliedFrontend {
            value,
            members,
            seed: config.seed,
        };
        applied.frontends.insert(key, frontend);
    }
    Ok(applied)
}

fn members(store: &dyn MapStore, value: &abi::Frontend) -> Result<Arc<[u32]>, StoreError> {
    let layout = Layout::new(value.members, value.rows_log2);
    if value.members == 0 {
        return Ok(Arc::default());
    }
    let elements = match store.table(value.region, layout.member_elements()) {
        Ok(elements) => elements,
        // A region past the end is no table: whoever adopts this writes it anew.
        Err(StoreError::OutOfRange { .. }) => return Ok(Arc::default()),
        Err(error) => return Err(error),
    };
    Ok(elements
        .into_iter()
        .flatten()
        .take(usize::from(value.members))
        .collect())
}

fn by_frontend(
    ranges: Vec<(u8, abi::SourceRange<lb_common::V4>)>,
) -> BTreeMap<u32, BTreeSet<Ipv4Net>> {
    let mut by_frontend = BTreeMap::<u32, BTreeSet<Ipv4Net>>::new();
    for (length, range) in ranges {
        if let Ok(net) = Ipv4Net::new(range.client.into(), length) {
            by_frontend.entry(range.frontend).or_default().insert(net);
        }
    }
    by_frontend
}
