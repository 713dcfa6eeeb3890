//! `godwit devices`

use std::path::PathBuf;

use clap::Args;
use godwit_device::{Capabilities, Choice};
use godwit_engine::{Engine, Options};
use serde::Serialize;

use crate::failure::Failure;
use crate::other_devices::{self, OtherDevice};
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

/// The functions that the demo leaves out, so that each kind of function is measured.
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
    not_used: Vec<OtherDevice>,
}

#[derive(Serialize)]
struct Device {
    #[serde(flatten)]
    capabilities: Capabilities,
    functions: Vec<Choice>,
}

/// Measures every kernel briefly: which level is fastest cannot be told otherwise.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let functions = builtin::with(OTHER_FUNCTIONS, |config| {
        let kinds: Vec<&str> = config.functions.iter().map(|function| function.function.contract().kind).collect();
        let mut choices = Engine::new(config, &Options::default())?.choices();
        for (choice, kind) in choices.iter_mut().zip(kinds) {
            kind.clone_into(&mut choice.function);
        }
        Ok(choices)
    })?;
    let cpu = Device { capabilities: godwit_device::cpu::probe(), functions };
    let document = Document { godwit: env!("CARGO_PKG_VERSION"), devices: vec![cpu], not_used: other_devices::all() };
    if matches!(json, Json::None) {
        return output::print(&text(&document));
    }
    json.write(&document)
}

fn text(document: &Document) -> String {
    let mut text = String::new();
    for Device { capabilities, functions } in &document.devices {
        let Capabilities { id, name, compute_units, memory_bytes, features, .. } = capabilities;
        let memory_gib = *memory_bytes as f64 / f64::from(1 << 30);
        text += &format!("{id}: {name}\n");
        text += &format!("  {compute_units} cores, {memory_gib:.1} GiB of memory\n");
        text += &format!("  levels: {}\n", features.join(", "));
        text += "  fastest level of each kernel, measured just now on 64 packets of 256 bytes:\n\n";
        let mut table = Table::new(&[("kernel", Align::Left), ("level", Align::Left), ("ns per packet", Align::Left)]);
        for Choice { function, form, measured } in functions {
            let measured: Vec<String> = measured.iter().map(|(level, ns)| format!("{level} {ns:.1}")).collect();
            table.row(vec![function.clone(), form.clone(), measured.join(", ")]);
        }
        text += &table.text();
        text.push('\n');
    }
    for device in &document.not_used {
        text += &format!("{}\n", device.sentence);
    }
    text
}
