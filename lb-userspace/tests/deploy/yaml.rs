//! Reads what `kubectl apply -k deploy/base` would read.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) fn path(within: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(within)
}

/// Every object of the base.
pub(crate) fn base() -> Vec<Value> {
    all("base")
}

/// Every object of a folder: of the files that its kustomization names.
pub(crate) fn all(folder: &str) -> Vec<Value> {
    let files = strings(&kustomization(folder)["resources"]);
    assert!(!files.is_empty(), "resources");
    let of = |file: &String| objects(&format!("{folder}/{file}"));
    files.iter().flat_map(of).collect()
}

pub(crate) fn kustomization(folder: &str) -> Value {
    objects(&format!("{folder}/kustomization.yaml")).remove(0)
}

fn objects(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let read = serde_saphyr::from_multiple(&text);
    read.unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The only object of this kind.
pub(crate) fn object(all: &[Value], kind: &str) -> Value {
    let mut found = all.iter().filter(|object| object["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "several of {kind}");
    first.clone()
}

pub(crate) fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    list.iter().map(text).collect()
}
