//! Mistakes in the configuration.

use godwit_test_support::process::finish;

use crate::clients::free_address;
use crate::setup::{Setup, Signer};

/// Each mistake is one sentence of the program that loads the provider.
#[test]
fn mistakes_are_one_sentence() {
    let setup = Setup::new("");
    if setup.certify("rsa2048-0").is_none() {
        return;
    }
    let refused = |settings: &str, sentence: &str| {
        setup.configure(settings);
        let printed = finish(setup.command("openssl").args(["list", "-providers"]));
        assert!(printed.stderr.contains(sentence), "{settings}: {printed:?}");
    };
    refused("lanes = maybe", "godwit provider: lanes = maybe: expected yes or no");
    refused("jobs_max = 0", "godwit provider: jobs_max = 0: expected a number from 1");
    refused("socket = socket", "start `godwit signer` with the same configuration first");
    refused("crypto_mb = missing.so", "godwit provider: crypto_mb = missing.so: cannot be loaded");
    refused("report = missing/file", "godwit provider: report = missing/file: cannot be opened");
}

/// HAProxy does not start with the name of a key that the signer does not hold.
#[test]
fn keys_that_the_signer_does_not_hold_are_refused() {
    let Some(()) = crate::haproxy::program() else { return };
    let setup = Setup::new("socket = socket");
    let Some(certified) = setup.certify("rsa2048-0") else { return };
    let Some(named) = setup.name_key("rsa2048-0") else { return };
    let file = crate::haproxy::configure(&setup, &certified, &named, free_address(), "");
    let check = || finish(setup.command("haproxy").args(["-c", "-f"]).arg(&file));
    let refused = |sentence: &str| {
        let printed = check();
        assert!(printed.code != Some(0) && printed.stderr.contains(sentence), "{printed:?}");
    };
    let signer = Signer::start(&setup, &["rsa2048-1"]);
    refused("the signer does not hold this key");
    drop(signer);
    setup.configure("");
    refused("set socket in the configuration");
    setup.configure("socket = socket");
    let _signer = Signer::start(&setup, &["rsa2048-0"]);
    check().succeeded();
}

/// HAProxy does not start without the provider that its configuration names.
#[test]
fn haproxy_refuses_a_provider_that_does_not_load() {
    let Some(()) = crate::haproxy::program() else { return };
    let setup = Setup::new("lanes = maybe");
    let Some(certified) = setup.certify("rsa2048-0") else { return };
    let file = crate::haproxy::configure(&setup, &certified, &certified.key, free_address(), "ssl-provider godwit\n");
    let printed = finish(setup.command("haproxy").args(["-c", "-f"]).arg(file));
    assert!(printed.code != Some(0) && printed.stderr.contains("lanes = maybe: expected yes or no"), "{printed:?}");
}
