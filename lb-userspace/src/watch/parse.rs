//! Manifest bytes to objects: several documents per file, YAML or JSON, lists unfolded.
//!
//! Pure, so that every malformed file is a test without a disk. A document that cannot be
//! read is reported with its line and, where it can be told, with the object it meant: the
//! caller keeps that object's last good version. One bad document never hides the others.

mod document;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use self::document::{Document, documents};
use crate::desired::ObjectName;
use crate::watch::crd;
use crate::watch::object::{Named, Node, Pool, Service, Slice};

/// Kinds that are read, in the order in which they are told.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `v1 Node`.
    Node,
    /// `sluice.dev/v1alpha1 AddressPool`.
    Pool,
    /// `v1 Service`.
    Service,
    /// `discovery.k8s.io/v1 EndpointSlice`.
    Slice,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Node, Self::Pool, Self::Service, Self::Slice];

    fn of(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|k| k.api_version() == api_version && k.as_str() == kind)
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Node | Self::Service => "v1",
            Self::Pool => "sluice.dev/v1alpha1",
            Self::Slice => "discovery.k8s.io/v1",
        }
    }

    /// Kubernetes' name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pool => "AddressPool",
            Self::Service => "Service",
            Self::Slice => "EndpointSlice",
        }
    }

    fn namespaced(self) -> bool {
        matches!(self, Self::Service | Self::Slice)
    }
}

/// Kind and name: what makes two documents one object.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ObjectId {
    /// Kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: ObjectName,
}

/// One object of a manifest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A Node.
    Node(Node),
    /// An AddressPool.
    Pool(Pool),
    /// A Service.
    Service(Service),
    /// An EndpointSlice.
    Slice(Slice),
}

impl Object {
    /// Kind and name.
    pub fn id(&self) -> ObjectId {
        let (kind, name) = match self {
            Self::Node(o) => (Kind::Node, o.object_name()),
            Self::Pool(o) => (Kind::Pool, o.object_name()),
            Self::Service(o) => (Kind::Service, o.object_name()),
            Self::Slice(o) => (Kind::Slice, o.object_name()),
        };
        ObjectId {
            kind,
            name: name.clone(),
        }
    }
}

/// Why a document could not be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ParseError {
    /// The file is not text.
    #[error("not UTF-8: expected a YAML or JSON text")]
    NotText,
    /// YAML or JSON syntax.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// A document that is not a Kubernetes object.
    #[error("is no Kubernetes object: expected apiVersion, kind and metadata")]
    NoKind,
    /// A field of a wrong type, or a required one that is missing.
    #[error("{kind}: {message}")]
    Field {
        /// Kind of the object.
        kind: &'static str,
        /// What the field should be.
        message: String,
    },
    /// No name.
    #[error("{0}: metadata.name is missing")]
    NoName(&'static str),
}

/// A document that could not be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Broken {
    /// Line in the file, from 1.
    pub line: u32,
    /// The object it meant, when that much could be read.
    pub id: Option<ObjectId>,
    /// Why.
    pub error: ParseError,
}

/// A document of a kind that Sluice has no use for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unused {
    /// Line in the file, from 1.
    pub line: u32,
    /// `apiVersion`.
    pub api_version: String,
    /// `Kind/namespace/name`.
    pub object: String,
}

/// What a file holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Parsed {
    /// Good objects in file order, with their line.
    pub objects: Vec<(u32, Arc<Object>)>,
    /// Documents that could not be read.
    pub broken: Vec<Broken>,
    /// Documents of other kinds.
    pub unused: Vec<Unused>,
}

/// Documents of a file as they were parsed, by the hash of their text: one changed Service in
/// a file of a thousand costs one document.
#[derive(Debug, Default)]
pub struct Seen(HashMap<u64, Parsed>);

/// Parses a manifest; JSON is a subset of the YAML accepted here, also several in a row when
/// `---` stands between them.
pub fn parse(bytes: &[u8]) -> Parsed {
    parse_again(bytes, &Seen::default()).0
}

/// Parses a manifest of which most has been seen before.
pub fn parse_again(bytes: &[u8], seen: &Seen) -> (Parsed, Seen) {
    let mut parsed = Parsed::default();
    let mut now = Seen::default();
    let Ok(text) = std::str::from_utf8(bytes) else {
        let line = line_of_bad_byte(bytes);
        parsed.broken.push(Broken {
            line,
            id: None,
            error: ParseError::NotText,
        });
        return (parsed, now);
    };
    for document in documents(text.trim_start_matches('\u{feff}')) {
        let hash = document.hash();
        let known = seen.0.get(&hash).cloned().unwrap_or_else(|| {
            let mut fresh = Parsed::default();
            parse_document(&document.alone(), &mut fresh);
            fresh
        });
        parsed.extend(&known, document.lines_before());
        now.0.insert(hash, known);
    }
    (parsed, now)
}

impl Parsed {
    /// Adds what a document holds, which has `before` lines above it in the file.
    fn extend(&mut self, document: &Self, before: u32) {
        let objects = document.objects.iter();
        self.objects
            .extend(objects.map(|(line, object)| (line + before, Arc::clone(object))));
        let broken = document.broken.iter().cloned();
        self.broken.extend(broken.map(|b| Broken {
            line: b.line + before,
            ..b
        }));
        let unused = document.unused.iter().cloned();
        self.unused.extend(unused.map(|u| Unused {
            line: u.line + before,
            ..u
        }));
    }
}

fn line_of_bad_byte(bytes: &[u8]) -> u32 {
    let good = bytes
        .utf8_chunks()
        .next()
        .map_or(0, |chunk| chunk.valid().len());
    1 + bytes.iter().take(good).filter(|b| **b == b'\n').count() as u32
}

fn parse_document(document: &Document<'_>, parsed: &mut Parsed) {
    match document.read::<Value>() {
        Ok(Value::Null) => {}
        Ok(value) => parse_value(document, document.first_content_line(), value, true, parsed),
        Err((line, message)) => {
            let error = ParseError::Syntax(message);
            parsed.broken.push(Broken {
                line,
                id: None,
                error,
            });
        }
    }
}

/// Reads one object. `whole` says that it is all of the document, so that a wrong field can be
/// looked up in the text again for its line.
fn parse_value(document: &Document<'_>, line: u32, value: Value, whole: bool, out: &mut Parsed) {
    let field = |name: &str| value.get(name).and_then(Value::as_str);
    let (Some(api_version), Some(kind_name)) = (field("apiVersion"), field("kind")) else {
        out.broken.push(Broken {
            line,
            id: None,
            error: ParseError::NoKind,
        });
        return;
    };
    let list_of = kind_name
        .strip_suffix("List")
        .filter(|_| value.get("items").is_some());
    if let Some(item_kind) = list_of {
        let (version, item_kind) = (api_version.to_owned(), item_kind.to_owned());
        return parse_list(document, line, &version, &item_kind, value, out);
    }
    let meta = |name: &str| {
        value
            .get("metadata")
            .and_then(|m| m.get(name))
            .and_then(Value::as_str)
    };
    let Some(kind) = Kind::of(api_version, kind_name) else {
        let namespace = meta("namespace")
            .map(|n| format!("{n}/"))
            .unwrap_or_default();
        out.unused.push(Unused {
            line,
            api_version: api_version.to_owned(),
            object: format!(
                "{kind_name}/{namespace}{}",
                meta("name").unwrap_or_default()
            ),
        });
        return;
    };
    let Some(name) = meta("name").filter(|n| !n.is_empty()) else {
        out.broken.push(Broken {
            line,
            id: None,
            error: ParseError::NoName(kind.as_str()),
        });
        return;
    };
    // As kubectl does.
    let namespace = meta("namespace")
        .filter(|n| !n.is_empty())
        .unwrap_or("default");
    let namespace = if kind.namespaced() { namespace } else { "" };
    let name = ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match object(kind, &name, value, document, whole) {
        Ok(object) => out.objects.push((line, Arc::new(object))),
        Err((within, message)) => out.broken.push(Broken {
            line: within.unwrap_or(line),
            id: Some(ObjectId { kind, name }),
            error: ParseError::Field {
                kind: kind.as_str(),
                message,
            },
        }),
    }
}

fn parse_list(
    document: &Document<'_>,
    line: u32,
    api_version: &str,
    item_kind: &str,
    mut value: Value,
    out: &mut Parsed,
) {
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) | None => Vec::new(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            let message = "items: expected a list of objects".to_owned();
            let error = ParseError::Field {
                kind: "List",
                message,
            };
            out.broken.push(Broken {
                line,
                id: None,
                error,
            });
            return;
        }
    };
    let lines = document.item_lines();
    for (index, mut item) in items.into_iter().enumerate() {
        if let (Value::Object(fields), false) = (&mut item, item_kind.is_empty()) {
            // In a ServiceList the items do not repeat their kind.
            fields
                .entry("apiVersion")
                .or_insert_with(|| api_version.into());
            fields.entry("kind").or_insert_with(|| item_kind.into());
        }
        let line = lines.get(index).copied().unwrap_or(line);
        parse_value(document, line, item, false, out);
    }
}

type FieldError = (Option<u32>, String);

fn object(
    kind: Kind,
    name: &ObjectName,
    value: Value,
    document: &Document<'_>,
    whole: bool,
) -> Result<Object, FieldError> {
    let text = whole.then_some(document);
    Ok(match kind {
        Kind::Node => Object::Node(typed::<core::Node>(value, text)?.into()),
        Kind::Pool => Object::Pool(typed::<crd::AddressPool>(value, text)?.into()),
        Kind::Service => {
            let service = Service::from(typed::<core::Service>(value, text)?);
            Object::Service(Service {
                name: name.clone(),
                ..service
            })
        }
        Kind::Slice => {
            let slice = Slice::from(typed::<discovery::EndpointSlice>(value, text)?);
            Object::Slice(Slice {
                name: name.clone(),
                ..slice
            })
        }
    })
}

/// From the generic value, which is cheap; when that fails once more from the text, which
/// knows lines.
fn typed<T: DeserializeOwned>(value: Value, text: Option<&Document<'_>>) -> Result<T, FieldError> {
    serde_json::from_value(value).or_else(|error| match text {
        Some(document) => document
            .read()
            .map_err(|(line, message)| (Some(line), message)),
        None => Err((None, error.to_string())),
    })
}

#[cfg(test)]
mod tests;
