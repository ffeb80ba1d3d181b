//! The directory source against the ways in which people and programs write files.

use std::os::unix::fs::symlink;

use super::*;
use crate::watch::event::Change;

fn node(name: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n")
}

/// Names of the nodes in force after the events so far.
struct Told {
    nodes: BTreeSet<String>,
    problems: Vec<Ignored>,
    events: mpsc::Receiver<Vec<WatchEvent>>,
    task: tokio::task::JoinHandle<Result<(), ManifestError>>,
}

impl Told {
    fn follow(path: &Path) -> Self {
        let (send, events) = mpsc::channel(16);
        let path = path.to_owned();
        let task = tokio::spawn(async move { follow(&path, Kept::nothing(), send).await });
        Self {
            nodes: BTreeSet::new(),
            problems: Vec::new(),
            events,
            task,
        }
    }

    fn take(&mut self, batch: Vec<WatchEvent>) {
        for event in batch {
            match event {
                WatchEvent::Node(Change::Apply(n)) => {
                    self.nodes.insert(n.name.name);
                }
                WatchEvent::Node(Change::Delete(n)) => {
                    self.nodes.remove(&n.name);
                }
                WatchEvent::Problems(p) => self.problems = p,
                WatchEvent::Node(_)
                | WatchEvent::Service(_)
                | WatchEvent::Slice(_)
                | WatchEvent::Pool(_)
                | WatchEvent::Pod(_)
                | WatchEvent::Denied(_) => {}
            }
        }
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = tokio::time::sleep(Duration::from_secs(20));
        tokio::pin!(limit);
        while !done(self) {
            tokio::select! {
                batch = self.events.recv() => self.take(batch.expect("still following")),
                () = &mut limit => panic!("{what}: {:?} {:?}", self.nodes, self.problems),
            }
        }
    }

    async fn nodes(&mut self, what: &str, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|n| (*n).to_owned()).collect();
        self.until(what, |t| t.nodes == expected).await;
    }

    /// Whatever arrives for a while must not change the nodes.
    async fn stays(&mut self, what: &str, time: Duration) {
        let before = self.nodes.clone();
        let limit = tokio::time::sleep(time);
        tokio::pin!(limit);
        loop {
            tokio::select! {
                batch = self.events.recv() => self.take(batch.expect("still following")),
                () = &mut limit => return,
            }
            assert_eq!(self.nodes, before, "{what}");
        }
    }
}

#[tokio::test]
async fn writes_renames_and_deletions_are_followed() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("a.yaml");
    fs::write(&file, node("a")).expect("written");
    let mut told = Told::follow(dir.path());
    told.nodes("first list", &["a"]).await;

    fs::write(&file, node("a") + &node("b")).expect("written");
    told.nodes("written in place", &["a", "b"]).await;

    fs::write(dir.path().join(".a.tmp"), node("c")).expect("written");
    fs::rename(dir.path().join(".a.tmp"), &file).expect("renamed");
    told.nodes("renamed over", &["c"]).await;

    fs::write(dir.path().join("notes.txt"), node("x")).expect("written");
    fs::write(
        dir.path().join("b.json"),
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"j"}}"#,
    )
    .expect("written");
    told.nodes("new file", &["c", "j"]).await;

    fs::remove_file(&file).expect("removed");
    told.nodes("deleted", &["j"]).await;

    drop(told.events);
    told.task
        .await
        .expect("joined")
        .expect("ended without an error");
}

#[tokio::test]
async fn a_config_map_swap_is_one_change() {
    let dir = tempfile::tempdir().expect("directory");
    let at = |name: &str| dir.path().join(name);
    for (version, name) in [("..1", "old"), ("..2", "new")] {
        fs::create_dir(at(version)).expect("created");
        fs::write(at(version).join("a.yaml"), node(name)).expect("written");
    }
    symlink("..1", at("..data")).expect("linked");
    symlink("..data/a.yaml", at("a.yaml")).expect("linked");
    let mut told = Told::follow(dir.path());
    told.nodes("first list", &["old"]).await;

    symlink("..2", at("..data_tmp")).expect("linked");
    fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
    let start = Instant::now();
    told.nodes("swapped", &["new"]).await;
    assert!(
        start.elapsed() < SWEEP,
        "seen by an event, not by the sweep"
    );
}

#[tokio::test]
async fn a_half_written_file_and_an_editor_that_moves_it_away_delete_nothing() {
    use std::io::Write;
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("a.yaml");
    fs::write(&file, node("a") + &node("b")).expect("written");
    let mut told = Told::follow(dir.path());
    told.nodes("first list", &["a", "b"]).await;

    let mut writer = fs::File::create(&file).expect("truncated");
    writer.write_all(node("a").as_bytes()).expect("written");
    told.stays("half written", PATIENCE / 3).await;
    writer.write_all(node("b").as_bytes()).expect("written");
    drop(writer);
    told.stays("complete", PATIENCE * 2).await;

    fs::rename(&file, dir.path().join("a.yaml~")).expect("moved away");
    told.stays("moved away", PATIENCE / 3).await;
    fs::write(&file, node("a") + &node("b")).expect("written");
    told.stays("back", PATIENCE * 2).await;
}

#[tokio::test]
async fn a_broken_file_is_said_with_its_line_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("a.yaml");
    fs::write(&file, node("a")).expect("written");
    let mut told = Told::follow(dir.path());
    told.nodes("first list", &["a"]).await;
    fs::write(&file, node("a") + "kind: [\n").expect("written");
    told.until("said", |t| !t.problems.is_empty()).await;
    let place = format!("{}:", file.display());
    assert!(
        told.problems[0].object.starts_with(&place),
        "{:?}",
        told.problems
    );
    assert_eq!(told.nodes.len(), 1);
}

#[tokio::test]
async fn a_directory_that_goes_away_keeps_its_objects_and_may_return() {
    let parent = tempfile::tempdir().expect("directory");
    let dir = parent.path().join("manifests");
    fs::create_dir(&dir).expect("created");
    fs::write(dir.join("a.yaml"), node("a")).expect("written");
    let mut told = Told::follow(&dir);
    told.nodes("first list", &["a"]).await;
    fs::rename(&dir, parent.path().join("elsewhere")).expect("moved");
    told.until("said", |t| !t.problems.is_empty()).await;
    assert_eq!(told.nodes.len(), 1, "nothing is lost");
    fs::create_dir(&dir).expect("created");
    fs::write(dir.join("b.yaml"), node("b")).expect("written");
    told.nodes("another directory at the same path", &["b"])
        .await;
    assert_eq!(told.problems, []);
}

#[test]
fn a_missing_directory_is_an_error() {
    let error = ManifestDir::open(Path::new("/nonexistent/manifests"), Kept::nothing())
        .expect_err("refused");
    assert!(
        error.to_string().contains("/nonexistent/manifests"),
        "{error}"
    );
}

#[test]
fn an_unreadable_entry_is_a_problem_of_its_own() {
    let dir = tempfile::tempdir().expect("directory");
    fs::create_dir(dir.path().join("d.yaml")).expect("created");
    fs::write(dir.path().join("a.yaml"), node("a")).expect("written");
    let events = ManifestDir::open(dir.path(), Kept::nothing())
        .expect("opened")
        .events();
    assert!(
        events
            .iter()
            .any(|e| matches!(e, WatchEvent::Node(Change::Apply(_))))
    );
    let Some(WatchEvent::Problems(problems)) = events.last() else {
        panic!("{events:?}")
    };
    assert!(problems[0].object.ends_with("d.yaml"), "{problems:?}");
}

#[test]
fn a_file_that_breaks_between_two_starts_says_what_it_said_before() {
    let dir = tempfile::tempdir().expect("directory");
    let kept = || Kept::within(dir.path().join(".kept"));
    let write = |text: &str| fs::write(dir.path().join("a.yaml"), text).expect("written");
    let start = || {
        let mut manifests = ManifestDir::open(dir.path(), kept()).expect("opened");
        let mut told = (BTreeSet::new(), Vec::new());
        for event in manifests.events() {
            match event {
                WatchEvent::Node(Change::Apply(n)) => {
                    told.0.insert(n.name.name);
                }
                WatchEvent::Problems(problems) => told.1 = problems,
                WatchEvent::Node(_)
                | WatchEvent::Service(_)
                | WatchEvent::Slice(_)
                | WatchEvent::Pool(_)
                | WatchEvent::Pod(_)
                | WatchEvent::Denied(_) => {}
            }
        }
        manifests.save();
        told
    };
    let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    write(&(node("a") + &node("b")));
    assert_eq!(start(), (both.clone(), vec![]));
    // Twice: a broken text must not replace the good one.
    for _ in 0..2 {
        write(&(node("a") + "{"));
        let (nodes, problems) = start();
        assert_eq!(nodes, both);
        let reason = &problems[0].reason;
        assert!(reason.ends_with("last good objects stay"), "{reason}");
    }
    write(&node("a"));
    assert_eq!(start().0, BTreeSet::from(["a".to_owned()]));
    fs::remove_file(dir.path().join("a.yaml")).expect("removed");
    assert_eq!(start().0, BTreeSet::new());
    write("{");
    assert_eq!(start().0, BTreeSet::new(), "another file of that name");
}

#[test]
fn a_pipe_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("directory");
    let pipe = dir.path().join("p.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let events = ManifestDir::open(dir.path(), Kept::nothing())
        .expect("opened")
        .events();
    let Some(WatchEvent::Problems(problems)) = events.last() else {
        panic!("{events:?}")
    };
    assert!(
        problems[0].reason.contains("no regular file"),
        "{problems:?}"
    );
}
