//! What a set of manifest files says together, and what changed since it was last told.
//!
//! Pure: file names and bytes in, events out. A file that breaks keeps its last good objects,
//! an object that breaks keeps its last good version, and an object defined twice belongs to
//! the first file by name, whatever the order in which the files were read.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use crate::desired::{Ignored, ObjectName};
use crate::watch::event::{Change, WatchEvent};
use crate::watch::object::{Node, Pool, Service, Slice};
use crate::watch::parse::{Broken, Kind, Object, ObjectId, Parsed, Seen, Unused, parse_again};

/// All manifest files, as last read.
#[derive(Debug, Default)]
pub struct Files {
    by_name: BTreeMap<String, File>,
    /// Files that define an object, in name order: the first one wins.
    owners: BTreeMap<ObjectId, BTreeSet<String>>,
    told: BTreeMap<ObjectId, Arc<Object>>,
    told_problems: Vec<Ignored>,
    touched: BTreeSet<ObjectId>,
    listed: bool,
}

#[derive(Debug, Default)]
struct File {
    /// Of the bytes that were parsed; none when the file could not be read.
    hash: Option<u64>,
    /// Nothing of it was broken.
    good: bool,
    seen: Seen,
    objects: BTreeMap<ObjectId, (u32, Arc<Object>)>,
    problems: Vec<Ignored>,
}

impl Files {
    /// Takes the content of a file; true when all of it could be read. The same bytes again cost
    /// a hash.
    pub fn put(&mut self, name: &str, bytes: &[u8]) -> bool {
        let hash = Some(hash(bytes));
        if let Some(same) = self.by_name.get(name).filter(|f| f.hash == hash) {
            return same.good;
        }
        let before = self.by_name.remove(name);
        let nothing = Seen::default();
        let seen = before.as_ref().map_or(&nothing, |f| &f.seen);
        let (parsed, seen) = parse_again(bytes, seen);
        let file = File {
            hash,
            seen,
            ..File::new(name, parsed, before.as_ref())
        };
        let good = file.good;
        self.replace(name, before, Some(file));
        good
    }

    /// Takes the content of a file that says what it said before it was first read here; true when
    /// all of it could be read.
    pub fn put_after(&mut self, name: &str, earlier: &[u8], bytes: &[u8]) -> bool {
        self.remove(name);
        self.put(name, earlier);
        self.put(name, bytes)
    }

    /// A file that exists and cannot be read: what it said last stays.
    pub fn unreadable(&mut self, name: &str, why: &str) {
        let file = self.by_name.entry(name.to_owned()).or_default();
        let reason = format!("cannot be read: {why}; its last good objects stay");
        file.problems = vec![Ignored {
            object: name.to_owned(),
            reason,
        }];
        file.hash = None;
        file.good = false;
    }

    /// A file that is gone: its objects go.
    pub fn remove(&mut self, name: &str) {
        let before = self.by_name.remove(name);
        self.replace(name, before, None);
    }

    /// Whether anything was ever read of this file.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Names of the files known.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    fn replace(&mut self, name: &str, before: Option<File>, after: Option<File>) {
        let old = before.map(|f| f.objects).unwrap_or_default();
        let none = BTreeMap::new();
        let new = after.as_ref().map_or(&none, |f| &f.objects);
        for id in old.keys().filter(|id| !new.contains_key(id)) {
            if let Some(owners) = self.owners.get_mut(id) {
                owners.remove(name);
                if owners.is_empty() {
                    self.owners.remove(id);
                }
            }
            self.touched.insert(id.clone());
        }
        for (id, (_, object)) in new {
            match old.get(id) {
                Some((_, same)) if Arc::ptr_eq(same, object) => continue,
                Some(_) => {}
                None => {
                    self.owners
                        .entry(id.clone())
                        .or_default()
                        .insert(name.to_owned());
                }
            }
            self.touched.insert(id.clone());
        }
        if let Some(file) = after {
            self.by_name.insert(name.to_owned(), file);
        }
    }

    /// What is new since the last call; the first call lists every kind.
    pub fn events(&mut self) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        if !self.listed {
            events.extend(bracket(true));
        }
        for id in std::mem::take(&mut self.touched) {
            let now = self.winner(&id).cloned();
            if now.as_ref() == self.told.get(&id) {
                continue;
            }
            if let Some(object) = now {
                events.push(apply(&object));
                self.told.insert(id, object);
            } else {
                self.told.remove(&id);
                events.push(delete(id.kind, id.name));
            }
        }
        if !self.listed {
            events.extend(bracket(false));
            self.listed = true;
        }
        let problems = self.problems();
        if problems != self.told_problems {
            self.told_problems.clone_from(&problems);
            events.push(WatchEvent::Problems(problems));
        }
        events
    }

    fn winner(&self, id: &ObjectId) -> Option<&Arc<Object>> {
        let file = self.by_name.get(self.owners.get(id)?.first()?)?;
        file.objects.get(id).map(|(_, object)| object)
    }

    fn problems(&self) -> Vec<Ignored> {
        let mut all: Vec<_> = self
            .by_name
            .values()
            .flat_map(|f| f.problems.clone())
            .collect();
        for (id, owners) in self.owners.iter().filter(|(_, owners)| owners.len() > 1) {
            let line = |name: &str| {
                let object = self.by_name.get(name).and_then(|f| f.objects.get(id));
                object.map_or(0, |(line, _)| *line)
            };
            let mut owners = owners.iter();
            let first = owners.next().map_or("", String::as_str);
            all.extend(owners.map(|other| Ignored {
                object: label(id),
                reason: format!(
                    "{other}:{} defines it again: {first}:{} stays",
                    line(other),
                    line(first)
                ),
            }));
        }
        all.sort();
        all
    }
}

impl File {
    fn new(name: &str, parsed: Parsed, before: Option<&Self>) -> Self {
        let mut file = Self {
            good: parsed.broken.is_empty(),
            ..Self::default()
        };
        for (line, object) in parsed.objects {
            let id = object.id();
            if let Some((first, _)) = file.objects.get(&id) {
                let reason = format!("{name}:{line} defines it again: line {first} stays");
                file.problems.push(Ignored {
                    object: label(&id),
                    reason,
                });
            } else {
                file.objects.insert(id, (line, object));
            }
        }
        let empty = BTreeMap::new();
        let good = before.map_or(&empty, |f| &f.objects);
        // What an unreadable document meant cannot be told: the file stays as it was.
        if !good.is_empty() && parsed.broken.iter().any(|b| b.id.is_none()) {
            file.objects.clone_from(good);
        }
        for broken in parsed.broken {
            file.keep(name, &broken, good);
        }
        file.problems
            .extend(parsed.unused.into_iter().map(|u| unused(name, u)));
        file
    }

    fn keep(&mut self, name: &str, broken: &Broken, good: &BTreeMap<ObjectId, (u32, Arc<Object>)>) {
        let kept = match &broken.id {
            Some(id) => good.get(id).map(|object| {
                self.objects
                    .entry(id.clone())
                    .or_insert_with(|| object.clone());
                format!("; the last good {} stays", label(id))
            }),
            None => (!good.is_empty()).then(|| "; the file's last good objects stay".to_owned()),
        };
        let object = format!("{name}:{}", broken.line);
        let subject = broken
            .id
            .as_ref()
            .map(|id| format!(" {}", id.name))
            .unwrap_or_default();
        let reason = format!(
            "{}{}",
            at_object(broken, &subject),
            kept.unwrap_or_default()
        );
        self.problems.push(Ignored { object, reason });
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn at_object(broken: &Broken, subject: &str) -> String {
    let said = broken.error.to_string();
    match said.split_once(": ") {
        Some((kind, rest)) if !subject.is_empty() => format!("{kind}{subject}: {rest}"),
        _ => said,
    }
}

fn unused(name: &str, unused: Unused) -> Ignored {
    Ignored {
        object: unused.object,
        reason: format!(
            "{name}:{} is of {}: expected v1 Service or Node, discovery.k8s.io/v1 EndpointSlice \
             or sluice.dev/v1alpha1 AddressPool",
            unused.line, unused.api_version
        ),
    }
}

fn label(id: &ObjectId) -> String {
    format!("{}/{}", id.kind.as_str(), id.name)
}

fn bracket(begin: bool) -> [WatchEvent; 4] {
    fn mark<T>(begin: bool) -> Change<T> {
        if begin {
            Change::Init
        } else {
            Change::InitDone
        }
    }
    [
        WatchEvent::Node(mark::<Node>(begin)),
        WatchEvent::Pool(mark::<Pool>(begin)),
        WatchEvent::Service(mark::<Service>(begin)),
        WatchEvent::Slice(mark::<Slice>(begin)),
    ]
}

fn apply(object: &Object) -> WatchEvent {
    match object {
        Object::Node(o) => WatchEvent::Node(Change::Apply(o.clone())),
        Object::Pool(o) => WatchEvent::Pool(Change::Apply(o.clone())),
        Object::Service(o) => WatchEvent::Service(Change::Apply(o.clone())),
        Object::Slice(o) => WatchEvent::Slice(Change::Apply(o.clone())),
    }
}

fn delete(kind: Kind, name: ObjectName) -> WatchEvent {
    match kind {
        Kind::Node => WatchEvent::Node(Change::Delete(name)),
        Kind::Pool => WatchEvent::Pool(Change::Delete(name)),
        Kind::Service => WatchEvent::Service(Change::Delete(name)),
        Kind::Slice => WatchEvent::Slice(Change::Delete(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> String {
        format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n")
    }

    /// Names that were applied and deleted; problems as text.
    fn told(files: &mut Files) -> (Vec<String>, Vec<String>, Option<Vec<String>>) {
        let (mut applied, mut deleted, mut problems) = (vec![], vec![], None);
        for event in files.events() {
            match event {
                WatchEvent::Node(Change::Apply(n)) => applied.push(n.name.name),
                WatchEvent::Node(Change::Delete(n)) => deleted.push(n.name),
                WatchEvent::Problems(list) => {
                    let text = |i: Ignored| format!("{} | {}", i.object, i.reason);
                    problems = Some(list.into_iter().map(text).collect());
                }
                WatchEvent::Service(_)
                | WatchEvent::Slice(_)
                | WatchEvent::Pool(_)
                | WatchEvent::Pod(_)
                | WatchEvent::Denied(_)
                | WatchEvent::Node(Change::Init | Change::InitDone | Change::Keep(_)) => {}
            }
        }
        (applied, deleted, problems)
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn the_first_call_lists_every_kind_even_when_empty() {
        let mut files = Files::default();
        let events = files.events();
        assert_eq!(events[..4], bracket(true));
        assert_eq!(events[4..], bracket(false));
        assert_eq!(files.events(), []);
    }

    #[test]
    fn only_differences_are_told() {
        let mut files = Files::default();
        files.put("a.yaml", (node("a") + &node("b")).as_bytes());
        assert_eq!(told(&mut files), (names(&["a", "b"]), vec![], None));
        files.put("a.yaml", (node("b") + &node("c")).as_bytes());
        assert_eq!(told(&mut files), (names(&["c"]), names(&["a"]), None));
        files.remove("a.yaml");
        assert_eq!(told(&mut files), (vec![], names(&["b", "c"]), None));
    }

    #[test]
    fn a_broken_file_keeps_its_last_good_objects() {
        let mut files = Files::default();
        files.put("a.yaml", (node("a") + &node("b")).as_bytes());
        told(&mut files);
        files.put("a.yaml", (node("a") + "---\nkind: [\n").as_bytes());
        let (applied, deleted, problems) = told(&mut files);
        assert_eq!((applied, deleted), (vec![], vec![]));
        let problems = problems.expect("said");
        assert!(problems[0].starts_with("a.yaml:"), "{problems:?}");
        assert!(
            problems[0].ends_with("the file's last good objects stay"),
            "{problems:?}"
        );
        files.put("a.yaml", node("a").as_bytes());
        assert_eq!(told(&mut files), (vec![], names(&["b"]), Some(vec![])));
    }

    #[test]
    fn a_broken_object_stays_and_the_rest_of_its_file_goes_on() {
        let mut files = Files::default();
        files.put("a.yaml", (node("a") + &node("b")).as_bytes());
        told(&mut files);
        let bad = node("a").replace(
            "kind: Node\n",
            "kind: Node\nspec: {unschedulable: perhaps}\n",
        );
        files.put("a.yaml", (bad + &node("c")).as_bytes());
        let (applied, deleted, problems) = told(&mut files);
        assert_eq!((applied, deleted), (names(&["c"]), names(&["b"])));
        let problems = problems.expect("said");
        assert!(
            problems[0].starts_with("a.yaml:4 | Node a: "),
            "{problems:?}"
        );
        assert!(
            problems[0].ends_with("the last good Node/a stays"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_file_that_was_never_good_gives_what_it_can() {
        let mut files = Files::default();
        files.put("a.yaml", (node("a") + "---\n{\n").as_bytes());
        assert_eq!(told(&mut files).0, names(&["a"]));
    }

    #[test]
    fn an_unreadable_file_keeps_its_objects_and_recovers_with_the_same_bytes() {
        let mut files = Files::default();
        files.put("a.yaml", node("a").as_bytes());
        told(&mut files);
        files.unreadable("a.yaml", "permission denied");
        let (applied, deleted, problems) = told(&mut files);
        assert_eq!((applied, deleted), (vec![], vec![]));
        assert!(problems.expect("said")[0].contains("permission denied"));
        files.put("a.yaml", node("a").as_bytes());
        assert_eq!(told(&mut files), (vec![], vec![], Some(vec![])));
    }

    #[test]
    fn an_object_in_two_files_belongs_to_the_first_by_name() {
        for order in [["a.yaml", "b.yaml"], ["b.yaml", "a.yaml"]] {
            let mut files = Files::default();
            for name in order {
                let cordoned = if name == "a.yaml" {
                    "spec: {unschedulable: true}\n"
                } else {
                    ""
                };
                files.put(name, (node("n") + cordoned).as_bytes());
            }
            let events = files.events();
            let WatchEvent::Node(Change::Apply(n)) = &events[4] else {
                panic!("{events:?}")
            };
            assert!(n.unschedulable);
            let WatchEvent::Problems(problems) = &events[9] else {
                panic!("{events:?}")
            };
            assert_eq!(problems[0].object, "Node/n");
            assert_eq!(
                problems[0].reason,
                "b.yaml:2 defines it again: a.yaml:2 stays"
            );
            files.remove("a.yaml");
            assert_eq!(
                told(&mut files).0,
                names(&["n"]),
                "the second one takes over"
            );
        }
    }
}
