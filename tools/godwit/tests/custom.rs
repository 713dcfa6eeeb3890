//! Functions of users: the program compiles, runs, changes and refuses them.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use common::running::Running;
use common::{example, godwit, replay, run};
use godwit_test_support::program::counter;
use godwit_test_support::{FrameBuilder, capture, skip};

/// Configuration of lesson 7 with captures instead of generated packets. `{device}` is replaced.
const POLICE: &str = r#"
[[port]]
name = "in"
kind = "synthetic"

[[port]]
name = "out"
kind = "synthetic"

{device}

[[function]]
name = "police"
kind = "custom"
source = "07-police.c"
tables.senders = "07-senders.csv"
params.limit = 20
{keys}

[[chain]]
from = "in"
to = "police"

[[chain]]
from = "police"
to = "out"
"#;

/// Copies lesson 7 to a folder.
fn lesson(folder: &Path) {
    for name in ["07-police.c", "07-senders.csv"] {
        fs::copy(example(name), folder.join(name)).unwrap();
    }
}

#[test]
fn lesson_7_gives_the_same_packets_on_all_devices() {
    let folder = tempfile::tempdir().unwrap();
    lesson(folder.path());
    let from = |source: [u8; 4]| FrameBuilder::new().ipv4(source, [10, 0, 0, 1]).udp([1, 2], b"payload");
    let frames = [
        from([192, 0, 2, 1]),    // not on the list
        from([203, 0, 113, 1]),  // mark 0
        from([203, 0, 113, 70]), // mark 3
        from([198, 51, 100, 6]), // mark 8
        from([198, 51, 100, 7]), // mark 99, above the limit
        FrameBuilder::new().ethernet(0x0806, &[0; 46]),
    ];
    let input = folder.path().join("in.pcap");
    capture::write(&input, &vec![frames; 50].concat());
    let mut passed: Option<Vec<Vec<u8>>> = None;
    for (device, keys) in [
        ("", "impl = \"native\""),
        ("", "impl = \"gopt\""),
        ("", "impl = \"scalar\""),
        ("", "impl = \"ref\""),
        ("[[device]]\nname = \"opencl:0\"\nmode = \"launch\"", "device = \"opencl:0\""),
        ("[[device]]\nname = \"opencl:0\"\nmode = \"persistent\"", "device = \"opencl:0\""),
        ("[[device]]\nname = \"cuda:0\"\nmode = \"launch\"", "device = \"cuda:0\""),
    ] {
        let config = folder.path().join("police.toml");
        fs::write(&config, POLICE.replace("{device}", device).replace("{keys}", keys)).unwrap();
        let output = folder.path().join("out.pcap");
        if !device.is_empty() {
            let mut command = godwit();
            command.arg("replay").arg(&config).arg("--in").arg(&input).arg("--out").arg(&output);
            let said = run(&mut command);
            if said.code == Some(2) && said.stderr.contains("device `") {
                skip(said.stderr.trim());
                continue;
            }
        }
        let report = replay(&config, &input, &output);
        for name in ["police_verdict_pass", "police_verdict_marked", "police_dropped_listed"] {
            assert_eq!(counter(&report, name), 100, "{name}, {keys}: {report:#}");
        }
        let frames = capture::read(&output);
        assert_eq!(frames.len(), 200, "{keys}");
        assert_eq!(*passed.get_or_insert_with(|| frames.clone()), frames, "{keys}");
    }
}

#[test]
fn a_table_changes_while_packets_flow() {
    let folder = tempfile::tempdir().unwrap();
    lesson(folder.path());
    let config = folder.path().join("police.toml");
    fs::copy(example("07-police.toml"), &config).unwrap();
    let control = folder.path().join("control");
    let _running = Running::start(&config, &control);
    let function = |words: &[&str]| {
        let mut command = godwit();
        command.arg("function").arg("--control").arg(&control).args(["police", "senders"]).args(words);
        run(&mut command)
    };
    let said = function(&["list"]).succeeded();
    assert!(said.stdout.starts_with("prefix") && said.stdout.lines().count() == 5, "{said:?}");
    assert_eq!(function(&["add", "192.0.2.0/24", "mark=0"]).succeeded().stdout, "1 changed\n");
    let passed = || {
        let said = run(godwit().arg("status").arg("--control").arg(&control).args(["--json", "-"])).succeeded();
        counter(&serde_json::from_str(&said.stdout).unwrap(), "police_verdict_pass")
    };
    // Every generated sender is on the list now, except for packets in flight.
    std::thread::sleep(Duration::from_millis(100));
    let before = passed();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(passed(), before);
    fs::write(folder.path().join("more.csv"), "mark,prefix\n1,10.0.0.0/8\n2,11.0.0.0/8\n").unwrap();
    let more = folder.path().join("more.csv");
    assert_eq!(function(&["add", "--file", more.to_str().unwrap()]).succeeded().stdout, "2 changed\n");
    assert_eq!(function(&["remove", "192.0.2.0/24"]).succeeded().stdout, "1 changed\n");
    assert!(function(&["remove", "192.0.2.0/24"]).refused().contains("no entry 192.0.2.0/24"));
    assert!(function(&["add", "192.0.2.0/99", "mark=0"]).refused().contains("IPv4 prefix"));
    assert_eq!(function(&["list"]).succeeded().stdout.lines().count(), 7);
}

#[test]
fn what_must_not_run_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    lesson(folder.path());
    let (source, config) = (folder.path().join("07-police.c"), folder.path().join("police.toml"));
    fs::copy(example("07-police.toml"), &config).unwrap();
    let good = fs::read_to_string(&source).unwrap();
    let check = || run(godwit().arg("check").arg(&config));
    check().succeeded();
    for (before, after, parts) in [
        ("return;", "retrun;", &["07-police.c:", "retrun"][..]),
        ("gw_load_be16(frame + 12)", "getpid()", &["07-police.c:", "getpid"]),
        ("reads   = 34", "reads   = \"some\"", &["07-police.c:4: "]),
    ] {
        assert!(good.contains(before));
        fs::write(&source, good.replacen(before, after, 1)).unwrap();
        let said = check();
        let sentence = said.refused();
        assert!(parts.iter().all(|part| sentence.contains(part)), "{sentence}");
    }
    fs::write(&source, &good).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(check().refused().contains("chmod"));
    fs::set_permissions(&source, fs::Permissions::from_mode(0o644)).unwrap();

    let cache = folder.path().join("cache");
    fs::create_dir_all(cache.join("godwit/functions")).unwrap();
    fs::set_permissions(cache.join("godwit/functions"), fs::Permissions::from_mode(0o777)).unwrap();
    let said = run(godwit().env("XDG_CACHE_HOME", &cache).arg("check").arg(&config));
    assert!(said.refused().contains("chmod 700"), "{said:?}");
}

#[test]
fn a_new_function_runs_from_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let new = |name: &str| run(godwit().current_dir(folder.path()).args(["new-function", name]));
    new("mine").succeeded();
    assert_eq!(common::listing(folder.path()), ["mine.c", "mine.csv", "mine.toml"]);
    run(godwit().current_dir(folder.path()).args(["check", "mine.toml"])).succeeded();
    let mut command = godwit();
    command.current_dir(folder.path()).args(["run", "mine.toml", "--seconds", "0.2", "--json", "-"]);
    let report = common::conserved(&run(&mut command).succeeded().stdout);
    assert!(counter(&report, "mine_verdict_known") > 0 && counter(&report, "mine_verdict_other") > 0, "{report:#}");
    for (name, part) in [("mine", "mine.c exists"), ("ipv4", "built-in"), ("Mine", "lower-case")] {
        assert!(new(name).refused().contains(part), "{name}");
    }
}
