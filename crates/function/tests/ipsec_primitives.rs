//! AES-128-CBC and HMAC-SHA1 of the kernel against NIST, RFC 2202 and Wycheproof.
//!
//! A small C program around the kernel's headers is compiled as the levels of the CPU are, with AES instructions and
//! without; round keys and HMAC states come from a table image, so they are tested along.

mod ipsec_common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_function::Function;
use ipsec_common::{Sa, build, hex, repository, unhex};

/// Flags of the compiler, and whether this CPU runs what comes of them.
fn builds() -> Vec<(&'static [&'static str], bool)> {
    if cfg!(target_arch = "x86_64") {
        let levels = godwit_kernels::levels();
        let runs = |name| levels.iter().any(|level| level.name == name && level.supported());
        vec![
            (&["-march=x86-64-v2"], runs("x86-64-v2")),
            (&["-march=x86-64-v3", "-maes"], runs("x86-64-v3")),
            (&["-march=x86-64-v4", "-maes"], runs("x86-64-v4")),
        ]
    } else {
        vec![(&[], true)]
    }
}

/// The program, compiled; removed when dropped.
struct Program(PathBuf);

impl Program {
    fn compile(name: &str, flags: &[&str]) -> Self {
        let program =
            std::env::temp_dir().join(format!("godwit-primitives-{name}{}-{}", flags.concat(), std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ipsec_primitives.c");
        let mut command = Command::new(&compiler);
        command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-I"]);
        command.arg(repository("kernels")).args(flags).arg(source).arg("-o").arg(&program);
        let status = command.status().unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(status.success(), "{command:?}");
        Self(program)
    }

    /// One line of output per line of input.
    fn run(&self, input: &str) -> Vec<String> {
        let mut child = Command::new(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Every operation on every build, each with the result it must have or begin with, or must not.
fn check(name: &str, operations: &[(String, String, bool)]) {
    let input: String = operations.iter().map(|(operation, ..)| format!("{operation}\n")).collect();
    for (flags, runs) in builds() {
        if !runs {
            println!("skipped: this CPU cannot run {flags:?}");
            continue;
        }
        let output = Program::compile(name, flags).run(&input);
        assert_eq!(output.len(), operations.len());
        for (found, (operation, expected, valid)) in output.iter().zip(operations) {
            assert_eq!(found.starts_with(expected), *valid, "{flags:?}: {operation}: {found}, not {expected}");
        }
    }
}

/// A function with one SA per key.
fn image(
    direction: &'static str,
    encryption_keys: &[[u8; 16]],
    authentication_keys: &[[u8; 20]],
) -> std::sync::Arc<dyn Function> {
    let count = encryption_keys.len().max(authentication_keys.len());
    let mut stanza = String::new();
    for index in 0..count {
        let mut sa = Sa::new(&format!("sa{index}"), 256 + index as u32, direction, 0);
        sa.encryption_key = encryption_keys.get(index).copied().unwrap_or_default();
        sa.authentication_key = authentication_keys.get(index).copied().unwrap_or_default();
        stanza += &sa.stanza();
    }
    build(&stanza)
}

/// The SA with this index in a table image (`kernels/ipsec/image.h`).
fn sa(function: &dyn Function, index: usize) -> Vec<u8> {
    function.image().to_vec()[64 + 384 * index..][..384].to_vec()
}

fn read(path: &str) -> String {
    let path = repository("tests/vectors/ipsec").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values of `NAME = value` lines, grouped by the blank lines between them.
fn groups(text: &str) -> Vec<Vec<(String, String)>> {
    let text = text.replace('\r', "");
    let group = |group: &str| {
        let pairs = group.lines().filter(|line| !line.starts_with(['#', '[']));
        pairs
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    text.split("\n\n").map(group).filter(|group: &Vec<_>| !group.is_empty()).collect()
}

fn value<'a>(group: &'a [(String, String)], name: &str) -> &'a str {
    &group.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name} is not in {group:?}")).1
}

#[test]
fn aes_128_cbc_nist() {
    let mut operations = Vec::new();
    for file in ["GFSbox", "KeySbox", "VarKey", "VarTxt", "MMT"] {
        let groups = groups(&read(&format!("nist-cavp/CBC{file}128.rsp")));
        let cases: Vec<_> = groups.iter().filter(|group| group.iter().any(|(name, _)| name == "KEY")).collect();
        assert!(cases.len() >= 14, "{file}: {}", cases.len());
        let keys: Vec<[u8; 16]> = cases.iter().map(|case| unhex(value(case, "KEY")).try_into().unwrap()).collect();
        let (out, inbound) = (image("out", &keys, &[]), image("in", &keys, &[]));
        for (index, case) in cases.iter().enumerate() {
            let (iv, plain, cipher) = (value(case, "IV"), value(case, "PLAINTEXT"), value(case, "CIPHERTEXT"));
            let (encrypt, decrypt) = (hex(&sa(&*out, index)[128..304]), hex(&sa(&*inbound, index)[128..304]));
            operations.push((format!("encrypt {encrypt} {iv} {plain}"), cipher.to_owned(), true));
            operations.push((format!("decrypt {decrypt} {iv} {cipher}"), plain.to_owned(), true));
            if iv.bytes().all(|digit| digit == b'0') && plain.len() == 32 {
                operations.push((format!("block {encrypt} {plain}"), cipher.to_owned(), true));
            }
        }
    }
    check("aes", &operations);
}

/// In hex.
struct Hmac {
    key: String,
    message: String,
    tag: String,
    valid: bool,
}

fn hmac(name: &str, cases: &[Hmac]) {
    let keys: Vec<[u8; 20]> = cases.iter().map(|case| unhex(&case.key).try_into().unwrap()).collect();
    let function = image("out", &[], &keys);
    let operation = |(index, case): (usize, &Hmac)| {
        let states = hex(&sa(&*function, index)[64..128]);
        (format!("hmac {states} {}", case.message), case.tag.clone(), case.valid)
    };
    check(name, &cases.iter().enumerate().map(operation).collect::<Vec<_>>());
}

#[test]
fn hmac_sha1_rfc_2202() {
    let groups = groups(&read("rfc2202/hmac-sha1.txt"));
    let groups = groups.iter().filter(|group| group.iter().any(|(name, value)| name == "Key" && value.len() == 40));
    let text = |group: &[(String, String)], name| value(group, name).to_owned();
    let case = |group: &Vec<_>| Hmac {
        key: text(group, "Key"),
        message: text(group, "Msg"),
        tag: text(group, "MD"),
        valid: true,
    };
    let cases: Vec<_> = groups.map(case).collect();
    assert_eq!(cases.len(), 3);
    hmac("rfc2202", &cases);
}

#[test]
fn hmac_sha1_wycheproof() {
    let text = read("wycheproof/hmac-sha1.txt");
    let case = |line: &str| {
        let [_, result, key, message, tag] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Hmac { key: key.to_owned(), message: message.to_owned(), tag: tag.to_owned(), valid: result == "valid" }
    };
    let cases: Vec<Hmac> = text.lines().filter(|line| !line.starts_with('#')).map(case).collect();
    let valid = cases.iter().filter(|case| case.valid).count();
    assert_eq!((valid, cases.len()), (54, 158));
    hmac("wycheproof", &cases);
}
