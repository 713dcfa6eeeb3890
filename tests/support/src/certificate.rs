//! Certificates for the test keys in `tests/vectors/sign`, and the program `openssl`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::{Folder, absent, repository};

/// Private key and a certificate that it signed itself, both in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of the key, with mode 600.
    pub key: PathBuf,
}

/// Runs `openssl` in `folder`. Returns its output, or `None` if it is not installed.
///
/// # Panics
///
/// Panics if the program fails.
pub fn openssl(folder: &Folder, arguments: &[&str]) -> Option<String> {
    match Command::new("openssl").args(arguments).current_dir(folder.path()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            absent("openssl");
            None
        }
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        other => panic!("openssl {arguments:?}: {other:?}"),
    }
}

/// Copies the test key `key` to `folder`, and creates a certificate for the DNS `names`. Returns
/// `None` if `openssl` is not installed.
///
/// # Panics
///
/// Panics if `key` does not exist.
pub fn certify(folder: &Folder, key: &str, names: &[&str]) -> Option<Certified> {
    let file = format!("{key}.key");
    let from = repository().join(format!("tests/vectors/sign/{key}.pem"));
    let path = folder.write(&file, fs::read(from).expect("a test key"));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("the owner may change the mode");
    let certificate = format!("{key}-{}.crt", names[0].replace('*', "any"));
    let alternatives: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let alternatives = format!("subjectAltName={}", alternatives.join(","));
    let subject = format!("/CN={}", names[0]);
    // The default configuration makes the certificate one of an authority, which rustls refuses.
    folder.write("openssl.cnf", "[req]\ndistinguished_name = dn\n[dn]\n");
    let request = ["req", "-x509", "-config", "openssl.cnf", "-key", &file, "-subj", &subject];
    openssl(folder, &[&request[..], &["-addext", &alternatives, "-out", &certificate]].concat())?;
    Some(Certified { certificate: folder.join(certificate), key: path })
}
