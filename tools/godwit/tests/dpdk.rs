//! A process with ports of DPDK that is killed: nothing stays in the file system, and the next one starts.
#![cfg(feature = "dpdk")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

/// Where DPDK leaves files, and file systems of hugepages.
fn files() -> BTreeSet<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("this is Linux");
    let hugepages = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (*words.get(2)? == "hugetlbfs").then(|| words[1].to_owned())
    });
    let folders = ["/var/run/dpdk", "/dev/shm"].map(str::to_owned).into_iter().chain(hugepages);
    folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().map(|entry| entry.path()).collect()
}

fn ip(arguments: &str) -> String {
    let said = Command::new("ip").args(arguments.split(' ')).output().expect("ip starts");
    assert!(said.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// Starts it with ports of this driver until packets are forwarded, and kills it.
fn killed_again_and_again(driver: &str, folder: &Path) {
    let port = |name: &str, number: u8| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"dpdk\"\ndevice = \"{driver}{number},iface=gw-k{number}\"\n")
    };
    let text = format!(
        "[engine]\npin = false\n{}{}[[function]]\nname = \"echo\"\nkind = \"echo\"\n[[chain]]\nfrom = \"left\"\nto = \"echo\"\n\
         [[chain]]\nfrom = \"echo\"\nto = \"right\"\n",
        port("left", 0),
        port("right", 1)
    );
    let config = folder.join("killed.toml");
    std::fs::write(&config, text).expect("a file");
    let before = files();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/veth_frames.py");
    for turn in 0..3 {
        let mut godwit = Command::new(env!("CARGO_BIN_EXE_godwit"))
            .arg("run")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let started = Instant::now();
        loop {
            let said =
                Command::new("/usr/bin/python3").args([script, "gw-p0", "gw-p1", "100"]).output().expect("python");
            if String::from_utf8_lossy(&said.stdout).trim() == "sent 100 came 100 right 100" {
                break;
            }
            if godwit.try_wait().expect("it can be asked").is_some() {
                let said = godwit.wait_with_output().expect("it has ended");
                panic!("{driver}, turn {turn}: {}", String::from_utf8_lossy(&said.stderr));
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{driver}, turn {turn}: nothing is forwarded");
        }
        godwit.kill().expect("it runs");
        godwit.wait().expect("it ends");
        let left: Vec<_> = files().difference(&before).cloned().collect();
        let of_process = format!("{}", godwit.id());
        assert!(!left.iter().any(|path| path.to_string_lossy().contains(&of_process)), "{left:?}");
        assert!(!left.iter().any(|path| path.to_string_lossy().contains("godwit")), "{left:?}");
    }
}

#[test]
fn a_process_that_is_killed_leaves_nothing_in_the_way_of_the_next() {
    let body = || {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            std::io::stderr().write_all(b"skipped: no right to make a network namespace\n").expect("stderr");
            return;
        }
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok();
        for number in 0..2 {
            ip(&format!("link add gw-k{number} type veth peer name gw-p{number}"));
            for interface in ["k", "p"] {
                ip(&format!("link set gw-{interface}{number} up"));
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        for driver in ["net_af_packet", "net_af_xdp"] {
            killed_again_and_again(driver, folder.path());
        }
    };
    // On a thread of its own, which takes its namespace with it.
    std::thread::scope(|scope| scope.spawn(body).join().expect("the test passes"));
}
