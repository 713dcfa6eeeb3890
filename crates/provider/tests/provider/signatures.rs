//! Signatures of the program `openssl` with the provider, for each scheme.

use godwit_test_support::certificate::openssl;
use godwit_test_support::process::finish;

use crate::setup::Setup;

const PSS: [&str; 4] = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"];

/// Signs `file` with the provider. OpenSSL verifies the signature without it.
fn sign_and_verify(setup: &Setup, key: &str, digest: &str, options: &[&str], file: &str) {
    let (key_file, public) = (format!("{key}.key"), format!("{key}.pub"));
    openssl(&setup.folder, &["pkey", "-in", &key_file, "-pubout", "-out", &public]);
    let digest_options: &[&str] = if key.starts_with("ed25519") { &["-rawin"] } else { &["-rawin", "-digest", digest] };
    let options: Vec<&str> =
        options.iter().map(|option| if *option == "-sigopt" { "-pkeyopt" } else { option }).collect();
    let operation = |name, input, rest: &[&str]| {
        [&["pkeyutl", name, "-inkey", input][..], digest_options, &options, &["-in", file], rest]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let sign = operation("-sign", &key_file, &["-out", "signature"]);
    finish(setup.command("openssl").args(sign)).succeeded();
    let verify = operation("-verify", &public, &["-pubin", "-sigfile", "signature"]);
    let verify: Vec<&str> = verify.iter().map(String::as_str).collect();
    let output = openssl(&setup.folder, &verify).expect("openssl is installed");
    assert!(output.contains("Signature Verified Successfully"), "{key} {digest} {options:?}: {output}");
}

/// The engine signs with each scheme of TLS.
#[test]
fn every_scheme_is_signed_by_the_engine() {
    let setup = Setup::new("");
    setup.folder.write("message", "a message");
    let keys = ["rsa2048-0", "rsa3072-0", "rsa4096-0", "p256-0", "p384-0", "ed25519-0"];
    for key in keys {
        if setup.certify(key).is_none() {
            return;
        }
    }
    let mut count = 0;
    let mut check = |key, digest, options: &[&str]| {
        sign_and_verify(&setup, key, digest, options, "message");
        count += 1;
        let reports = setup.reports();
        assert_eq!(reports.len(), count, "{key} {digest}: the engine has not signed");
        assert_eq!(reports[count - 1]["signer"]["signed"], 1, "{key} {digest}");
    };
    for digest in ["sha256", "sha384", "sha512"] {
        check("rsa2048-0", digest, &[]);
        check("rsa2048-0", digest, &PSS);
    }
    check("rsa3072-0", "sha256", &PSS);
    check("rsa4096-0", "sha256", &PSS);
    check("p256-0", "sha256", &[]);
    check("p384-0", "sha384", &[]);
    check("ed25519-0", "", &[]);
}

/// OpenSSL signs what the engine cannot sign, without an error.
#[test]
fn openssl_signs_everything_else() {
    let setup = Setup::new("");
    setup.folder.write("message", "a message");
    setup.folder.write("long", vec![7; 5000]);
    for key in ["rsa2048-0", "rsa1024", "p256-0", "p521"] {
        if setup.certify(key).is_none() {
            return;
        }
    }
    let long_salt = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:max"];
    sign_and_verify(&setup, "rsa2048-0", "sha1", &[], "message");
    sign_and_verify(&setup, "rsa2048-0", "sha256", &long_salt, "message");
    sign_and_verify(&setup, "rsa2048-0", "sha256", &PSS, "long");
    sign_and_verify(&setup, "rsa1024", "sha256", &[], "message");
    sign_and_verify(&setup, "p256-0", "sha384", &[], "message");
    sign_and_verify(&setup, "p521", "sha512", &[], "message");
    assert_eq!(setup.reports(), Vec::<serde_json::Value>::new());
}

/// Other operations with private keys work: certificates, raw signatures, verification with the
/// private key, and copies of a signature in progress.
#[test]
fn other_operations_work() {
    let setup = Setup::new("");
    setup.folder.write("message", "a message");
    setup.folder.write("hash", [5; 32]);
    for (count, key) in ["rsa2048-0", "p256-0"].into_iter().enumerate() {
        let Some(_) = setup.certify(key) else { return };
        let file = format!("{key}.key");
        let run = |arguments: &[&str]| {
            let output = finish(setup.command("openssl").args(arguments)).succeeded();
            output.stdout + &output.stderr
        };
        let request = ["req", "-x509", "-config", "openssl.cnf", "-key", &file, "-subj", "/CN=a", "-out", "signed.crt"];
        run(&request);
        let verified = openssl(&setup.folder, &["verify", "-CAfile", "signed.crt", "signed.crt"]).unwrap();
        assert!(verified.contains("OK"), "{verified}");
        run(&["pkeyutl", "-sign", "-inkey", &file, "-in", "hash", "-out", "raw", "-pkeyopt", "digest:sha256"]);
        let options = ["-in", "hash", "-sigfile", "raw", "-pkeyopt", "digest:sha256"];
        let output = run(&[&["pkeyutl", "-verify", "-inkey", &file][..], &options].concat());
        assert!(output.contains("Signature Verified Successfully"), "{output}");
        run(&["dgst", "-sha256", "-sign", &file, "-out", "signature", "message"]);
        let output = run(&["dgst", "-sha256", "-prverify", &file, "-signature", "signature", "message"]);
        assert!(output.contains("Verified OK"), "{output}");
        // The certificate and the signature of `dgst`.
        assert_eq!(setup.reports().len(), 2 * (count + 1), "{key}");
    }
}
