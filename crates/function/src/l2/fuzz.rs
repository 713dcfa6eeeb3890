//! Ethernet switch for fuzz targets.

use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use crate::{BuildContext, Function};

const STANZA: &str = r#"
[[port]]
port = "p0"
access = 10
[[port]]
port = "p1"
trunk = [10, 20]
[[port]]
port = "p2"
trunk = ["1-4094"]
native = 10
[[mac]]
vlan = 10
mac = "02:00:00:00:00:01"
port = "p0"
[[mac]]
vlan = 10
mac = "02:00:00:00:00:02"
port = "p1"
[[mac]]
vlan = 20
mac = "02:00:00:00:00:03"
port = "p2"
"#;

/// Returns a switch with four ports.
pub fn function() -> Arc<dyn Function> {
    let ports: Vec<String> = (0..4).map(|port| format!("p{port}")).collect();
    let context = BuildContext { name: "fuzzed", ports: &ports, directory: Path::new(".") };
    let stanza = DeTable::parse(STANZA).expect("the stanza is TOML");
    Arc::new(super::build_switch(stanza, &context).expect("the stanza describes a switch"))
}
