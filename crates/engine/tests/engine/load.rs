//! Load programs of synthetic ports in a whole engine.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_engine::{Engine, Options};
use godwit_test_support::{ConfigText, Folder};

use crate::common::{LIMIT, config};

/// Traffic with two steps: 2000 packets of both classes, then 4000 longer packets of one class.
const PROGRAM: &str = r#"
[[class]]
name = "voice"
destination = "10.1.0.0/16"

[[class]]
name = "bulk"
destination = "10.2.0.0/16"

[[step]]
seconds = 0.02
rate = "100kpps"
size = 60
shares = { voice = 3, bulk = 1 }

[[step]]
seconds = 0.02
rate = "100kpps"
to = "300kpps"
size = 512
shares = { bulk = 1 }
"#;

fn text(folder: &Folder) -> String {
    ConfigText::new()
        .engine("workers = 2")
        .port("in", "synthetic", &format!("load = {:?}", folder.join("load.toml")))
        .class("voice", "destination = \"10.1.0.0/16\"")
        .function("calls", "echo", "")
        .function("files", "echo", "")
        .class_edge("in", "voice", "calls")
        .edge("in", "files")
        .edge("calls", "in")
        .edge("files", "in")
        .to_string()
}

#[test]
fn functions_receive_the_packets_of_each_step() {
    let folder = Folder::new();
    folder.write("load.toml", PROGRAM);
    let engine = Engine::new(config(&text(&folder)), &Options::default()).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
    assert!(report.elapsed_s >= 0.04, "packets are not sent before they are due");
    let port = &report.ports[0];
    assert_eq!((port.received_packets, port.received_bytes), (6000, 2000 * 60 + 4000 * 512));
    let [calls, files] = [0, 1].map(|function| report.functions[function].packets);
    assert_eq!((calls + files, report.conservation.dropped), (6000, 0));
    // The standard deviation of the number of calls is 19.
    assert!(calls.abs_diff(1500) < 120, "{calls} calls");
    assert_eq!(report.functions[0].bytes, calls * 60);
}

#[test]
fn bad_program_is_refused_with_its_port_file_and_step() {
    let folder = Folder::new();
    folder.write("load.toml", PROGRAM.replace("to = \"300kpps\"", "to = \"max\""));
    let config = config(&text(&folder));
    let error = Engine::new(config, &Options::default()).map(|_| ()).unwrap_err().to_string();
    for part in ["test.toml:", "port `in`", "load.toml: step 2", "10Mpps"] {
        assert!(error.contains(part), "{error}");
    }
}
