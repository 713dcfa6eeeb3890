//! `godwit devices`

use std::path::{Path, PathBuf};

use clap::Args;
use godwit_device::power::{self, FoundMeter};
use godwit_device::{Capabilities, Choice, ModeFound, Svm, Unavailable, cpu};
use godwit_engine::{Engine, Options};
use serde::Serialize;

use crate::devices::{self, NotUsed, Others};
use crate::failure::Failure;
use crate::location::{self, Location, Node};
use crate::output::Json;
use crate::table::{Align, Table};
use crate::{builtin, output};

/// List the available devices with their capabilities, and the reasons why devices are unused.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print the list as JSON, or write it to FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Functions that are not in the demo and can be measured without tables.
const OTHER_FUNCTIONS: &str = "
[[function]]
name = \"echo\"
kind = \"echo\"

[[function]]
name = \"template\"
kind = \"template\"
";

#[derive(Serialize)]
struct Document {
    godwit: &'static str,
    devices: Vec<Device>,
    not_used: Vec<NotUsed>,
}

#[derive(Serialize)]
struct Device {
    #[serde(flatten)]
    capabilities: Capabilities,
    usable: bool,
    /// How to use the device, or the reason why it cannot be used.
    sentence: String,
    /// Power meters, or the reasons why there are none.
    power: Vec<FoundMeter>,
    /// Fastest form of each kernel. Only for the CPU.
    functions: Vec<Choice>,
    /// NUMA nodes of the machine. Only for the CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Node>,
    /// Properties from the driver. Not for the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<Driver>,
}

/// Properties of a device that its driver reports.
#[derive(Serialize)]
struct Driver {
    platform: String,
    version: String,
    kind: &'static str,
    host_memory: bool,
    local_memory_bytes: u64,
    buffer_bytes_max: u64,
    svm: Svm,
    modes: Vec<ModeFound>,
    chain_lacks: Option<Unavailable>,
    pci: Option<String>,
    #[serde(flatten)]
    location: Location,
}

/// Folder where sysfs is mounted.
const SYSFS: &str = "/sys";

/// Lists the devices. Measures every kernel briefly on the CPU to determine its fastest level.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let Others { found, not_used } = devices::others();
    let mut devices = vec![cpu()?];
    devices.extend(found.into_iter().map(from_found));
    let ids: Vec<String> = devices.iter().map(|device| device.capabilities.id.clone()).collect();
    for meter in power::meters(&ids.iter().map(String::as_str).collect::<Vec<_>>()) {
        if let Some(device) = devices.iter_mut().find(|device| device.capabilities.id == meter.device) {
            device.power.push(meter);
        }
    }
    let document = Document { godwit: env!("CARGO_PKG_VERSION"), devices, not_used };
    if matches!(json, Json::None) {
        return output::print(&text(&document));
    }
    json.write(&document)
}

fn cpu() -> Result<Device, Failure> {
    let functions = builtin::with(OTHER_FUNCTIONS, None, |config| {
        let kinds: Vec<&str> = config.functions.iter().map(|function| function.function.contract().kind).collect();
        let mut choices = Engine::new(config, &Options::default())?.choices();
        for (choice, kind) in choices.iter_mut().zip(kinds) {
            kind.clone_into(&mut choice.function);
        }
        Ok(choices)
    })?;
    let sentence = "cpu runs every function without another device".to_owned();
    let nodes = location::nodes(Path::new(SYSFS));
    Ok(Device { capabilities: cpu::probe(), usable: true, sentence, power: Vec::new(), functions, nodes, driver: None })
}

fn from_found(found: godwit_device::Found) -> Device {
    let sentence = devices::sentence(&found);
    let driver = Driver {
        platform: found.platform,
        version: found.driver,
        kind: found.kind,
        host_memory: found.host_memory,
        local_memory_bytes: found.local_memory_bytes,
        buffer_bytes_max: found.buffer_bytes_max,
        svm: found.svm,
        modes: found.modes,
        chain_lacks: found.chain_lacks,
        location: found.pci.as_deref().map_or_else(Location::default, |pci| location::of_pci(Path::new(SYSFS), pci)),
        pci: found.pci,
    };
    Device {
        capabilities: found.capabilities,
        usable: found.usable.is_ok(),
        sentence,
        power: Vec::new(),
        functions: Vec::new(),
        nodes: Vec::new(),
        driver: Some(driver),
    }
}

fn text(document: &Document) -> String {
    let mut text = String::new();
    for Device { capabilities, sentence, power, functions, nodes, driver, .. } in &document.devices {
        let Capabilities { id, name, compute_units, warp_packets, memory_bytes, features } = capabilities;
        let memory_gib = *memory_bytes as f64 / f64::from(1 << 30);
        text += &format!("{id}: {name}\n");
        match driver {
            None => {
                text += &format!("  {compute_units} cores, {memory_gib:.1} GiB of memory\n");
                for Node { number, cores, memory_bytes } in nodes {
                    let memory_gib = *memory_bytes as f64 / f64::from(1 << 30);
                    text += &format!("  NUMA node {number}: cores {cores}, {memory_gib:.1} GiB of memory\n");
                }
                text += &format!("  levels: {}\n", features.join(", "));
            }
            Some(driver) => {
                let Driver { platform, version, modes, chain_lacks, .. } = driver;
                let location = if driver.host_memory { "host memory" } else { "device memory" };
                text += &format!(
                    "  {compute_units} compute units, warp of {warp_packets}, {memory_gib:.1} GiB of {location}\n"
                );
                text += &format!("  {platform}, driver {version}, {}\n", features.join(", "));
                text += &format!("  {}\n", more(driver));
                for ModeFound { mode, lacks } in modes {
                    let supported = lacks.as_ref().map_or("yes".to_owned(), |reason| format!("no: {reason}"));
                    text += &format!("  mode {}: {supported}\n", mode.name());
                }
                if let Some(reason) = chain_lacks {
                    text += &format!("  device chain: not supported, packets return after each function: {reason}\n");
                }
            }
        }
        text += &format!("  {sentence}\n");
        for FoundMeter { name, kind, meter, .. } in power {
            text += &match meter {
                Ok(_) => format!("  power: {} {name}\n", kind.unwrap_or_default()),
                Err(reason) => format!("  power: not measured ({reason})\n"),
            };
        }
        if !functions.is_empty() {
            text += "  fastest form of each kernel, measured now with 64 packets of 256 bytes:\n\n";
            text += &levels(functions);
        }
        text.push('\n');
    }
    for NotUsed { sentence, .. } in &document.not_used {
        text += &format!("{sentence}\n");
    }
    text
}

/// Returns the work-group memory, the optional driver properties, and the position in the machine.
fn more(driver: &Driver) -> String {
    let mut properties = vec![format!("{} KiB of memory for a work-group", driver.local_memory_bytes >> 10)];
    let Svm { coarse, fine, system, atomics } = driver.svm;
    let kinds = [("coarse-grained", coarse), ("fine-grained", fine), ("system", system), ("with atomics", atomics)];
    let kinds: Vec<&str> = kinds.iter().filter(|(_, supported)| *supported).map(|(name, _)| *name).collect();
    if !kinds.is_empty() {
        properties.push(format!("shared virtual memory: {}", kinds.join(", ")));
    }
    properties.extend(driver.pci.as_ref().map(|address| format!("PCI {address}")));
    let Location { numa_node, link_speed, link_lanes } = &driver.location;
    properties.extend(numa_node.map(|node| format!("NUMA node {node}")));
    properties.extend(link_speed.as_ref().zip(*link_lanes).map(|(speed, lanes)| format!("{speed} x{lanes}")));
    properties.join(", ")
}

fn levels(functions: &[Choice]) -> String {
    let mut table = Table::new(&[
        ("kernel", Align::Left),
        ("form", Align::Left),
        ("ns per packet", Align::Left),
        ("gopt", Align::Left),
    ]);
    for Choice { function, form, measured, turns } in functions {
        let measured: Vec<String> = measured.iter().map(|(level, ns)| format!("{level} {ns:.1}")).collect();
        table.row(vec![function.clone(), form.clone(), measured.join(", "), turns.clone().unwrap_or_default()]);
    }
    table.text()
}
