//! Compares the alerts on the captures of suricata-verify with those of Suricata.
//! `tests/vectors/nids/README.md` describes the data. If Suricata 7 is installed, it runs as well.

use godwit_nids::detect::Engine;
use godwit_nids::literal::Frequencies;
use godwit_nids::packet::LinkType;
use godwit_nids::rules::RuleSet;
use godwit_nids::{Inspector, Settings};
use godwit_test_support::capture::frames;
use godwit_test_support::{Folder, repository, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Number of alerts by sid, source, source port, destination and destination port.
type Alerts = BTreeMap<String, u64>;

fn folder() -> PathBuf {
    repository().join("tests/vectors/nids/suricata-verify")
}

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join("cases.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() >= 90, "{} cases", cases.len());
    cases
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Returns the file of a case with this extension.
fn file(case: &Value, extension: &str) -> PathBuf {
    folder().join(format!("{}.{extension}", text(&case["case"])))
}

fn expected(case: &Value) -> Alerts {
    let rows = case["alerts"].as_array().unwrap().iter().map(|row| row.as_array().unwrap());
    rows.map(|row| (Value::from(&row[..5]).to_string(), row[5].as_u64().unwrap())).collect()
}

/// Counts the alerts among EVE records.
fn alerts(records: &str) -> Alerts {
    let mut alerts = Alerts::new();
    for line in records.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if record["event_type"] == "alert" {
            let key = ["src_ip", "src_port", "dest_ip", "dest_port"].map(|key| record[key].clone());
            let key: Vec<Value> = [record["alert"]["signature_id"].clone()].into_iter().chain(key).collect();
            *alerts.entry(Value::from(key).to_string()).or_default() += 1;
        }
    }
    alerts
}

/// Inspects the capture of a case.
fn inspect(case: &Value) -> Alerts {
    let mut settings = Settings::default();
    for setting in case["settings"].as_array().unwrap() {
        let (name, value) = text(setting).split_once('=').unwrap();
        settings.set(name, value).unwrap();
    }
    let set = RuleSet::load(&[file(case, "rules")], &settings.variables, false).unwrap();
    assert!(set.unsupported.is_empty(), "{}: {:?}", case["case"], set.unsupported);
    let mut inspector = Inspector::new(Arc::new(Engine::new(set, &Frequencies::new(), 1)), settings);
    for (number, frame) in (1..).zip(frames(&file(case, "pcap")).unwrap()) {
        inspector.frame(LinkType::Ethernet, &frame.data, number, frame.time_ns / 1000);
    }
    inspector.finish();
    alerts(std::str::from_utf8(inspector.records()).unwrap())
}

#[test]
fn alerts_are_those_of_suricata() {
    for case in cases() {
        assert_eq!(inspect(&case), expected(&case), "{}", case["case"]);
    }
}

/// Returns the path of Suricata 7. It is the program `$GODWIT_SURICATA`, or `suricata` in the
/// search path.
fn suricata() -> Option<OsString> {
    let program = std::env::var_os("GODWIT_SURICATA").unwrap_or_else(|| "suricata".into());
    let version = Command::new(&program).arg("-V").output().ok()?;
    String::from_utf8_lossy(&version.stdout).contains("version 7.").then_some(program)
}

/// Runs Suricata on the capture of a case.
fn run_suricata(suricata: &OsString, case: &Value, output: &Path) -> Alerts {
    let mut command = Command::new(suricata);
    command.args(case["suricata"].as_array().unwrap().iter().map(text));
    if text(&case["case"]).contains("ips") {
        command.arg("--simulate-ips");
    }
    command.arg("-S").arg(file(case, "rules")).arg("-r").arg(file(case, "pcap")).arg("-l").arg(output);
    let result = command.output().unwrap();
    assert!(result.status.success(), "{}: {}", case["case"], String::from_utf8_lossy(&result.stderr));
    alerts(&std::fs::read_to_string(output.join("eve.json")).unwrap())
}

#[test]
fn suricata_still_has_these_alerts() {
    // CI does not require Suricata, because Debian 12 has it only in its backports.
    let Some(suricata) = suricata() else {
        return skip("Suricata 7 is not installed, so nothing is compared with a fresh run");
    };
    let folder = Folder::new();
    for case in cases() {
        let output = folder.join(text(&case["case"]));
        std::fs::create_dir(&output).unwrap();
        assert_eq!(run_suricata(&suricata, &case, &output), expected(&case), "{}", case["case"]);
    }
}
