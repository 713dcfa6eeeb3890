//! Real captures pass through the gateway of lesson 3 (ipv4, then ipsec), and back.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{example, godwit, replay, run};
use godwit_test_support::capture::{Frame, captures, concatenate, frames, without_padding};
use godwit_test_support::{python, repository};
use serde_json::Value;

/// The gateway of lesson 3 without its tunnel: it sends the packets that would enter the tunnel.
const ROUTER: &str = r#"
    [[chain]]
    from = "lan"
    to = "route"

    [[chain]]
    from = "route"
    verdict = "forward"
    to = "wan"

    [[chain]]
    from = "route"
    to = "drop"
"#;

/// The gateway of lesson 3 without its router: all packets enter the tunnel.
const TUNNEL: &str = r#"
    [[chain]]
    from = "lan"
    to = "tunnel"

    [[chain]]
    from = "tunnel"
    to = "wan"
"#;

/// The configuration of the outbound gateway with another chain and an additional prefix.
fn gateway(folder: &Path, name: &str, before: &str, chain: Option<&str>) -> PathBuf {
    let text = fs::read_to_string(example("03-ipsec-gateway-out.toml")).unwrap();
    let (stanzas, its_own) = text.split_at(text.find("[[chain]]").unwrap());
    let path = folder.join(name);
    fs::write(&path, format!("{before}\n{stanzas}\n{}", chain.unwrap_or(its_own))).unwrap();
    path
}

/// Returns each capture that can be replayed: complete Ethernet frames, according to another
/// library.
fn replayable() -> Vec<(PathBuf, Vec<Frame>)> {
    let all = captures();
    assert!(all.len() > 30, "tests/captures is not there");
    let whole: Vec<_> = all.into_iter().filter_map(|path| frames(&path).map(|frames| (path, frames))).collect();
    assert!(whole.len() > 25, "hardly any capture can be read");
    whole
}

fn count(report: &Value, name: &str) -> u64 {
    report["conservation"][name].as_u64().unwrap()
}

/// Returns frames without Ethernet padding, with their times.
fn content(frames: &[Frame]) -> Vec<(u64, &[u8])> {
    frames.iter().map(|frame| (frame.time_ns, without_padding(&frame.data))).collect()
}

#[test]
fn decapsulation_restores_the_packets() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let router = gateway(folder.path(), "router.toml", "", Some(ROUTER));
    let mut protected = 0;
    for (capture, _) in replayable() {
        replay(&router, &capture, &file("routed.pcap"));
        let out = replay(&example("03-ipsec-gateway-out.toml"), &capture, &file("esp.pcap"));
        let back = replay(&example("03-ipsec-gateway-in.toml"), &file("esp.pcap"), &file("restored.pcap"));
        assert_eq!(count(&back, "dropped"), 0, "{}: {back:#}", capture.display());
        let routed = frames(&file("routed.pcap")).unwrap();
        let restored = frames(&file("restored.pcap")).unwrap();
        let difference =
            content(&restored).iter().zip(content(&routed)).position(|(restored, routed)| *restored != routed);
        assert_eq!(difference, None, "{}: the number of the first frame that differs", capture.display());
        assert_eq!(restored.len(), routed.len(), "{}", capture.display());
        protected += out["functions"][1]["verdicts"]["encrypted"].as_u64().unwrap();
    }
    assert!(protected > 1500, "only {protected} packets went through the tunnel");
}

#[test]
fn without_a_router_the_capture_itself_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let tunnel = gateway(folder.path(), "tunnel.toml", "[arena]\nframe_bytes_max = 9018\n", Some(TUNNEL));
    // The MTU of the other end has space for the overhead of the tunnel.
    let back = fs::read_to_string(example("03-ipsec-gateway-in.toml")).unwrap();
    let back = back.replace("frame_bytes_max = 1600", "frame_bytes_max = 9120");
    fs::write(file("back.toml"), back).unwrap();
    for (capture, original) in replayable() {
        let out = replay(&tunnel, &capture, &file("esp.pcap"));
        replay(&file("back.toml"), &file("esp.pcap"), &file("restored.pcap"));
        let restored = frames(&file("restored.pcap")).unwrap();
        // Some frames do not enter: truncated, empty and oversized ones.
        let whole = |frame: &&Frame| frame.data.len() == frame.original_bytes && (1..=9018).contains(&frame.data.len());
        let entered: Vec<Frame> = original.iter().filter(whole).cloned().collect();
        assert_eq!(count(&out, "received"), entered.len() as u64, "{}", capture.display());
        assert_eq!(count(&out, "dropped"), (entered.len() - restored.len()) as u64, "{}", capture.display());
        let mut left = entered.iter();
        for frame in &restored {
            let expected = without_padding(&frame.data);
            assert!(
                left.any(|entered| without_padding(&entered.data) == expected),
                "{}: a frame that is not in the capture, or not in its place",
                capture.display()
            );
        }
        let clean = capture.file_name().unwrap().to_string_lossy().starts_with("delay_10_");
        assert!(!clean || restored.len() == original.len(), "{}: {out:#}", capture.display());
    }
}

#[test]
fn scapy_and_tshark_decrypt_every_packet() {
    let folder = tempfile::tempdir().unwrap();
    let router = gateway(folder.path(), "router.toml", "", Some(ROUTER));
    let (mut routed, mut esp) = (Vec::new(), Vec::new());
    let mut packets = 0;
    for (index, (capture, _)) in replayable().iter().enumerate() {
        let plain = folder.path().join(format!("{index}-routed.pcap"));
        let secret = folder.path().join(format!("{index}-esp.pcap"));
        let plain_report = replay(&router, capture, &plain);
        let secret_report = replay(&example("03-ipsec-gateway-out.toml"), capture, &secret);
        assert_eq!(count(&plain_report, "sent"), count(&secret_report, "sent"), "{}", capture.display());
        packets += count(&secret_report, "sent");
        routed.push(plain);
        esp.push(secret);
    }
    concatenate(&routed, &folder.path().join("routed.pcap"));
    concatenate(&esp, &folder.path().join("esp.pcap"));
    for (script, module) in [("replay_scapy.py", "scapy"), ("replay_tshark.py", "json")] {
        if script == "replay_tshark.py" && godwit_test_support::Peer::find("tshark").is_none() {
            continue;
        }
        let Some(python) = python(module) else { continue };
        let mut command = python.command();
        command.arg(repository().join("tests/peers").join(script));
        command.arg(folder.path().join("routed.pcap")).arg(folder.path().join("esp.pcap"));
        let printed = run(&mut command).succeeded();
        assert!(printed.stdout.contains(&format!("{packets} packets agree")), "{printed:#?}");
    }
}

#[test]
fn the_output_is_the_same_for_any_number_of_workers_and_any_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let captures = ["delay_10_sip_video_call_full.pcap", "delay_10_oracle_0.pcap", "tcpdump_various_gre.pcap"];
    let settings = [
        "[engine]\nworkers = 1\n",
        "[engine]\nworkers = 2\n",
        "[engine]\nworkers = 4\npin = false\n",
        "[engine]\nworkers = 3\nburst_packets = 1\nin_flight_packets = 2\n",
        "[engine]\nworkers = 2\nburst_packets = 31\nin_flight_packets = 128\n[arena]\nlayout = \"dense\"\n",
        "[engine]\nburst_packets = 33\n[packing]\nchunk_packets = 7\nbins = 3\nbin_packets = 2\nleftover_packets = 4\n",
        "[engine]\nworkers = 4\n[packing]\nchunk_packets = 1\nbins = 1\nbin_packets = 1\nsort = false\n",
        "[engine]\nworkers = 2\n[packing]\ngrouping = \"variant+length\"\nlength_granularity_bytes = 16\ndeadline_ns = 0\n",
        "[packing]\ngrouping = \"none\"\nchunk_packets = 4096\nbins = 64\ndeadline_ns = 1000000\n",
    ];
    for capture in captures {
        let capture = repository().join("tests/captures").join(capture);
        let mut first: Option<(Vec<u8>, Value)> = None;
        for (index, before) in settings.iter().enumerate() {
            let config = gateway(folder.path(), "gateway.toml", before, None);
            let output = folder.path().join(format!("{index}.pcap"));
            let report = replay(&config, &capture, &output);
            let bytes = fs::read(&output).unwrap();
            match &first {
                None => {
                    assert!(count(&report, "sent") > 0);
                    first = Some((bytes, report["conservation"].clone()));
                }
                Some((expected, conservation)) => {
                    assert!(bytes == *expected, "{}: other output with {before:?}", capture.display());
                    assert_eq!(report["conservation"], *conservation, "{before:?}");
                }
            }
        }
    }
}

#[test]
fn an_opencl_device_sends_the_same_as_the_cpu() {
    let devices = run(godwit().args(["devices", "--json"])).succeeded();
    let devices: Value = serde_json::from_str(&devices.stdout).unwrap();
    let devices = devices["devices"].as_array().unwrap();
    if !devices.iter().any(|device| device["id"] == "opencl:0" && device["usable"] == true) {
        godwit_test_support::absent("OpenCL device");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = repository().join("tests/captures/delay_10_oracle_0.pcap");
    let config = fs::read_to_string(example("03-ipsec-gateway-out.toml")).unwrap();
    let on = |kinds: &[&str]| {
        let moved = |text: String, kind: &&str| {
            text.replace(&format!("kind = \"{kind}\""), &format!("kind = \"{kind}\"\ndevice = \"opencl:0\""))
        };
        kinds.iter().fold(config.clone(), moved)
    };
    let outputs: Vec<Vec<u8>> = [&[][..], &["ipv4"], &["ipsec"], &["ipv4", "ipsec"]]
        .iter()
        .map(|kinds| {
            let path = folder.path().join("gateway.toml");
            fs::write(&path, format!("[engine]\nworkers = 2\n{}", on(kinds))).unwrap();
            let output = folder.path().join("out.pcap");
            let report = replay(&path, &capture, &output);
            for function in report["functions"].as_array().unwrap() {
                let moved = kinds.contains(&function["kind"].as_str().unwrap());
                assert_eq!(function["device"], if moved { "opencl:0" } else { "cpu" }, "{function:#}");
                assert!(function["packets"].as_u64() > Some(0), "{function:#}");
            }
            fs::read(&output).unwrap()
        })
        .collect();
    assert!(outputs.iter().all(|output| *output == outputs[0]));
}

#[test]
fn pcapng_output_contains_the_same_packets() {
    let folder = tempfile::tempdir().unwrap();
    let capture = repository().join("tests/captures/delay_10_smtp_1.pcap");
    let [pcap, pcapng] = ["a.pcap", "a.pcapng"].map(|name| folder.path().join(name));
    for output in [&pcap, &pcapng] {
        replay(&example("03-ipsec-gateway-out.toml"), &capture, output);
    }
    assert_eq!(frames(&pcapng).unwrap(), frames(&pcap).unwrap());
}

#[test]
fn captures_of_several_ports_merge_or_stay_separate() {
    let folder = tempfile::tempdir().unwrap();
    let captures = repository().join("tests/captures");
    let named = |port: &str, path: &Path| format!("{port}={}", path.display());
    let [left, right] = ["left.pcap", "right.pcap"].map(|name| folder.path().join(name));
    let mut command = godwit();
    command.arg("replay").arg(example("01-echo.toml")).args(["--json", "-"]);
    command.args(["--in", &named("right", &captures.join("delay_10_exchange_0.pcap"))]);
    command.args(["--in", &named("left", &captures.join("delay_10_http_get_0.pcap"))]);
    command.args(["--out", &named("left", &left), "--out", &named("right", &right)]);
    let report = common::conserved(&run(&mut command).succeeded().stdout);
    let written: Vec<Vec<Frame>> = [&left, &right].map(|path| frames(path).unwrap()).to_vec();
    assert_eq!(count(&report, "received"), 43 + 44);
    assert_eq!(count(&report, "sent"), written.iter().map(Vec::len).sum::<usize>() as u64);
    for frames in written {
        assert!(frames.is_sorted_by_key(|frame| frame.time_ns));
        for frame in frames {
            let number = u32::from_be_bytes(frame.data[42..46].try_into().unwrap());
            let of_left = fs::read(&left).unwrap().windows(frame.data.len()).any(|buffer| buffer == frame.data);
            assert_eq!(number.is_multiple_of(2), of_left, "the number in the payload names the port");
        }
    }
}
