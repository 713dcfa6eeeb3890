//! Errors that the user can fix: one sentence, exit code 2, and no file is left.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Finished, example, godwit, listing, run};
use godwit_test_support::repository;

/// A folder with valid and invalid captures and configurations.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let whole = fs::read(repository().join("tests/captures/delay_10_smtp_1.pcap")).unwrap();
    write("good.pcap", &whole);
    write("cut.pcap", &whole[..whole.len() - 7]);
    write("text.pcap", b"this is no capture, it is a text of more than 24 bytes");
    write("nothing.pcap", b"");
    let mut malformed = whole[..24].to_vec();
    malformed.extend([0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    malformed.extend([0; 64]);
    write("malformed.pcap", &malformed);
    fs::copy(repository().join("tests/captures/tcpdump_LINKTYPE_RAW_ipv4.pcap"), folder.path().join("raw.pcap"))
        .unwrap();
    let config = fs::read_to_string(example("03-ipsec-gateway-out.toml")).unwrap();
    write("good.toml", config.as_bytes());
    write("misspelt.toml", config.replace("kind = \"ipv4\"", "kind = \"ipv4\"\nruotes = \"x\"").as_bytes());
    write("key.toml", config.replace("000102030405060708090a0b0c0d0e0f", "0001").as_bytes());
    write(
        "cycle.toml",
        format!("{config}\n[[chain]]\nfrom = \"tunnel\"\nverdict = \"bypass\"\nto = \"route\"\n").as_bytes(),
    );
    let twice = config.replace("name = \"tunnel\"", "name = \"route\"");
    write("twice.toml", twice.as_bytes());
    write("huge.toml", config.replace("kind = \"ipv4\"", "kind = \"ipv4\"\nroutes = \"routes.txt\"").as_bytes());
    write("device.toml", config.replace("kind = \"ipv4\"", "kind = \"ipv4\"\ndevice = \"opencl:99\"").as_bytes());
    write("missing-capture.toml", MISSING_CAPTURE.as_bytes());
    write("write-full.toml", WRITE_FULL.as_bytes());
    folder
}

const MISSING_CAPTURE: &str = r#"
[[port]]
name = "in"
kind = "pcap"
file = "none.pcap"

[[port]]
name = "out"
kind = "pcap"
write = "written.pcap"

[[chain]]
from = "in"
to = "out"
"#;

const WRITE_FULL: &str = r#"
[[port]]
name = "in"
kind = "synthetic"

[[port]]
name = "out"
kind = "pcap"
write = "/dev/full"

[[chain]]
from = "in"
to = "out"
"#;

/// Runs `arguments` and expects a sentence. Paths are relative to `folder`, except those that start
/// with `/`.
#[track_caller]
fn refuse(folder: &Path, arguments: &str, expected: &[&str]) {
    let before = listing(folder);
    let printed = run(godwit().current_dir(folder).args(arguments.split_whitespace()));
    let sentence = printed.refused();
    for part in expected {
        assert!(sentence.contains(part), "`godwit {arguments}` says: {sentence}");
    }
    assert_eq!(listing(folder), before, "`godwit {arguments}` leaves something behind");
}

#[test]
fn bad_configurations() {
    let folder = folder();
    let folder = folder.path();
    refuse(folder, "check none.toml", &["none.toml", "No such file"]);
    refuse(folder, "run none.toml", &["none.toml", "No such file"]);
    refuse(folder, "check misspelt.toml", &["misspelt.toml:", "ruotes", "routes"]);
    refuse(folder, "run misspelt.toml --seconds 1 --json r.json", &["misspelt.toml:", "ruotes"]);
    refuse(folder, "check key.toml", &["key.toml:", "encryption_key", "32 hex digits"]);
    refuse(folder, "check cycle.toml", &["cycle.toml:", "route", "tunnel"]);
    refuse(folder, "check twice.toml", &["twice.toml:", "two functions are named `route`"]);
    refuse(folder, "check huge.toml", &["huge.toml:", "routes.txt"]);
    refuse(folder, "check missing-capture.toml", &["missing-capture.toml:", "none.pcap"]);
    refuse(folder, "run missing-capture.toml", &["missing-capture.toml:", "none.pcap"]);
    refuse(folder, "check .", &["Is a directory"]);
    refuse(folder, "replay device.toml --in good.pcap --out out.pcap --json r.json", &["opencl:99"]);
}

#[test]
fn a_key_is_never_shown() {
    let folder = folder();
    let printed = run(godwit().current_dir(folder.path()).args(["check", "key.toml"]));
    assert!(!printed.stderr.contains("0001"), "{printed:?}");
}

#[test]
fn bad_captures() {
    let folder = folder();
    let folder = folder.path();
    let cases = [
        ("none.pcap", "No such file"),
        ("text.pcap", "not a pcap or pcapng file"),
        ("nothing.pcap", "not a pcap or pcapng file"),
        ("cut.pcap", "cut off after 34 whole packets"),
        ("malformed.pcap", "malformed"),
        ("raw.pcap", "only Ethernet"),
        (".", "directory"),
    ];
    for (name, expected) in cases {
        refuse(folder, &format!("replay good.toml --in {name} --out out.pcap --json r.json"), &[name, expected]);
    }
}

#[test]
fn unwritable_outputs_are_refused() {
    let folder = folder();
    let folder = folder.path();
    let replay = "replay good.toml --in good.pcap";
    refuse(folder, &format!("{replay} --out none/out.pcap"), &["none/out.pcap", "No such file"]);
    refuse(folder, &format!("{replay} --out /dev/full"), &["/dev/full", "No space left"]);
    refuse(folder, &format!("{replay} --out ."), &["directory"]);
    refuse(folder, &format!("{replay} --out good.pcap"), &["good.pcap is both read and written"]);
    refuse(folder, &format!("{replay} --out out.pcap --json none/r.json"), &["none/r.json: No such file or directory"]);
    refuse(folder, &format!("{replay} --out out.pcap --json ."), &["Is a directory"]);
    refuse(folder, "run write-full.toml --seconds 5 --json r.json", &["out", "/dev/full", "No space left"]);
    refuse(folder, "bench list --json none/r.json", &["none/r.json: No such file or directory"]);
}

/// The disk fills up during a run: the shell limits files to 64 blocks of 512 or 1024 bytes.
#[test]
fn a_full_disk_during_a_capture_is_reported() {
    let folder = folder();
    fs::copy(repository().join("tests/captures/delay_10_sip_video_call_full.pcap"), folder.path().join("good.pcap"))
        .unwrap();
    let before = listing(folder.path());
    let mut shell = Command::new("sh");
    shell.current_dir(folder.path()).args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_godwit")).args(["replay", "good.toml", "--in", "good.pcap", "--out", "out.pcap"]);
    let printed = run(&mut shell);
    assert!(printed.refused().contains("out.pcap"), "{printed:?}");
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn an_unwritable_report_is_an_error() {
    let folder = folder();
    let before = listing(folder.path());
    let mut command = godwit();
    command
        .current_dir(folder.path())
        .args("replay good.toml --in good.pcap --out out.pcap --json /dev/full".split(' '));
    let printed = run(&mut command);
    assert_eq!(printed.code, Some(2), "{printed:?}");
    assert!(printed.stderr.contains("godwit: cannot write /dev/full: No space left"), "{printed:?}");
    // The capture was already complete.
    assert_eq!(listing(folder.path()).len(), before.len() + 1);
}

/// A restart would repeat nonces of counter modes. Other modes, new keys and replays need no state
/// folder.
#[test]
fn a_counter_mode_key_from_a_file_needs_a_state_folder() {
    let folder = folder();
    let path = folder.path();
    let config = fs::read_to_string(path.join("good.toml")).unwrap();
    let cbc = "encryption = \"aes-128-cbc\"\nencryption_key = \"000102030405060708090a0b0c0d0e0f\"\n\
               authentication = \"hmac-sha1-96\"\nauthentication_key = \"101112131415161718191a1b1c1d1e1f20212223\"\n";
    assert!(config.contains(cbc), "{config}");
    let gcm = "encryption = \"aes-128-gcm\"\nencryption_key = \"b0a1c2d3e4f5061728394a5b6c7d8e9f00112233\"\n";
    fs::write(path.join("gcm.toml"), config.replace(cbc, gcm)).unwrap();
    fs::write(path.join("new.toml"), config.replace(cbc, &format!("{gcm}key_is_new = true\n"))).unwrap();
    let parts =
        ["SA \"", "of function `tunnel` would repeat nonces after a restart", "set [engine] state", "key_is_new"];
    refuse(path, "check gcm.toml", &parts);
    refuse(path, "run gcm.toml --seconds 1", &parts);
    for arguments in ["check good.toml", "check new.toml", "check gcm.toml --state state"] {
        run(godwit().current_dir(path).args(arguments.split(' '))).succeeded();
    }
    assert!(!path.join("state").exists(), "a check changes nothing");
    run(godwit().current_dir(path).args("replay gcm.toml --in good.pcap --out out.pcap".split(' '))).succeeded();
    let systemd = path.join("of-systemd");
    run(godwit().current_dir(path).env("STATE_DIRECTORY", &systemd).args(["check", "gcm.toml"])).succeeded();
}

#[test]
fn bad_arguments() {
    let folder = folder();
    let folder = folder.path();
    refuse(folder, "", &["no command"]);
    refuse(folder, "replya", &["replya", "replay"]);
    refuse(folder, "run", &["CONFIG"]);
    let printed = run(godwit().args(["run", "good.toml", "--second", "1"]));
    let sentence = printed.refused();
    assert!(sentence.contains("did you mean `--seconds`?") && !sentence.contains("tip:"), "{sentence}");
    refuse(folder, "run good.toml --seconds 0", &["seconds above 0"]);
    refuse(folder, "run good.toml --seconds -1", &["--seconds", "seconds above 0", "not -1"]);
    refuse(folder, "demo --seconds soon", &["soon"]);
    refuse(folder, "replay good.toml --in good.pcap", &["--out"]);
    refuse(folder, "replay good.toml --out out.pcap", &["--in"]);
    refuse(folder, "replay good.toml --in wna=good.pcap --out out.pcap", &["wna", "wan"]);
    refuse(folder, "replay good.toml --in good.pcap --out a=out.pcap", &["unknown port `a`"]);
    refuse(folder, "replay good.toml --in good.pcap --in good.pcap --out out.pcap", &["lan", "twice"]);
    refuse(folder, "replay good.toml --in good.pcap --out a.pcap --out b.pcap", &["--out"]);
    refuse(folder, "bench", &["NAME"]);
    refuse(folder, "bench nothing", &["nothing", "ipsec"]);
    refuse(folder, "bench echo --size huge", &["huge", "imix"]);
    refuse(folder, "bench echo --size 5", &["size", "5"]);
    refuse(folder, "bench echo --device toaster", &["toaster", "cpu"]);
    refuse(folder, "bench engine --device opencl:0", &["opencl:0", "on the CPU only"]);
    refuse(folder, "bench echo --impl fast", &["fast"]);
}

#[test]
fn help_and_version_exit_with_zero() {
    for arguments in [&["--help"][..], &["--version"], &["replay", "--help"]] {
        let printed: Finished = run(godwit().args(arguments)).succeeded();
        assert!(printed.stdout.contains("godwit") && printed.stderr.is_empty(), "{printed:?}");
    }
}
