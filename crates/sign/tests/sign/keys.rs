//! Tests which keys and certificates are accepted, and the message of every refusal.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use godwit_sign::{Class, Key, load};
use godwit_test_support::{Folder, absent};

use crate::key_file;

/// Runs the program openssl in `folder`. Returns false if it is not installed.
fn openssl(folder: &Folder, arguments: &[&str]) -> bool {
    let output = Command::new("openssl").args(arguments).current_dir(folder.path()).output();
    match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            absent("openssl");
            false
        }
        Ok(output) if output.status.success() => true,
        other => panic!("openssl {arguments:?}: {other:?}"),
    }
}

/// Copies a test key with mode 600.
fn copy(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.write(&format!("{name}.key"), fs::read(key_file(name)).unwrap());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// Creates a certificate for the key, valid for ten days.
fn certify(folder: &Folder, name: &str) -> Option<PathBuf> {
    let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
    let subject = ["-subj", "/CN=localhost", "-days", "10"];
    let arguments = [&["req", "-x509", "-key", &key, "-out", &certificate], &subject[..]].concat();
    openssl(folder, &arguments).then(|| folder.join(&certificate))
}

fn refusal(key: &Path, certificate: &Path, now: SystemTime) -> String {
    load(key, certificate, now).expect_err("a refusal").to_string()
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn every_class_loads_with_its_certificate() {
    let folder = Folder::new();
    for class in Class::ALL {
        let name = format!("{}-0", class.name());
        let key = copy(&folder, &name);
        let Some(certificate) = certify(&folder, &name) else { return };
        let loaded = load(&key, &certificate, SystemTime::now()).unwrap();
        assert_eq!((loaded.key.class(), loaded.chain.len()), (class, 1));
        assert_eq!(loaded.key.rsa().is_some(), class.rsa_bits().is_some());
        let end = loaded.not_after.as_secs_f64() - SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        assert!((end / DAY.as_secs_f64() - 10.0).abs() < 0.1, "{end}");
    }
}

#[test]
fn older_forms_of_keys_load() {
    let folder = Folder::new();
    for (name, command, arguments) in [
        ("rsa2048-0", "rsa", &["-traditional"][..]),
        ("p256-0", "ec", &[]),
        ("p384-0", "ec", &["-param_enc", "named_curve"]),
    ] {
        copy(&folder, name);
        let (from, to) = (format!("{name}.key"), format!("{name}.old"));
        let arguments = [&[command, "-in", &from, "-out", &to], arguments].concat();
        if !openssl(&folder, &arguments) {
            return;
        }
        let text = fs::read(folder.join(&to)).unwrap();
        assert!(String::from_utf8_lossy(&text).contains(if command == "rsa" { "BEGIN RSA" } else { "BEGIN EC" }));
        let old = Key::from_pem(&text).unwrap().unwrap();
        let new = Key::from_pem(&fs::read(key_file(name)).unwrap()).unwrap().unwrap();
        assert_eq!(old.public_key(), new.public_key());
        // This text has further PEM sections, as `openssl ecparam -genkey` writes them.
        let parameters =
            b"Bag Attributes\n-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
        assert!(Key::from_pem(&[&parameters[..], &text].concat()).unwrap().is_ok());
    }
}

#[test]
fn bad_files_are_refused_with_file_and_reason() {
    let folder = Folder::new();
    let [rsa, p256, weak, p521] = ["rsa2048-0", "p256-0", "rsa1024", "p521"].map(|name| copy(&folder, name));
    let (Some(rsa_certificate), Some(p256_certificate)) = (certify(&folder, "rsa2048-0"), certify(&folder, "p256-0"))
    else {
        return;
    };
    let now = SystemTime::now();
    let check = |key: &Path, certificate: &Path, now, file: &Path, reason: &str| {
        let found = refusal(key, certificate, now);
        assert_eq!(found, format!("{}: {reason}", file.display()));
    };
    let good = (&rsa, &rsa_certificate);
    check(&weak, good.1, now, &weak, "has an RSA key of 1024 bits, which is weak: use at least 2048");
    let unsupported =
        "has an unsupported kind of key: RSA with 2048, 3072 or 4096 bits, P-256, P-384 or Ed25519 is expected";
    check(&p521, good.1, now, &p521, unsupported);
    let mismatch = format!("does not match the certificate {}: its public key differs", p256_certificate.display());
    check(good.0, &p256_certificate, now, good.0, &mismatch);
    check(&p256, good.1, now, &p256, &mismatch.replace("p256-0.crt", "rsa2048-0.crt"));
    check(good.0, good.1, now + 15 * DAY, good.1, "the certificate expired 5 days ago: renew it");
    let early = "the certificate is not valid before 3 days from now: check the clock of this machine";
    check(good.0, good.1, now - 2 * DAY - DAY / 2, good.1, early);
    check(good.1, good.1, now, good.1, "is accessible to all users (mode 0644): run chmod 600 on it");
    check(good.0, good.0, now, good.0, "contains no certificate in PEM form");
    check(
        &folder.join("none"),
        good.1,
        now,
        &folder.join("none"),
        "cannot be read: No such file or directory (os error 2)",
    );
    check(folder.path(), good.1, now, folder.path(), "is accessible to all users (mode 0755): run chmod 600 on it");
}

#[test]
fn damaged_text_is_refused() {
    let text = fs::read_to_string(key_file("rsa2048-0")).unwrap();
    let check = |text: &str, part: &str| {
        let reason = Key::from_pem(text.as_bytes()).unwrap().expect_err(part).to_string();
        assert!(reason.contains(part), "{reason}: {part}");
    };
    check("", "no private key");
    check(&text.replace("END PRIVATE", "END PUBLIC"), "another name");
    check(text.split("-----END").next().unwrap(), "no end");
    check(&text.replace("MII", "M*I"), "not Base64");
    check(&text.replace("MII", "MIIA"), "damaged");
    check(&(text.clone() + &text), "more than one private key");
    check(&text.replace("PRIVATE", "ENCRYPTED PRIVATE"), "passphrase");
    check(&text.replace("PRIVATE", "DSA PRIVATE"), "unsupported kind");
    let lines: Vec<&str> = text.lines().collect();
    for line in 1..lines.len() - 1 {
        let mut shorter = lines.clone();
        shorter.remove(line);
        assert!(Key::from_pem(shorter.join("\n").as_bytes()).unwrap().is_err(), "without line {line}");
    }
}

/// A key with an altered component is refused, either as inconsistent or as damaged.
#[test]
fn altered_keys_are_refused() {
    let text = fs::read_to_string(key_file("rsa2048-0")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for line in 2..lines.len() - 2 {
        let letter = if lines[line].starts_with('A') { "B" } else { "A" };
        let altered = format!("{letter}{}", &lines[line][1..]);
        let mut lines = lines.clone();
        lines[line] = &altered;
        assert!(Key::from_pem(lines.join("\n").as_bytes()).unwrap().is_err(), "line {line}");
    }
}
