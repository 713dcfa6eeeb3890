//! Documents that must agree with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use godwit_test_support::{Folder, repository};

#[test]
fn the_page_of_counters_matches_the_tables() {
    let page = repository().join("docs/counters.md");
    let expected = godwit_engine::counters::document();
    if std::env::var_os("GODWIT_WRITE").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let found = fs::read_to_string(&page).unwrap();
    assert!(found == expected, "docs/counters.md is old: GODWIT_WRITE=1 cargo test -p godwit --test documents");
}

/// Page and figures are generated from `bench/results/` and must not be edited.
#[test]
fn the_results_of_benchmarks_match_the_records() {
    let folder = Folder::new();
    let output = Command::new(env!("CARGO_BIN_EXE_godwit"))
        .args(["bench", "report", "--output"])
        .arg(folder.path())
        .current_dir(repository())
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stored = repository().join("docs/benchmarks");
    let generated = files(folder.path());
    assert!(generated.contains(Path::new("results.md")), "{generated:?}");
    for name in &generated {
        let is_equal = fs::read(folder.path().join(name)).unwrap() == fs::read(stored.join(name)).unwrap_or_default();
        assert!(is_equal, "docs/benchmarks/{}: run `cargo xtask regenerate`", name.display());
    }
    let obsolete: Vec<_> = files(&stored).into_iter().filter(|name| !generated.contains(name)).collect();
    assert_eq!(obsolete, [Path::new("README.md")], "files of docs/benchmarks that no record needs");
}

/// Returns the files below `folder`, as paths relative to it.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found
}

/// Returns the names of all counters of dropped or lost packets.
fn loss_counters() -> BTreeSet<String> {
    let page = godwit_engine::counters::document();
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_of_port = |name: &str| name.strip_prefix("port_").is_some_and(|rest| !has_no_loss(rest));
    names.filter(|name| name.contains("_dropped") || is_of_port(name)).map(str::to_owned).collect()
}

/// Returns whether a counter of ports counts packets or bytes that were received or sent.
fn has_no_loss(name: &str) -> bool {
    name.starts_with("received_") || name.starts_with("sent_")
}

/// Returns the code spans of all tables of `page`.
fn code_spans_of_tables(page: &str) -> Vec<&str> {
    page.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn troubleshooting_has_every_drop_reason() {
    let page = fs::read_to_string(repository().join("docs/troubleshooting.md")).unwrap();
    let named: BTreeSet<String> = code_spans_of_tables(&page).into_iter().map(str::to_owned).collect();
    let counters = loss_counters();
    assert!(counters.len() > 60, "{counters:?}");
    // The sum of all drops is described in a sentence, not in a table.
    let missing: Vec<_> = counters.difference(&named).filter(|name| *name != "engine_dropped").collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md has no row for {missing:?}");
    let obsolete: Vec<_> =
        named.iter().filter(|name| name.contains("_dropped_") && !counters.contains(*name)).collect();
    assert!(obsolete.is_empty(), "docs/troubleshooting.md names counters that do not exist: {obsolete:?}");
}

/// Returns the names of events that the sources log or report.
fn events() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["crates", "tools/godwit/src"] {
        for file in
            files(&repository().join(folder)).iter().filter(|file| file.extension().is_some_and(|end| end == "rs"))
        {
            let text = fs::read_to_string(repository().join(folder).join(file)).unwrap();
            for start in ["event = \"", "notices.push((\"", ".notice(\"", "vec![(\"link_"] {
                let found = text.split(start).skip(1).filter_map(|rest| rest.split('"').next());
                let prefix = start.rsplit('"').next().unwrap();
                names.extend(found.map(|name| format!("{prefix}{name}")));
            }
        }
    }
    names
}

#[test]
fn every_event_is_documented() {
    let page = fs::read_to_string(repository().join("docs/monitoring.md")).unwrap();
    let table = page.split("| `event` | meaning |").nth(1).unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let documented: BTreeSet<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let events = events();
    assert!(events.len() > 20 && events.contains("link_down"), "{events:?}");
    let missing: Vec<_> = events.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/monitoring.md has no row for {missing:?}");
}

/// Runs `systemd-analyze`. Returns `None` and reports a skipped test if it is not installed.
fn systemd_analyze(arguments: &[&str]) -> Option<Output> {
    match Command::new("systemd-analyze").args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            godwit_test_support::absent("systemd-analyze");
            None
        }
    }
}

#[test]
fn the_unit_is_hardened() {
    let unit = fs::read_to_string(repository().join("examples/deploy/godwit.service")).unwrap();
    for line in [
        "Type=notify",
        "WatchdogSec=30",
        "StartLimitIntervalSec=0",
        "RuntimeDirectory=godwit/%i",
        "StateDirectory=godwit/%i",
        "CacheDirectory=godwit/%i",
        "LimitCORE=0",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    // Without the name of a template, systemd-analyze does not accept %i.
    let path = folder.path().join("godwit@.service");
    fs::write(&path, unit).unwrap();
    // The threshold is ten times the exposure.
    let arguments = ["security", "--offline=true", "--threshold=20", "--no-pager", path.to_str().unwrap()];
    let Some(output) = systemd_analyze(&arguments) else { return };
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("Overall exposure level"), "{output:?}");
    assert!(output.status.success(), "{table}");
}

/// Returns the system calls of a list of names and groups, as in `SystemCallFilter=`.
fn system_calls(names: &str) -> Option<BTreeSet<String>> {
    let mut calls = BTreeSet::new();
    for name in names.split_whitespace() {
        if !name.starts_with('@') {
            calls.insert(name.to_owned());
            continue;
        }
        let output = systemd_analyze(&["syscall-filter", "--no-pager", name])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let members = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for member in members {
            calls.extend(system_calls(member)?);
        }
    }
    Some(calls)
}

#[test]
fn system_calls_of_a_run_pass_the_filter_of_the_unit() {
    let unit = fs::read_to_string(repository().join("examples/deploy/godwit.service")).unwrap();
    let mut allowed = BTreeSet::new();
    for filter in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let Some(calls) = system_calls(filter.trim_start_matches('~')) else { return };
        match filter.starts_with('~') {
            true => allowed.retain(|call| !calls.contains(call)),
            false => allowed.extend(calls),
        }
    }
    assert!(allowed.contains("read") && allowed.contains("bpf") && !allowed.contains("reboot"), "{allowed:?}");
    if Command::new("strace").arg("-V").output().is_err() {
        return godwit_test_support::absent("strace");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = "[engine]\nworkers = 1\n[[port]]\nname = \"in\"\nkind = \"af_xdp\"\ninterface = \"left\"\n\
        [[function]]\nname = \"route\"\nkind = \"ipv4\"\n[function.follow]\nroutes = \"fpm\"\n\
        interfaces = { in = \"left\" }\n[[chain]]\nfrom = \"in\"\nto = \"route\"\n\
        [[chain]]\nfrom = \"route\"\nto = \"in\"\n";
    fs::write(path("chain.toml"), config).unwrap();
    let ran = godwit_test_support::network::in_namespace(|| {
        godwit_test_support::network::veth_pair(["left", "right"]);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-c", "-U", "name", "-o"]).arg(path("calls")).arg(env!("CARGO_BIN_EXE_godwit"));
        command.arg("run").arg(path("chain.toml")).arg("--control").arg(path("control"));
        command.args(["--seconds", "1", "--json"]).arg(path("report.json")).output().unwrap()
    });
    let Some(output) = ran else { return };
    assert!(output.status.success(), "{output:?}");
    let calls = fs::read_to_string(path("calls")).unwrap();
    let used: BTreeSet<String> = calls.lines().map(|line| line.trim().to_owned()).collect();
    let is_call = |name: &&String| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !["total", "syscall"].contains(&name.as_str())
    };
    assert!(used.contains("bpf") && used.contains("sched_setaffinity"), "{used:?}");
    // strace shows execve, by which systemd starts the program, and which the filter allows.
    let forbidden: Vec<_> = used.iter().filter(is_call).filter(|name| !allowed.contains(*name)).collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
}
