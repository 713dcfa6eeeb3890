//! Inspects packets within a cable. The hosts do not notice it, except that the download with a
//! pattern does not arrive.

use crate::net::{Net, port, wait_for};

#[test]
fn a_download_with_a_pattern_is_dropped() {
    let Some(mut net) = Net::new(&["curl", "ethtool"]) else { return };
    let [a, middle, b] = ["a", "m", "b"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["10.1.0.1/24"]), (&middle, "left", &[])]);
    net.cable([(&b, "eth0", &["10.1.0.2/24"]), (&middle, "right", &[])]);
    net.file("patterns.txt", "a most unwelcome sentence\n");
    let port_of = |name: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{name}\"\ntake = \"all\"\n")
    };
    let route = |name: &str, from: &str, to: &str| {
        format!(
            "[[function]]\nname = \"{name}\"\nkind = \"dpi\"\npatterns = \"patterns.txt\"\n[[chain]]\nfrom = \"{from}\"\nto = \"{name}\"\n\
             [[chain]]\nfrom = \"{name}\"\nverdict = \"clean\"\nto = \"{to}\"\n[[chain]]\nfrom = \"{name}\"\nto = \"drop\"\n"
        )
    };
    let config = [
        "[engine]\npin = false\nidle = \"sleep\"\n".to_owned(),
        port_of("left"),
        port_of("right"),
        route("there", "left", "right"),
        route("back", "right", "left"),
    ];
    let godwit = middle.godwit(&net, &config.concat(), &["left", "right"]);
    let mut files = Vec::new();
    for number in 0..5u32 {
        let mut bytes: Vec<u8> =
            (0..200_000u32).map(|at| (at.wrapping_mul(2_654_435_761 + number) >> 11) as u8).collect();
        if number == 3 {
            // The pattern lies within one segment often enough.
            (0..100).for_each(|time| bytes[1000 * time..][..25].copy_from_slice(b"a most unwelcome sentence"));
        }
        net.file(&format!("file-{number}"), &bytes);
        files.push(bytes);
    }
    let folder = net.folder().display();
    let _server = b.start(&format!("/usr/bin/python3 -m http.server 8000 --bind 10.1.0.2 --directory {folder}"));
    wait_for("the server", || b.try_sh("ss -Hltn 'sport = 8000' | grep -q .").status.success());
    for (number, file) in files.iter().enumerate() {
        let got = a.try_sh(&format!("curl -s --max-time 3 http://10.1.0.2:8000/file-{number}"));
        if number == 3 {
            assert!(!got.status.success(), "it came through");
            assert!(got.stdout.len() < file.len());
        } else {
            assert!(got.status.success() && got.stdout == *file, "file-{number}: {} bytes", got.stdout.len());
        }
    }
    let report = godwit.stop();
    let function = |name: &str| {
        let functions = report["functions"].as_array().expect("functions");
        functions.iter().find(|function| function["name"] == name).expect("the function").clone()
    };
    assert!(function("back")["verdicts"]["match"].as_u64().is_some_and(|count| count > 0), "{report:#}");
    assert_eq!(function("there")["verdicts"]["match"], 0);
    assert_eq!(port(&report, "left", "left_to_kernel"), 0);
    // The kernel of the middle host received no packet, so Godwit forwarded all packets that `b`
    // received.
    assert_eq!(report["conservation"]["dropped"], function("back")["verdicts"]["match"]);
}
