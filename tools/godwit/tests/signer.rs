//! Tests `godwit signer` and `godwit proxy` as separate processes.
#![cfg(feature = "tls")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdout, Command, Stdio};

use common::{godwit, run};
use godwit_test_support::process::Background;
use godwit_test_support::{Folder, absent, certificate, skip};
use nix::sys::signal::Signal;

/// Configuration for both programs, with a key that was created for this test.
fn configuration(folder: &Folder, process: &str) -> Option<std::path::PathBuf> {
    let arguments = ["req", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", "/CN=localhost", "-keyout", "key"];
    let end = ["-addext", "basicConstraints=critical,CA:FALSE", "-out", "crt"];
    certificate::openssl(folder, &[&arguments[..], &end].concat())?;
    let text = format!(
        "workers = 1\n[signer]\n{process}\n[[signer.key]]\nname = \"key\"\ncertificate = \"crt\"\nkey = \"key\"\n\
         [[proxy]]\nname = \"front\"\nlisten = \"127.0.0.1:0\"\nmode = \"tcp\"\nkeys = [\"key\"]\n\
         upstream = [{{ address = \"127.0.0.1:1\" }}]\n"
    );
    Some(folder.write("proxy.toml", text))
}

const SEPARATE: &str = "process = \"separate\"\nsocket = \"socket\"";

/// Running command of Godwit.
struct Program {
    process: Background,
    /// Reading end of standard output, which stays open.
    _output: BufReader<ChildStdout>,
    lines: Vec<String>,
}

impl Program {
    /// Starts a command, and waits for `count` lines of output.
    fn start(arguments: &[&str], folder: &Folder, count: usize) -> Self {
        let mut command = godwit();
        command.args(arguments).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Background::start(&mut command);
        let mut output = BufReader::new(process.take_stdout());
        let mut line = || {
            let mut line = String::new();
            output.read_line(&mut line).expect("UTF-8");
            line.trim_end().to_owned()
        };
        let lines = (0..count).map(|_| line()).collect();
        Self { process, _output: output, lines }
    }

    fn stop(mut self) {
        self.process.signal(Signal::SIGTERM);
        assert_eq!(self.process.wait().code(), Some(0));
    }
}

/// Returns whether the memory of a process contains one of these byte strings.
fn memory_contains(id: u32, needles: &[Vec<u8>]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{id}/maps")).expect("the process runs");
    let mut memory = File::open(format!("/proc/{id}/mem")).expect("root reads all memory");
    let mut found = false;
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with('r'))) {
        let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let mut bytes = Vec::new();
        // Some mappings of the kernel are not readable.
        if memory.seek(SeekFrom::Start(number(start))).is_err() {
            continue;
        }
        let _ = (&mut memory).take(number(end) - number(start)).read_to_end(&mut bytes);
        found |= needles.iter().any(|needle| bytes.windows(needle.len()).any(|part| part == needle.as_slice()));
    }
    found
}

/// Returns the middle of the first prime of a key, in both byte orders.
fn prime(folder: &Folder) -> Option<Vec<Vec<u8>>> {
    let text = certificate::openssl(folder, &["rsa", "-in", "key", "-noout", "-text"])?;
    let digits: String = text.split("prime1:").nth(1)?.split("prime2:").next()?.split_whitespace().collect();
    let bytes: Vec<u8> = digits.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let part = bytes.get(40..72)?.to_vec();
    let reversed = part.iter().rev().copied().collect();
    Some(vec![part, reversed])
}

/// The key is in the memory of the signer, but not in that of the proxy. Neither process writes a
/// core dump, and the memory of keys is locked.
#[test]
fn the_proxy_holds_no_key() {
    let folder = Folder::new();
    let Some(file) = configuration(&folder, SEPARATE) else { return };
    if !nix::unistd::geteuid().is_root() {
        return skip("reading the memory of a process needs root");
    }
    let needles = prime(&folder).expect("a key of RSA");
    let file = file.to_str().expect("UTF-8");
    let signer = Program::start(&["signer", file], &folder, 1);
    let limits = |id| fs::read_to_string(format!("/proc/{id}/limits")).expect("the process runs");
    let limit = |id, name: &str| limits(id).lines().find(|line| line.starts_with(name)).expect("a limit").to_owned();
    // Some containers do not allow root to raise the limit.
    let may_lock_all = limit(signer.process.id(), "Max locked memory").contains("unlimited");
    let memory = if may_lock_all { "all memory is locked" } else { "only the memory of keys is locked" };
    assert!(signer.lines[0].starts_with(&format!("signer: 1 key, {memory}, lanes: ")), "{:?}", signer.lines);
    let proxy = Program::start(&["proxy", file], &folder, 2);
    let address = proxy.lines[0].rsplit(' ').next().expect("an address").to_owned();
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &address, "-CAfile", "crt", "-verify_return_error"]).stdin(Stdio::null());
    let output = client.current_dir(folder.path()).output().expect("openssl is installed");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Verify return code: 0 (ok)"), "{output:?}");

    assert!(memory_contains(signer.process.id(), &needles), "the search finds a key");
    assert!(!memory_contains(proxy.process.id(), &needles), "the proxy has the key");
    for id in [&signer, &proxy].map(|program| program.process.id()) {
        let words: Vec<String> = limit(id, "Max core file size").split_whitespace().map(str::to_owned).collect();
        assert_eq!(words[4..6], ["0", "0"]);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", signer.process.id())).unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap().trim();
    let locked_kib: u64 = locked.trim_end_matches(" kB").parse().unwrap();
    assert!(locked_kib > if may_lock_all { 10_000 } else { 0 }, "{locked}");

    proxy.stop();
    signer.stop();
    assert!(!folder.join("socket").exists());
}

/// Only the users of the configuration may have handshakes signed.
#[test]
fn other_users_are_refused() {
    let folder = Folder::new();
    let Some(file) = configuration(&folder, SEPARATE) else { return };
    if !nix::unistd::geteuid().is_root() {
        return skip("changing the user needs root");
    }
    for (path, mode) in [(folder.path().to_owned(), 0o755), (folder.join("crt"), 0o644), (file.clone(), 0o644)] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let signer = Program::start(&["signer", file.to_str().unwrap()], &folder, 1);
    let mut command = godwit();
    command.arg("proxy").arg(&file).current_dir("/").uid(65_534).gid(65_534);
    let Ok(output) = command.output() else { return absent("a program that other users may execute") };
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    assert!(sentence.contains("the signer refuses user 65534"), "{sentence}");
    signer.stop();
}

#[test]
fn mistakes_are_one_sentence() {
    let folder = Folder::new();
    let Some(file) = configuration(&folder, "") else { return };
    let printed = run(godwit().arg("signer").arg(&file));
    assert!(printed.refused().starts_with("[signer] process = \"inside\": the proxy holds the keys itself"));
    let Some(file) = configuration(&folder, SEPARATE) else { return };
    let printed = run(godwit().arg("proxy").arg(&file));
    assert!(printed.refused().contains("socket: No such file or directory (os error 2): start `godwit signer`"));
    let signer = Program::start(&["signer", file.to_str().unwrap()], &folder, 1);
    let printed = run(godwit().arg("signer").arg(&file));
    assert!(printed.refused().contains("Address already in use"), "{printed:?}");
    drop(signer);
}
