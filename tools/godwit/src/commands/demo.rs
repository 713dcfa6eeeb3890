//! `godwit demo`

use std::time::Duration;

use clap::Args;
use godwit_engine::Options;

use crate::failure::Failure;
use crate::{builtin, other_devices, output, summary};

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
    let mut text = String::new();
    for device in other_devices::all().iter().filter(|device| device.present) {
        text += &format!("{}\n", device.sentence);
    }
    text += &summary::text(&report);
    output::print(&text)?;
    summary::verdict(&report)
}
