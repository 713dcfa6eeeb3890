//! `godwit demo`

use std::time::Duration;

use clap::Args;
use godwit_device::{Capabilities, cuda};
use godwit_engine::Options;

use crate::failure::Failure;
use crate::{builtin, devices, output, summary};

/// Run generated traffic through a chain of functions on whatever devices there are.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How long.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true, default_value = "5")]
    seconds: Duration,
}

/// Says what it does, does it, and ends with the conservation line.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let others = devices::others();
    let usable = || others.found.iter().filter(|found| found.usable.is_ok());
    let beside = usable().find(|found| cuda::number(&found.capabilities.id).is_some()).or_else(|| usable().next());
    let device = beside.map(|found| found.capabilities.id.as_str());
    let stanza = beside.filter(|found| found.kind == "cpu").map(own_cores).unwrap_or_default();
    let report = builtin::with(&stanza, device, |config| {
        let intro = format!(
            "Generated packets (IMIX: 64, 570 and 1518 bytes, 7:4:1) take this chain for {} s:\n\n{}\n{}",
            arguments.seconds.as_secs_f64(),
            config.chain.text(),
            placement(&others, beside),
        );
        output::print(&intro)?;
        super::run_engine(config, &Options::default(), Some(arguments.seconds))
    })?;
    output::print(&summary::text(&report))?;
    summary::verdict(&report)
}

/// Cores under another name want the small chunks of a core: large ones only wait.
fn own_cores(found: &godwit_device::Found) -> String {
    let id = &found.capabilities.id;
    format!("\n[[device]]\nname = \"{id}\"\nchunk_packets = 256\nbins = 16\nbin_packets = 64\ndeadline_ns = 100000\n")
}

/// What runs where, and a line for each device that is here and left alone.
fn placement(others: &devices::Others, beside: Option<&godwit_device::Found>) -> String {
    let mut text = match beside {
        Some(found) => {
            let Capabilities { id, name, .. } = &found.capabilities;
            let mut text = format!("inspect runs on {id} ({}, {name}), the rest on the CPU.\n", found.platform);
            if found.kind == "cpu" {
                text += &format!("{id} is the CPU's own cores under OpenCL: it shows the way, it adds no processor.\n");
            }
            text
        }
        None => "All of it runs on the CPU.\n".to_owned(),
    };
    let unusable = others.found.iter().filter(|found| found.usable.is_err()).map(devices::sentence);
    unusable.for_each(|line| text += &format!("{line}\n"));
    text + "\n"
}
