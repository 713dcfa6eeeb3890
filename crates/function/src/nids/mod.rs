//! The function `nids` inspects packets, TCP streams and protocols with Snort and Suricata rules.
//!
//! | file | holds |
//! |---|---|
//! | `config.rs` | configuration keys |
//! | `rules.rs` | the current rules, and their replacement while packets flow |
//! | `host.rs` | the inspection of each packet |
//! | `published.rs` | counters, from the workers to the control thread |
//! | `fuzz.rs` | function for the test of mutated packets |
//! | `output/` | EVE records, from the workers to a file or socket |
//!
//! The crate `godwit-nids` implements the inspection. All of it runs on the CPU before any kernel
//! runs, because flow state depends on the packet order.

mod config;
#[doc(hidden)]
pub mod fuzz;
mod host;
mod output;
mod published;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use godwit_abi::{Descriptor, Outcome};
use godwit_nids::eve::{Kind as RecordKind, stats_record};
use godwit_nids::packet::LinkType;
use godwit_nids::{Inspector, Settings};
use godwit_packet::ImageRef;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeTable;

use crate::request::refuse_unknown;
use crate::{
    BuildContext, Contract, Error, Function, HostHalf, Housekeeping, Kind, Lifecycle, Notice, Operate, Running,
};

pub use config::Config;
use output::Output;
use published::Published;
use rules::Rules;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/nids/nids.h`.
pub use godwit_kernels::declared::nids::*;

/// Statistics that feed the first counters of this function. Each counter is the sum of the
/// statistics in its list.
const COUNTED: [&[&str]; 6] = [
    &["detect.alert"],
    &["detect.alerts_suppressed"],
    &["flow.total"],
    &["flow.evicted_new", "flow.evicted_established"],
    &["tcp.reassembly_gap"],
    &["tcp.segment_memcap_drop"],
];

/// Registration of the function kind `nids`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Configured function of kind `nids`.
pub struct Nids {
    settings: Settings,
    rules: Rules,
    /// Egress port for the packets of each ingress port.
    peers: Arc<[u16]>,
    output: Option<Output>,
    stats_interval: Duration,
    published: Published,
    /// Messages for the operator that are not reported yet.
    notices: Mutex<Vec<Notice>>,
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(config.resolve(context)?))
}

impl Nids {
    /// Returns the inspection settings for one of `workers` workers. Each worker gets an equal part
    /// of the configured memory.
    fn settings_of(&self, workers: usize) -> Settings {
        let mut settings = self.settings.clone();
        settings.flows_max = settings.flows_max.div_ceil(workers);
        settings.stream_memory_bytes = settings.stream_memory_bytes.div_ceil(workers as u64);
        settings
    }

    fn notice(&self, event: &'static str, sentence: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push((event, sentence));
    }

    fn write_stats(&self) {
        let Some(output) = self.output.as_ref().filter(|_| self.settings.records.contains(RecordKind::Stats)) else {
            return;
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut record = Vec::new();
        stats_record(&self.published.sum(), now.as_micros() as u64, &mut record);
        output.send(record);
    }
}

impl Function for Nids {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&[][..]).into()
    }

    fn host_half(&self, worker: usize, workers: usize) -> Option<HostHalf> {
        let (rules, follower) = self.rules.current();
        let mut inspector = Inspector::new(rules, self.settings_of(workers));
        // Each worker numbers its flows from a different base, so flow numbers are unique.
        inspector.number_flows_from((worker as u64) << 48 | 1);
        let sender = self.output.as_ref().map(Output::sender);
        let counters = self.published.worker(worker);
        let peers = Arc::clone(&self.peers);
        let inline = self.settings.stream.inline;
        Some(HostHalf::Arrange(Box::new(host::NidsHost {
            inspector,
            rules: follower,
            counters,
            sender,
            peers,
            inline,
            clock_offset_ns: 0,
        })))
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn lifecycle(&self) -> Option<&dyn Lifecycle> {
        Some(self)
    }

    fn housekeeping(&self) -> Option<&dyn Housekeeping> {
        let writes = self.output.is_some() && self.settings.records.contains(RecordKind::Stats);
        writes.then_some(self)
    }

    /// Inspects a packet as if it were the first packet of its flow.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let mut inspector = Inspector::new(self.rules.current().0, self.settings_of(1));
        let result = inspector.frame(LinkType::Ethernet, crate::frame_mut(buffer, descriptor), 0, 0);
        host::outcome(result, self.settings.stream.inline, &self.peers, descriptor)
    }
}

impl Operate for Nids {
    fn command(&self, request: &Value, _running: &dyn Running) -> Result<Value, Error> {
        refuse_unknown(request, &[("reload", &[])])?;
        match request["command"].as_str() {
            Some("reload") => {
                let loaded = self.rules.reload()?;
                self.notice("rules_reloaded", format!("{} rules are in use", loaded.rules));
                Ok(json!({
                    "rules": loaded.rules,
                    "unsupported": loaded.unsupported,
                    "patterns": loaded.patterns,
                    "took_ms": loaded.took.as_millis() as u64,
                }))
            }
            _ => Err(Error::Command { message: "unknown command: valid is `reload`".to_owned() }),
        }
    }

    fn counts(&self) -> Vec<u64> {
        let stats = self.published.sum();
        let value = |name: &&str| godwit_nids::stats::value(&stats, name).unwrap_or(0);
        let mut counts: Vec<u64> = COUNTED.iter().map(|names| names.iter().map(value).sum()).collect();
        counts.push(self.output.as_ref().map_or(0, Output::lost));
        counts.push(self.rules.reloads());
        counts
    }

    fn notices(&self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner));
        notices.extend(self.output.as_ref().and_then(Output::notice).map(|sentence| ("records_lost", sentence)));
        notices
    }
}

impl Lifecycle for Nids {
    fn start(&self, live: bool) -> Result<(), Error> {
        let loaded = self.rules.loaded();
        if loaded.unsupported > 0 {
            let sentence = format!(
                "{} of {} rules are not supported and did not load: `godwit rules check` lists them",
                loaded.unsupported,
                loaded.unsupported + loaded.rules
            );
            self.notice("rules_unsupported", sentence);
        }
        match &self.output {
            Some(output) => output.start(live),
            None => Ok(()),
        }
    }

    fn reopen(&self) -> Result<(), Error> {
        match &self.output {
            Some(output) => output.reopen(),
            None => Ok(()),
        }
    }

    fn finish(&self) {
        self.write_stats();
        if let Some(output) = &self.output {
            output.finish();
        }
    }
}

impl Housekeeping for Nids {
    fn interval(&self) -> Duration {
        self.stats_interval
    }

    fn run(&self, _running: &dyn Running) -> Result<(), Error> {
        self.write_stats();
        Ok(())
    }
}
