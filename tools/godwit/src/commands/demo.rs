//! `godwit demo`

use std::time::Duration;

use clap::Args;
use godwit_device::Capabilities;
use godwit_engine::Options;

use crate::failure::Failure;
use crate::{builtin, devices, output, summary};

/// Run generated traffic through a chain of functions on the available devices.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Duration in seconds.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true, default_value = "5")]
    seconds: Duration,
}

/// Prints the chain and its placement, runs it, and prints the report.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let others = devices::others();
    let other = others.found.iter().find(|found| found.usable.is_ok());
    let device = other.map(|found| found.capabilities.id.as_str());
    let stanza = other.filter(|found| found.kind == "cpu").map(own_cores).unwrap_or_default();
    let report = builtin::with(&stanza, device, |config| {
        let intro = format!(
            "Generated packets (IMIX: 64, 570 and 1518 bytes, 7:4:1) traverse this chain for {} s:\n\n{}\n{}",
            arguments.seconds.as_secs_f64(),
            config.chain.text(),
            placement(&others, other),
        );
        output::print(&intro)?;
        super::run_engine(config, &Options::default(), Some(arguments.seconds))
    })?;
    output::print(&summary::text(&report))?;
    summary::check_conserved(&report)
}

/// Returns a `[[device]]` stanza for an OpenCL device that is the CPU itself. It gets the small
/// chunks of a CPU core, because large chunks only add waiting time.
fn own_cores(found: &godwit_device::Found) -> String {
    let id = &found.capabilities.id;
    format!("\n[[device]]\nname = \"{id}\"\nchunk_packets = 256\nbins = 16\nbin_packets = 64\ndeadline_ns = 100000\n")
}

/// Returns a description of the placement, and one line per unused device.
fn placement(others: &devices::Others, other: Option<&godwit_device::Found>) -> String {
    let mut text = match other {
        Some(found) => {
            let Capabilities { id, name, .. } = &found.capabilities;
            let mut text =
                format!("inspect runs on {id} ({}, {name}), all other functions on the CPU.\n", found.platform);
            if found.kind == "cpu" {
                text +=
                    &format!("{id} is the CPU itself under OpenCL: it demonstrates OpenCL, but adds no processor.\n");
            }
            text
        }
        None => "All functions run on the CPU.\n".to_owned(),
    };
    let unusable = others.found.iter().filter(|found| found.usable.is_err()).map(devices::sentence);
    unusable.for_each(|line| text += &format!("{line}\n"));
    text + "\n"
}
