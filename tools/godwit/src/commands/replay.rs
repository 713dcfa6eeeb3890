//! `godwit replay`

use std::path::PathBuf;

use clap::Args;
use godwit_engine::{Options, Replay};

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::summary::{self, Document};
use crate::trace::{Selection, Sinks};

/// Run captures through a configuration. The output depends only on the captures and the
/// configuration, not on the number of workers.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration file.
    config: PathBuf,
    /// Capture that replaces the packets of PORT. Default: the first port from which the chain
    /// receives packets. Several captures are merged by time.
    #[arg(long = "in", value_name = "[PORT=]FILE", required = true, value_parser = parse_capture)]
    inputs: Vec<Capture>,
    /// Capture for the packets that leave through PORT. Without PORT, the capture is for all
    /// unnamed ports. The file appears when it is complete.
    #[arg(long = "out", value_name = "[PORT=]FILE", required = true, value_parser = parse_capture)]
    outputs: Vec<Capture>,
    /// Write the report as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print every step of selected packets, before the report.
    #[arg(long)]
    trace: bool,
    /// Write the steps of these packets as JSON; - is standard output.
    #[arg(long, value_name = "FILE", requires = "trace")]
    trace_json: Option<PathBuf>,
    /// Write these packets as pcapng, on arrival and departure, with their steps as comments.
    #[arg(long, value_name = "FILE", requires = "trace")]
    trace_pcap: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

type Capture = (Option<String>, PathBuf);

/// Parses `PORT=FILE` or `FILE`. The text before the first `=` is a port, unless it contains a `/`.
/// For example, `./a=b.pcap` is a file.
fn parse_capture(text: &str) -> Result<Capture, String> {
    let (port, file) = match text.split_once('=') {
        Some((port, file)) if !port.contains('/') => (Some(port), file),
        _ => (None, text),
    };
    if file.is_empty() || port.is_some_and(str::is_empty) {
        return Err("expected FILE or PORT=FILE".to_owned());
    }
    Ok((port.map(str::to_owned), PathBuf::from(file)))
}

/// Succeeds only if packets were conserved.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = super::load(&arguments.config)?;
    let json = Json::open(arguments.json.as_deref())?;
    let replay = Replay { inputs: arguments.inputs.clone(), outputs: arguments.outputs.clone() };
    if !arguments.trace && arguments.selection != Selection::default() {
        return Err(Failure::User("options that select packets for a trace have no effect: add --trace".to_owned()));
    }
    let sinks = Sinks::open(arguments.trace_json.as_deref(), arguments.trace_pcap.as_ref())?;
    let request = arguments.trace.then(|| arguments.selection.request(sinks.need_frames()));
    let options = Options { replay: Some(replay), ..Options::default() };
    let (report, found) = super::run_traced(config, &options, None, request.as_ref())?;
    if let Some(found) = found {
        sinks.write(&found)?;
    }
    output::print_text(&json, &summary::text(&report))?;
    json.write(&Document::new("replay", arguments.config.display().to_string(), &report))?;
    summary::check_conserved(&report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_precede_a_file() {
        let named = |port: &str, file: &str| Ok((Some(port.to_owned()), PathBuf::from(file)));
        assert_eq!(parse_capture("a.pcap"), Ok((None, "a.pcap".into())));
        assert_eq!(parse_capture("lan=a.pcap"), named("lan", "a.pcap"));
        assert_eq!(parse_capture("lan=x/a=b.pcap"), named("lan", "x/a=b.pcap"));
        assert_eq!(parse_capture("./a=b.pcap"), Ok((None, "./a=b.pcap".into())));
        for wrong in ["", "lan=", "=a.pcap"] {
            assert!(parse_capture(wrong).is_err(), "{wrong}");
        }
    }
}
