//! Verifies the signatures of all processors with OpenSSL, an independent implementation.

use std::fs;
use std::process::Command;

use godwit_sign::{Class, Hash, PolicyConfig, Scheme, Signer};
use godwit_test_support::{Folder, absent};

use crate::{key, key_file, library};

/// Returns the arguments of `openssl pkeyutl` for a scheme.
fn arguments(scheme: Scheme) -> Vec<&'static str> {
    let hash = |hash| match hash {
        Hash::Sha256 => "sha256",
        Hash::Sha384 => "sha384",
        Hash::Sha512 => "sha512",
    };
    match scheme {
        Scheme::RsaPkcs1(value) => vec!["-digest", hash(value)],
        Scheme::RsaPss(value) => {
            vec!["-digest", hash(value), "-pkeyopt", "rsa_padding_mode:pss", "-pkeyopt", "rsa_pss_saltlen:digest"]
        }
        Scheme::EcdsaP256Sha256 => vec!["-digest", "sha256"],
        Scheme::EcdsaP384Sha384 => vec!["-digest", "sha384"],
        Scheme::Ed25519 => vec![],
    }
}

#[test]
fn openssl_accepts_every_signature() {
    if Command::new("openssl").arg("version").output().is_err() {
        return absent("openssl");
    }
    let folder = Folder::new();
    let message = folder.write("message", "content of a handshake");
    for scheme in Scheme::ALL {
        for class in Class::ALL.into_iter().filter(|class| scheme.is_of(*class)) {
            // A single job is signed by AWS-LC, and eight jobs are signed in the SIMD lanes.
            for jobs in [1, 8] {
                let mut signer = Signer::new(PolicyConfig::default(), library(), Vec::new()).unwrap();
                let key = key(class);
                for _ in 0..jobs {
                    signer.submit(key.clone(), scheme, &fs::read(&message).unwrap()).unwrap();
                }
                let mut done = Vec::new();
                while signer.turn(0, &mut done) {}
                assert_eq!(done.len(), jobs);
                for done in done {
                    let signature = folder.write("signature", done.result.unwrap());
                    let file = key_file(&format!("{}-0", class.name()));
                    let status = Command::new("openssl")
                        .args(["pkeyutl", "-verify", "-rawin", "-inkey"])
                        .arg(file)
                        .arg("-in")
                        .arg(&message)
                        .arg("-sigfile")
                        .arg(signature)
                        .args(arguments(scheme))
                        .output()
                        .unwrap();
                    assert!(status.status.success(), "{scheme:?} {class:?} {jobs}: {status:?}");
                }
            }
        }
    }
}
