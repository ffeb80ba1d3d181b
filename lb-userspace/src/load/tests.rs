//! The data plane in a real kernel, each test in a network namespace and pin folder of its own.

use std::collections::BTreeSet;

use aya::maps::Array;

use super::*;
use crate::apply::{Executor, KernelStore, MapStore as _, Outcome, read_back};
use crate::netlink::link_by_name;
use crate::plan::tests::{config, desired, draining, endpoint, frontend, key};
use crate::plan::{Planner, Scope, Target};
use crate::testing::{PinDir, in_namespace, ip, object, timed};

fn veth() {
    ip("link add sl0 type veth peer name sl1");
    ip("link set sl0 up");
    ip("link set sl1 up");
}

fn program_on(interface: &str) -> Option<u32> {
    link_by_name(interface)
        .expect("there")
        .xdp
        .map(|xdp| xdp.program)
}

#[test]
fn a_second_agent_is_refused_and_a_later_one_finds_the_same_maps() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        let pins = PinDir::new("lock");
        let first = pins.open(object);
        let ids: Vec<_> = first.maps.ids().collect();
        assert_eq!(ids.len(), MAPS.len());
        let error = Datapath::open(pins.options(object))
            .err()
            .expect("refused")
            .to_string();
        let wanted = format!("another agent (pid {}) uses", std::process::id());
        assert!(error.contains(&wanted), "{error}");
        let error = detach_all(pins.path())
            .expect_err("refused too")
            .to_string();
        assert!(error.contains(&wanted), "{error}");
        drop(first);
        let second = pins.open(object);
        assert_eq!(second.maps.ids().collect::<Vec<_>>(), ids);
        assert_eq!(second.rebuilt, []);
    });
}

#[test]
fn a_restart_replaces_the_programs_without_letting_go() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        for (wanted, mode) in [
            (XdpMode::Native, Mode::Native),
            (XdpMode::Auto, Mode::Generic),
        ] {
            let pins = PinDir::new("replace");
            let mut first = pins.open(object);
            let attachment = first.attach("sl0", wanted).expect("attaches").clone();
            assert_eq!(attachment.mode, Some(mode));
            assert_eq!(attachment.note.is_some(), wanted == XdpMode::Auto);
            first.attach_egress("sl0").expect("attaches");
            first.verify().expect("all is well");
            drop(first);
            assert_eq!(
                program_on("sl0"),
                attachment.xdp_program,
                "the pin holds it"
            );

            let mut second = pins.open(object);
            let again = second.attach("sl0", wanted).expect("replaces").clone();
            assert_eq!(again.mode, Some(mode));
            assert_ne!(again.xdp_program, attachment.xdp_program);
            assert_eq!(program_on("sl0"), again.xdp_program);
            let egress = second
                .attach_egress("sl0")
                .expect("replaces")
                .egress_program;
            assert_ne!(egress, attachment.egress_program);
            second.verify().expect("all is well");
            assert_eq!(second.attached().count(), 1);
        }
        assert_eq!(program_on("sl0"), None);
    });
}

#[test]
fn another_mode_is_attached_anew() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        let pins = PinDir::new("mode");
        let mut datapath = pins.open(object);
        datapath.attach("sl0", XdpMode::Generic).expect("attaches");
        assert!(
            link_by_name("sl0")
                .expect("there")
                .xdp
                .expect("attached")
                .generic
        );
        let mode = datapath
            .attach("sl0", XdpMode::Native)
            .expect("attaches")
            .mode;
        assert_eq!(mode, Some(Mode::Native));
        assert!(
            !link_by_name("sl0")
                .expect("there")
                .xdp
                .expect("attached")
                .generic
        );
        datapath.verify().expect("all is well");
    });
}

#[test]
fn the_program_of_somebody_else_is_named_and_left_alone() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        let theirs = PinDir::new("theirs");
        let mut they = theirs.open(object);
        let id = they
            .attach("sl0", XdpMode::Native)
            .expect("attaches")
            .xdp_program;
        let ours = PinDir::new("ours");
        let mut we = ours.open(object);
        for mode in [XdpMode::Native, XdpMode::Auto] {
            let error = we.attach("sl0", mode).expect_err("refused").to_string();
            let wanted = format!("id {}, named sluice_xdp", id.expect("attached"));
            assert!(error.contains(&wanted), "{error}");
        }
        drop(we);
        detach_all(ours.path()).expect("nothing of theirs is touched");
        assert_eq!(program_on("sl0"), id);
    });
}

#[test]
fn an_interface_that_comes_back_with_another_index_is_attached_again() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        let pins = PinDir::new("recreated");
        let mut datapath = pins.open(object);
        datapath.attach("sl0", XdpMode::Native).expect("attaches");
        datapath.attach_egress("sl0").expect("attaches");
        ip("link del sl0");
        assert!(datapath.verify().is_err());
        let error = datapath
            .attach("sl0", XdpMode::Auto)
            .expect_err("gone")
            .to_string();
        assert!(error.contains("no interface sl0"), "{error}");
        veth();
        let index = datapath
            .attach("sl0", XdpMode::Native)
            .expect("attaches")
            .link
            .index;
        assert_eq!(index, link_by_name("sl0").expect("there").index);
        datapath.attach_egress("sl0").expect("attaches");
        datapath.verify().expect("all is well");
    });
}

#[test]
fn detaching_removes_all_of_ours_and_nothing_else_twice() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        let pins = PinDir::new("detach");
        let mut datapath = pins.open(object);
        datapath.attach("sl0", XdpMode::Generic).expect("attaches");
        datapath.attach_egress("sl1").expect("attaches");
        drop(datapath);
        let foreign = pins.path().join("foreign");
        std::fs::create_dir(&foreign).expect("a folder of somebody else");
        let stranger = Pins::new(pins.path()).map("stranger");
        Array::<_, u64>::create(1, 0)
            .expect("a map")
            .pin(&stranger)
            .expect("pinned");

        let removed = detach_all(pins.path()).expect("detaches");
        assert_eq!((removed.links.len(), removed.maps.len()), (2, MAPS.len()));
        assert!(removed.left.contains(&stranger), "{:?}", removed.left);
        assert!(foreign.exists() && stranger.exists());
        assert_eq!(program_on("sl0"), None);

        std::fs::remove_file(&stranger).expect("ours to remove");
        std::fs::remove_dir(&foreign).expect("ours to remove");
        detach_all(pins.path()).expect("again");
        assert!(!pins.path().exists());
        assert_eq!(
            detach_all(pins.path()).expect("once more"),
            Removed::default()
        );
    });
}

#[test]
fn replaced_pins_are_noticed_and_misfits_made_anew() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        let dir = PinDir::new("misfit");
        let pins = Pins::new(dir.path());
        let mut datapath = dir.open(object);
        datapath.attach("sl0", XdpMode::Native).expect("attaches");
        let path = pins.map("usage");
        std::fs::remove_file(&path).expect("unpinned");
        Array::<_, u64>::create(8, 0)
            .expect("a map")
            .pin(&path)
            .expect("pinned");
        let error = datapath.verify().expect_err("noticed").to_string();
        assert!(error.contains("pinned map usage is number"), "{error}");
        drop(datapath);

        let mut datapath = dir.open(object);
        let [rebuilt] = datapath.rebuilt.as_slice() else {
            panic!("{:?}", datapath.rebuilt)
        };
        let message = rebuilt.to_string();
        assert!(
            message.contains("usage had 8 entries of 4 + 8 bytes"),
            "{message}"
        );
        datapath.attach("sl0", XdpMode::Native).expect("replaces");
        datapath.verify().expect("all is well");
        std::fs::remove_file(pins.xdp("sl0")).expect("unpinned");
        assert!(matches!(datapath.verify(), Err(LoadError::NotOurs { .. })));
    });
}

#[test]
fn the_kernel_holds_what_was_planned_and_a_restart_writes_nothing() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        let pins = PinDir::new("store");
        let now = std::time::Duration::from_secs(100);
        let mut one = frontend(vec![endpoint(1), endpoint(2), draining(3)]);
        one.source_ranges
            .push("198.51.100.0/24".parse().expect("net"));
        let wanted = desired([(key(1, 80), one), (key(2, 80), frontend(vec![endpoint(9)]))]);
        let target = Target::new(&wanted, config());

        let mut datapath = pins.open(object);
        let mut store = KernelStore::new(&mut datapath.maps);
        let mut planner = Planner::default();
        let plan = planner.plan(&target, Scope::All, now);
        let outcome = Executor::default().run(&plan, &mut planner, &mut store, now);
        assert_eq!(
            outcome,
            Outcome {
                written: plan.ops.len(),
                ..Outcome::default()
            }
        );
        let (applied, took) = timed(|| read_back(&store).expect("reads"));
        println!("reading the maps back took {took:?}");
        assert_eq!(&applied, planner.applied());
        drop(datapath);

        let mut datapath = pins.open(object);
        let mut store = KernelStore::new(&mut datapath.maps);
        let mut planner = Planner::adopt(read_back(&store).expect("reads"), now);
        assert_eq!(planner.plan(&target, Scope::All, now).ops, []);
        let gone = desired([]);
        let plan = planner.plan(&Target::new(&gone, config()), Scope::All, now);
        let outcome = Executor::default().run(&plan, &mut planner, &mut store, now);
        assert_eq!(outcome.failed, 0);
        let late = now * 10;
        for _ in 0..2 {
            let plan = planner.reclaim(&BTreeSet::new(), late, late);
            Executor::default().run(&plan, &mut planner, &mut store, late);
            let plan = planner.reclaim(&BTreeSet::new(), late * 2, late * 2);
            Executor::default().run(&plan, &mut planner, &mut store, late);
        }
        let left = store.contents().expect("reads");
        assert_eq!((left.frontends.len(), left.endpoints.len()), (0, 0));
        assert_eq!((left.vips.len(), left.ranges.len()), (0, 0));
        assert_eq!(
            left.bitmap
                .iter()
                .map(|bits| bits.count_ones())
                .sum::<u32>(),
            1,
            "SNAT"
        );
    });
}

#[test]
fn tables_are_written_fast_and_to_the_right_place() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        let pins = PinDir::new("tables");
        let mut datapath = pins.open(object);
        let tables = &mut datapath.maps.tables;
        let element = |n: u32| [n; 16];
        for (first, count) in [(0, 1), (63, 2), (64, 64), (1000, 512), (5003, 2048)] {
            let elements: Vec<_> = (first..first + count).map(element).collect();
            let ((), took) = timed(|| tables.write(first, &elements).expect("writes"));
            println!("{count} elements by mapping: {took:?}");
            assert_eq!(tables.read(first, count).expect("reads"), elements);
        }
        // The kernel's own view, element by element.
        let pin = Pins::new(pins.path()).map("tables");
        let map = aya::maps::MapData::from_pin(pin).expect("pinned");
        let mut array = Array::<_, [u32; 16]>::try_from(aya::maps::Map::Array(map)).expect("array");
        assert_eq!(array.get(&5003, 0).expect("reads"), element(5003));
        assert_eq!(array.get(&64, 0).expect("reads"), element(64));
        let ((), took) = timed(|| {
            for n in 1000..1512 {
                array.set(n, element(n), 0).expect("writes");
            }
        });
        println!("512 elements by system calls: {took:?}");
        let end = lb_common::limits::TABLE_ELEMENTS as u32;
        assert!(tables.write(end - 1, &[element(1), element(2)]).is_err());
        assert!(tables.write(end - 1, &[element(1)]).is_ok());
    });
}

#[test]
fn a_sweep_starts_from_nothing() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        let pins = PinDir::new("sweep");
        let mut datapath = pins.open(object);
        let pin = Pins::new(pins.path()).map("usage");
        let map = aya::maps::MapData::from_pin(pin).expect("pinned");
        let mut usage = Array::<_, u64>::try_from(aya::maps::Map::Array(map)).expect("array");
        usage.set(7, 3, 0).expect("writes");
        usage.set(131_071, 1, 0).expect("writes");
        let counted = datapath.maps.usage().expect("reads");
        assert_eq!((counted[7], counted[131_071]), (3, 1));
        let (sweep, took) = timed(|| datapath.sweep().expect("sweeps"));
        println!("an empty sweep took {took:?}");
        assert_eq!(sweep.held(), BTreeSet::new());
    });
}

#[test]
fn a_frame_is_sent_without_a_raw_socket() {
    in_namespace(|| {
        let Some(object) = object() else { return };
        veth();
        let received = || {
            let devices = std::fs::read_to_string("/proc/thread-self/net/dev").expect("readable");
            let line = devices
                .lines()
                .find_map(|line| line.trim().strip_prefix("sl1:"));
            let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            packets.expect("a counter")
        };
        let pins = PinDir::new("emit");
        let datapath = pins.open(object);
        let index = link_by_name("sl0").expect("there").index;
        let before = received();
        let mut frame = vec![0xff; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert!(datapath.emit(index, &frame).expect("runs"));
        assert!(received() > before);
        assert!(!datapath.emit(9999, &frame).expect("runs"));
    });
}
