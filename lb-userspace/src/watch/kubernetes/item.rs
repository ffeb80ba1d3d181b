//! One object as it comes, reduced at once to what is kept.
//!
//! Reading a list must neither hold 10k whole objects in memory nor fail as a whole because of one
//! of them: each item is taken as text, read, and reduced before the next is looked at.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::kind::Kind;
use crate::desired::ObjectName;

/// An object.
pub(super) struct Item<K: Kind> {
    /// Its resourceVersion.
    pub(super) version: String,
    pub(super) name: ObjectName,
    /// What is kept of it, or why it cannot be read.
    pub(super) object: Result<K::Slim, String>,
}

// Derived it would ask for `K: Clone`.
impl<K: Kind> Clone for Item<K> {
    fn clone(&self) -> Self {
        Self {
            version: self.version.clone(),
            name: self.name.clone(),
            object: self.object.clone(),
        }
    }
}

#[derive(Deserialize)]
struct Head {
    metadata: HeadMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    resource_version: String,
}

impl<'de, K: Kind> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        let head: Head = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let object = serde_json::from_str::<K::Wire>(text.get());
        Ok(Self {
            version: head.metadata.resource_version,
            name: ObjectName {
                namespace: head.metadata.namespace,
                name: head.metadata.name,
            },
            object: object.map(K::Slim::from).map_err(|e| e.to_string()),
        })
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "")]
pub(super) struct Page<K: Kind> {
    pub(super) metadata: PageMeta,
    /// Go writes an empty list as null.
    #[serde(default = "Option::default")]
    pub(super) items: Option<Vec<Item<K>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}
