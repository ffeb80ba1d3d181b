//! The `AddressPool` custom resource: which addresses Services may have, and who answers.
//!
//! Only the wire format lives here. Address ranges are checked by `model::pool`, so that the
//! same messages come from the API, from manifests and from `sluice plan`.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses that LoadBalancer Services may be given.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Addresses","type":"string","jsonPath":".spec.addresses"}"#,
    printcolumn = r#"{"name":"Auto","type":"boolean","jsonPath":".spec.autoAssign"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolSpec {
    /// CIDRs ("192.0.2.96/28") and ranges ("192.0.2.120-192.0.2.127"), IPv4 and IPv6.
    pub addresses: Vec<String>,
    /// Give addresses to Services that did not ask for this pool. Default: true.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Keep IPv4 addresses ending in .0 and .255 back: some old equipment refuses them.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Services that may use the pool; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
    /// Namespaces that may use the pool; all when absent. Only the label
    /// `kubernetes.io/metadata.name` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Who answers for the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<Announce>,
}

/// Nodes and interfaces that answer for a pool's addresses.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Announce {
    /// Nodes that may own the addresses; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Interfaces to answer on; every uplink when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

/// A label selector as everywhere in Kubernetes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values, for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    #[test]
    fn the_crd_is_cluster_scoped_and_has_its_spelling() {
        let crd = AddressPool::crd();
        assert_eq!(crd.spec.scope, "Cluster");
        assert_eq!(
            crd.metadata.name.as_deref(),
            Some("addresspools.sluice.dev")
        );
        let text = serde_json::to_string(&crd).expect("serialises");
        for field in [
            "avoidBuggyIPs",
            "autoAssign",
            "serviceSelector",
            "nodeSelector",
        ] {
            assert!(text.contains(field), "{field} is missing");
        }
    }

    #[test]
    fn auto_assign_is_on_unless_said() {
        let spec: AddressPoolSpec = serde_json::from_str(r#"{"addresses":[]}"#).expect("parses");
        assert!(spec.auto_assign);
        assert!(!spec.avoid_buggy_ips);
    }
}
