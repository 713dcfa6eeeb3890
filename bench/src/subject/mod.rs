//! Subjects: the code that measures. Each definition names one. Subjects do not import each other.
//!
//! | file | measures |
//! |---|---|
//! | `engine.rs` | the whole engine around `echo`; peer: dpdk-testpmd |
//! | `function.rs` | one function on packets in memory |
//! | `whole.rs` | functions over whole packets, with each algorithm; peer: OpenSSL |
//! | `ipsec/` | IPsec: on packets in memory, as a gateway in the engine, on CPU and device together; peer: Intel ipsec-mb |
//! | `table/` | lookup tables without packets; peers: tables of DPDK |
//! | `loops.rs` | lookup loops that hide memory latency; peer: C++20 coroutines |
//! | `apps/` | whole functions in the engine, by workers, load or packing |
//! | `chain.rs` | a chain of functions on a device, and on several devices at once |
//! | `custom/` | functions of users: a copy of `ipv4`, tables, flows, their start |
//! | `sharing.rs` | one device for two functions, or for several threads |
//! | `devices.rs` | devices without packets: copies, launches, random reads |
//! | `latency.rs` | one batch from submission to completion |
//! | `scheduling.rs` | the settings of the packer |
//! | `literals.rs` | search for many byte strings; peer: Vectorscan |
//! | `sign.rs` | private-key operations of TLS; peers: crypto_mb, `openssl speed` |
//! | `tls.rs` | the TLS reverse proxy; peers: nginx, HAProxy |

mod apps;
mod chain;
mod custom;
mod devices;
mod engine;
mod function;
mod ipsec;
mod latency;
mod literals;
mod loops;
mod scheduling;
mod sharing;
mod sign;
mod table;
#[cfg(feature = "tls")]
mod tls;
mod whole;

use crate::error::Error;
use crate::progress::Progress;
use crate::run::options::{
    BATCH, BIN, CONNECTIONS, Context, DECRYPT, IN_FLIGHT, IPSEC, KEY, LANE, LAYOUT, MODE, OptionSpec, PACKETS, SAS,
    SUITE, TRANSFER, WORK, WORKERS,
};
use crate::run::row::Row;

/// The devices that a subject can measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Devices {
    /// The CPU.
    Cpu,
    /// One device at a time.
    One,
    /// One device, or several at once.
    Several,
    /// All devices of this machine in one run, unless the request names devices.
    All,
}

/// Code that measures, and the options that it understands.
pub(crate) struct Subject {
    /// Name in definitions.
    pub(crate) name: &'static str,
    pub(crate) devices: Devices,
    /// Options that definitions may offer.
    pub(crate) options: &'static [&'static [&'static OptionSpec]],
    /// Keys of `[workload]` that are not options. A test compares them with the definitions.
    #[cfg_attr(not(test), expect(dead_code, reason = "definitions are embedded, so the test suffices"))]
    pub(crate) parameters: &'static [&'static str],
    /// Measures. The caller sets the field `bench` of the rows.
    pub(crate) run: fn(&Context, &mut Progress<'_>) -> Result<Vec<Row>, Error>,
}

impl Subject {
    /// Returns the options that definitions may offer.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'static OptionSpec> {
        self.options.iter().flat_map(|group| group.iter().copied())
    }
}

/// All subjects.
pub(crate) const SUBJECTS: &[Subject] = &[
    Subject { name: "engine", devices: Devices::Cpu, options: &[], parameters: &[], run: engine::run },
    Subject {
        name: "function",
        devices: Devices::Several,
        options: &[LANE],
        parameters: &["function", "table_mib"],
        run: function::run,
    },
    Subject { name: "whole", devices: Devices::Several, options: &[LANE], parameters: &["function"], run: whole::run },
    Subject {
        name: "ipsec",
        devices: Devices::Several,
        options: &[LANE, IPSEC],
        parameters: &[],
        run: ipsec::alone::run,
    },
    Subject {
        name: "ipsec-together",
        devices: Devices::One,
        options: &[LANE, IPSEC],
        parameters: &[],
        run: ipsec::together::run,
    },
    Subject {
        name: "ipsec-figure",
        devices: Devices::All,
        options: &[LANE, &[&SAS]],
        parameters: &["figure"],
        run: ipsec::figures::run,
    },
    Subject {
        name: "gateway",
        devices: Devices::Several,
        options: &[LANE, &[&SUITE, &SAS]],
        parameters: &[],
        run: ipsec::gateway_rows::run,
    },
    Subject {
        name: "gateway-together",
        devices: Devices::One,
        options: &[LANE, &[&SUITE, &SAS]],
        parameters: &[],
        run: ipsec::gateway_together::run,
    },
    Subject {
        name: "io-models",
        devices: Devices::One,
        options: &[LANE, &[&SUITE, &SAS]],
        parameters: &[],
        run: ipsec::io_models::run,
    },
    Subject {
        name: "ipsec-workers",
        devices: Devices::One,
        options: &[LANE, &[&SUITE, &SAS]],
        parameters: &[],
        run: ipsec::workers::run,
    },
    Subject { name: "ipv4-table", devices: Devices::Cpu, options: &[], parameters: &[], run: table::ipv4::lookup },
    Subject { name: "ipv4-load", devices: Devices::Cpu, options: &[], parameters: &[], run: table::ipv4::load },
    Subject { name: "ipv6-table", devices: Devices::Cpu, options: &[], parameters: &[], run: table::ipv6::lookup },
    Subject { name: "l2-table", devices: Devices::Cpu, options: &[], parameters: &[], run: table::l2::lookup },
    Subject {
        name: "loops",
        devices: Devices::Cpu,
        options: &[&[&BATCH, &PACKETS]],
        parameters: &["table_mib"],
        run: loops::lookups,
    },
    Subject {
        name: "arithmetic",
        devices: Devices::Cpu,
        options: &[&[&BATCH, &PACKETS]],
        parameters: &["table_mib"],
        run: loops::arithmetic,
    },
    Subject {
        name: "apps",
        devices: Devices::All,
        options: &[&[&WORKERS, &PACKETS]],
        parameters: &["app", "table_mib"],
        run: apps::throughput::run,
    },
    Subject {
        name: "load-latency",
        devices: Devices::All,
        options: &[&[&WORKERS, &PACKETS]],
        parameters: &["app", "table_mib"],
        run: apps::latency::run,
    },
    Subject {
        name: "patterns",
        devices: Devices::Cpu,
        options: &[&[&WORKERS, &PACKETS]],
        parameters: &[],
        run: apps::patterns::run,
    },
    Subject { name: "chain", devices: Devices::One, options: &[LANE, &[&SUITE]], parameters: &[], run: chain::run },
    Subject {
        name: "several",
        devices: Devices::All,
        options: &[LANE, &[&SUITE]],
        parameters: &[],
        run: chain::on_several,
    },
    Subject { name: "custom-copy", devices: Devices::Several, options: &[LANE], parameters: &[], run: custom::copy },
    Subject { name: "custom-exact", devices: Devices::Several, options: &[LANE], parameters: &[], run: custom::exact },
    Subject { name: "custom-flows", devices: Devices::Cpu, options: &[], parameters: &[], run: custom::flows::run },
    Subject { name: "custom-start", devices: Devices::Cpu, options: &[], parameters: &[], run: custom::start },
    Subject { name: "custom-change", devices: Devices::Cpu, options: &[], parameters: &[], run: custom::change },
    Subject { name: "sharing", devices: Devices::One, options: &[LANE, IPSEC], parameters: &[], run: sharing::run },
    Subject { name: "devices", devices: Devices::All, options: &[&[&TRANSFER]], parameters: &[], run: devices::run },
    Subject {
        name: "latency",
        devices: Devices::One,
        options: &[&[&MODE, &LAYOUT, &TRANSFER, &BIN, &SUITE, &SAS, &DECRYPT]],
        parameters: &[],
        run: latency::run,
    },
    Subject {
        name: "scheduling",
        devices: Devices::One,
        options: &[&[&MODE, &LAYOUT, &TRANSFER, &BATCH, &IN_FLIGHT, &PACKETS]],
        parameters: &[],
        run: scheduling::run,
    },
    Subject { name: "literals", devices: Devices::Cpu, options: &[&[&KEY]], parameters: &[], run: literals::run },
    Subject { name: "sign", devices: Devices::Cpu, options: &[&[&KEY, &BATCH]], parameters: &[], run: sign::run },
    Subject {
        name: "tls",
        devices: Devices::Cpu,
        options: &[&[&KEY, &WORK, &CONNECTIONS]],
        parameters: &[],
        run: run_tls,
    },
];

#[cfg(feature = "tls")]
use tls::run as run_tls;

#[cfg(not(feature = "tls"))]
fn run_tls(_: &Context, _: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    Err(Error::Setup("the bench `tls` needs the feature `tls`: build Godwit without --no-default-features".to_owned()))
}
