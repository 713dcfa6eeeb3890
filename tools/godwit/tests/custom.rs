//! Functions of users: the program compiles, runs, changes and refuses them.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use common::running::Running;
use common::{example, godwit, replay, run};
use godwit_test_support::capture;
use godwit_test_support::program::counter;

/// Copies the first lesson to a folder.
fn lesson(folder: &Path) {
    for name in ["police.c", "police.toml", "police.pcap", "police.expect", "senders.csv"] {
        fs::copy(example("functions/police").join(name), folder.join(name)).unwrap();
    }
}

#[test]
fn a_table_changes_while_packets_flow() {
    let folder = tempfile::tempdir().unwrap();
    lesson(folder.path());
    let config = folder.path().join("police.toml");
    let control = folder.path().join("control");
    let _running = Running::start(&config, &control);
    let function = |words: &[&str]| {
        let mut command = godwit();
        command.arg("function").arg("--control").arg(&control).args(["police", "senders"]).args(words);
        run(&mut command)
    };
    let said = function(&["list"]).succeeded();
    assert!(said.stdout.starts_with("prefix") && said.stdout.lines().count() == 6, "{said:?}");
    assert_eq!(function(&["add", "192.0.2.0/24", "mark=0"]).succeeded().stdout, "1 changed\n");
    let passed = || {
        let said = run(godwit().arg("status").arg("--control").arg(&control).args(["--json", "-"])).succeeded();
        counter(&serde_json::from_str(&said.stdout).unwrap(), "my_police_verdict_pass")
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
    assert_eq!(function(&["list"]).succeeded().stdout.lines().count(), 8);
}

#[test]
fn what_must_not_run_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    lesson(folder.path());
    let (source, config) = (folder.path().join("police.c"), folder.path().join("police.toml"));
    let good = fs::read_to_string(&source).unwrap();
    let check = || run(godwit().arg("check").arg(&config));
    check().succeeded();
    for (before, after, parts) in [
        ("return;", "retrun;", &["police.c:", "retrun"][..]),
        ("gw_load_be16(frame + 12)", "getpid()", &["police.c:", "getpid"]),
        ("reads   = 34", "reads   = \"some\"", &["police.c:4: "]),
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

#[test]
fn a_package_runs_without_a_compiler() {
    let folder = tempfile::tempdir().unwrap();
    lesson(folder.path());
    let at = |name: &str| folder.path().join(name);
    let said = run(godwit().current_dir(folder.path()).args(["build", "police.c", "-o", "police.gwf"])).succeeded();
    let keys = said.stdout.clone();
    assert!(keys.starts_with("source = \"police.gwf\"\nsha256 = \""), "{said:?}");
    let config = fs::read_to_string(at("police.toml")).unwrap();
    let line = config.lines().find(|line| line.starts_with("source = \"police.c\"")).unwrap();
    fs::write(at("package.toml"), config.replace(line, keys.trim_end())).unwrap();
    let outputs = ["police.toml", "package.toml"].map(|config| {
        let output = at("out.pcap");
        replay(&at(config), &at("police.pcap"), &output);
        capture::read(&output)
    });
    assert_eq!(outputs[0], outputs[1]);
    assert!(!outputs[0].is_empty());

    // A compiler that always fails shows that the package needs none.
    let without = |config: &str| run(godwit().env("GODWIT_CC", "/bin/false").arg("check").arg(at(config)));
    let cache = at("cache");
    let empty = |config: &str| {
        let mut command = godwit();
        command.env("GODWIT_CC", "/bin/false").env("XDG_CACHE_HOME", &cache).arg("check").arg(at(config));
        run(&mut command)
    };
    empty("package.toml").succeeded();
    assert!(empty("police.toml").refused().contains("C compiler"));
    let good = fs::read(at("police.gwf")).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    fs::write(at("police.gwf"), &damaged).unwrap();
    assert!(without("package.toml").refused().contains("SHA-256"));
    let without_sum: Vec<&str> = keys.lines().take(1).collect();
    fs::write(at("package.toml"), config.replace(line, without_sum[0])).unwrap();
    assert!(without("package.toml").refused().contains("the package is damaged"));
    fs::write(at("police.gwf"), &good).unwrap();
    without("package.toml").succeeded();
    fs::set_permissions(at("police.gwf"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(without("package.toml").refused().contains("chmod"));
}

/// The network card selects the worker by flow, but a NAT keeps its flows by source.
#[test]
fn a_nat_gives_the_same_result_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["nat44.c", "nat44.toml"] {
        fs::copy(example("functions/nat44").join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("nat44.toml");
    let text = fs::read_to_string(&path).unwrap().replacen(
        "source = \"10.0.0.0/8\"",
        "source = \"10.0.0.0/8\"\npackets = 30000\nspread = \"flow\"",
        1,
    );
    // The packets from outside are not for the pool, so every worker can process them.
    let text = text.replacen("192.0.2.0/30", "203.0.113.0/24", 1);
    let text = text.replacen("seed = 2", "seed = 2\npackets = 1000\nspread = \"flow\"", 1);
    let counted = |workers: usize| {
        fs::write(&path, format!("[engine]\nworkers = {workers}\npin = false\n{text}")).unwrap();
        let json = folder.path().join("report.json");
        run(godwit().arg("run").arg(&path).arg("--json").arg(&json)).succeeded();
        let report = common::conserved(&fs::read_to_string(&json).unwrap());
        let exchanged = counter(&report, "engine_exchanged");
        assert_eq!(exchanged > 0, workers > 1, "{report:#}");
        ["outbound", "inbound", "bypass"].map(|verdict| counter(&report, &format!("nat44_verdict_{verdict}")))
    };
    for workers in 1..=3 {
        assert_eq!(counted(workers), [30_000, 0, 1000], "{workers} workers");
    }
}
