//! `godwit devices`

use std::path::PathBuf;

use clap::Args;
use godwit_device::power::{self, FoundMeter};
use godwit_device::{Capabilities, Choice, ModeFound, Svm, cpu};
use godwit_engine::{Engine, Options};
use serde::Serialize;

use crate::devices::{self, NotUsed, Others};
use crate::failure::Failure;
use crate::output::Json;
use crate::table::{Align, Table};
use crate::{builtin, output};

/// Say what devices are here, what each can do, and why something is not used.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Say it as JSON instead, to FILE where one is given.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// What the demo leaves out of the functions that need no tables to do something with the sample.
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
    /// What it is good for, or why it is not used.
    sentence: String,
    /// What measures its power, or why nothing does.
    power: Vec<FoundMeter>,
    /// Of the CPU: which form of each kernel is fastest.
    functions: Vec<Choice>,
    /// Of all others: what their drivers tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<Driver>,
}

/// What only devices with a driver tell.
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
    chain_lacks: Option<String>,
    pci: Option<String>,
}

/// Measures every kernel briefly on the CPU: which level is fastest cannot be told otherwise.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let Others { found, not_used } = devices::others();
    let mut devices = vec![cpu()?];
    devices.extend(found.into_iter().map(of_found));
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
    let sentence = "cpu runs every function that names no other device".to_owned();
    Ok(Device { capabilities: cpu::probe(), usable: true, sentence, power: Vec::new(), functions, driver: None })
}

fn of_found(found: godwit_device::Found) -> Device {
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
        pci: found.pci,
    };
    Device {
        capabilities: found.capabilities,
        usable: found.usable.is_ok(),
        sentence,
        power: Vec::new(),
        functions: Vec::new(),
        driver: Some(driver),
    }
}

fn text(document: &Document) -> String {
    let mut text = String::new();
    for Device { capabilities, sentence, power, functions, driver, .. } in &document.devices {
        let Capabilities { id, name, compute_units, warp_packets, memory_bytes, features } = capabilities;
        let memory_gib = *memory_bytes as f64 / f64::from(1 << 30);
        text += &format!("{id}: {name}\n");
        match driver {
            None => {
                text += &format!("  {compute_units} cores, {memory_gib:.1} GiB of memory\n");
                text += &format!("  levels: {}\n", features.join(", "));
            }
            Some(driver) => {
                let Driver { platform, version, modes, chain_lacks, .. } = driver;
                let whose = if driver.host_memory { "the host's" } else { "its own" };
                text += &format!(
                    "  {compute_units} compute units, warp of {warp_packets}, {memory_gib:.1} GiB of memory, {whose}\n"
                );
                text += &format!("  {platform}, driver {version}, {}\n", features.join(", "));
                text += &format!("  {}\n", more(driver));
                for ModeFound { mode, lacks } in modes {
                    let can = lacks.as_ref().map_or("yes".to_owned(), |reason| format!("no: {reason}"));
                    text += &format!("  mode {}: {can}\n", mode.name());
                }
                if let Some(reason) = chain_lacks {
                    text += &format!("  chains: packets come back after each function: {reason}\n");
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
            text += "  fastest form of some kernels, measured just now on 64 packets of 256 bytes:\n\n";
            text += &levels(functions);
        }
        text.push('\n');
    }
    for NotUsed { sentence, .. } in &document.not_used {
        text += &format!("{sentence}\n");
    }
    text
}

/// Memory of a work-group, and what not every driver tells.
fn more(driver: &Driver) -> String {
    let mut said = vec![format!("{} KiB of memory for a work-group", driver.local_memory_bytes >> 10)];
    let Svm { coarse, fine, system, atomics } = driver.svm;
    let kinds = [("coarse-grained", coarse), ("fine-grained", fine), ("system", system), ("with atomics", atomics)];
    let kinds: Vec<&str> = kinds.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect();
    if !kinds.is_empty() {
        said.push(format!("shared virtual memory: {}", kinds.join(", ")));
    }
    said.extend(driver.pci.as_ref().map(|place| format!("PCI {place}")));
    said.join(", ")
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
