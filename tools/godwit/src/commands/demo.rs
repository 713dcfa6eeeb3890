//! `godwit demo`

use std::time::Duration;

use clap::Args;
use godwit_engine::Options;

use crate::failure::Failure;
use crate::{builtin, devices, output, summary};

/// Run generated traffic through a chain of functions on whatever devices there are.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How long.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "5")]
    seconds: Duration,
}

/// Says what it does, does it, and ends with the conservation line.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let report = builtin::with("", |config| {
        let intro = format!(
            "Generated packets (IMIX: 64, 570 and 1518 bytes, 7:4:1) take this chain for {} s:\n\n{}\n",
            arguments.seconds.as_secs_f64(),
            config.chain.text(),
        );
        output::print(&intro)?;
        super::run_engine(config, &Options::default(), Some(arguments.seconds))
    })?;
    output::print(&format!("{}{}", unused(), summary::text(&report)))?;
    summary::verdict(&report)
}

/// What else could have worked: a line for each device that is here and that the demo leaves alone.
fn unused() -> String {
    let devices::Others { opencl, not_used } = devices::others();
    let opencl = opencl.iter().map(|found| match found.usable {
        Ok(()) => {
            let id = &found.capabilities.id;
            format!(
                "{id} was not used: the demo runs on the CPU; a configuration moves functions with device = \"{id}\"\n"
            )
        }
        Err(_) => format!("{}\n", devices::sentence(found)),
    });
    let not_used = not_used.iter().filter(|device| device.present).map(|device| format!("{}\n", device.sentence));
    opencl.chain(not_used).collect()
}
