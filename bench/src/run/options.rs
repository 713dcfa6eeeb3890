//! The options of a bench, with values from the definition and the command line.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use godwit_device::{Mode, Transfer, is_synchronous};
use godwit_packet::Layout;

use crate::error::Error;
use crate::load::associations::Choice;
use crate::load::size::Size;

/// An option that some benches accept.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Name, without dashes.
    pub name: &'static str,
    /// Placeholder of its value in the help text, or `None` for a switch.
    pub value: Option<&'static str>,
    /// Help text.
    pub help: &'static str,
}

/// Options that every bench accepts.
pub(crate) const COMMON: [&str; 5] = ["device", "impl", "size", "seconds", "no-peers"];

/// How a device receives chunks.
pub(crate) const MODE: OptionSpec = OptionSpec {
    name: "mode",
    value: Some("MODE"),
    help: "How a device receives chunks: launch or persistent. Default: the CPU is called bin after bin, other devices \
           launch",
};
/// Layout of the packets in the arena.
pub(crate) const LAYOUT: OptionSpec = OptionSpec {
    name: "layout",
    value: Some("LAYOUT"),
    help: "Layout of the packets in the arena: dense (default) or slots",
};
/// How packets reach a CUDA device.
pub(crate) const TRANSFER: OptionSpec = OptionSpec {
    name: "transfer",
    value: Some("TRANSFER"),
    help: "How packets of launched chunks reach a CUDA device: auto (default), copy or zero_copy",
};
/// Packets of a chunk.
pub(crate) const BATCH: OptionSpec =
    OptionSpec { name: "batch", value: Some("N"), help: "Packets of a chunk, lookups of a group, or waiting jobs" };
/// Packets of a bin.
pub(crate) const BIN: OptionSpec = OptionSpec { name: "bin", value: Some("N"), help: "Packets of a bin" };
/// Chunks in flight.
pub(crate) const IN_FLIGHT: OptionSpec =
    OptionSpec { name: "in-flight", value: Some("N"), help: "Chunks in flight, for each thread that feeds the device" };
/// Packets in the arena.
pub(crate) const PACKETS: OptionSpec = OptionSpec {
    name: "packets",
    value: Some("N"),
    help: "Packets in the arena, or queries of a round. Default: more than the caches hold",
};
/// Workers or feeding threads.
pub(crate) const WORKERS: OptionSpec = OptionSpec {
    name: "workers",
    value: Some("N"),
    help: "Workers of the engine, or threads that feed a device. If repeated, each number is measured",
};
/// Cipher suite.
pub(crate) const SUITE: OptionSpec = OptionSpec {
    name: "suite",
    value: Some("SUITE"),
    help: "Suite of ipsec, such as cbc128_sha1, gcm128 or chacha20_poly1305; mix uses these three in turn",
};
/// Number of SAs.
pub(crate) const SAS: OptionSpec = OptionSpec { name: "sas", value: Some("N"), help: "Number of SAs. Default: 4096" };
/// Direction of IPsec.
pub(crate) const DECRYPT: OptionSpec =
    OptionSpec { name: "decrypt", value: None, help: "Measure decryption instead of encryption" };

/// Kind of private key.
pub(crate) const KEY: OptionSpec = OptionSpec {
    name: "key",
    value: Some("KEY"),
    help: "Private key: rsa2048, rsa3072, rsa4096, p256, p384 or ed25519. If repeated, each is measured",
};

/// Work of clients.
pub(crate) const WORK: OptionSpec = OptionSpec {
    name: "work",
    value: Some("WORK"),
    help: "Work of TLS clients: full or resumed handshakes, or requests. If repeated, each is measured",
};
/// Connections at a time.
pub(crate) const CONNECTIONS: OptionSpec = OptionSpec {
    name: "connections",
    value: Some("N"),
    help: "Connections of TLS clients at a time. If repeated, each number is measured",
};

/// Options of benches that send prepared chunks through a lane.
pub(crate) const LANE: &[&OptionSpec] = &[&MODE, &LAYOUT, &TRANSFER, &BATCH, &BIN, &IN_FLIGHT, &PACKETS, &WORKERS];
/// Options of benches with a choice of SAs.
pub(crate) const IPSEC: &[&OptionSpec] = &[&SUITE, &SAS, &DECRYPT];

/// A user's request. Empty fields select the defaults of the definition.
#[derive(Clone, Debug)]
pub struct Request {
    /// Device names. Benches that support several devices measure them at once.
    pub devices: Vec<String>,
    /// Implementation: `ref`, `scalar`, `gopt`, `native` or, for single functions, `all`.
    pub implementation: Option<String>,
    /// Frame sizes.
    pub sizes: Vec<Size>,
    /// Time for each figure.
    pub time: Option<Duration>,
    /// Whether to measure peers.
    pub peers: bool,
    /// Values of all other options, by option name. A switch has the value `true`.
    pub options: BTreeMap<String, Vec<String>>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            implementation: None,
            sizes: Vec::new(),
            time: None,
            peers: true,
            options: BTreeMap::new(),
        }
    }
}

impl Request {
    /// Sets an option.
    #[must_use]
    pub fn with(mut self, option: &str, value: impl ToString) -> Self {
        self.options.entry(option.to_owned()).or_default().push(value.to_string());
        self
    }
}

/// Time per figure below which tables, packets and rounds are few. Tests use it.
pub(crate) const BRIEF: Duration = Duration::from_millis(100);

/// The options that every bench accepts, with defaults applied.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Whether the request names the devices.
    pub(crate) devices_named: bool,
    /// Devices to measure, at least one.
    pub(crate) devices: Vec<String>,
    /// Implementation in the request.
    pub(crate) implementation: Option<String>,
    /// Frame sizes, at least one.
    pub(crate) sizes: Vec<Size>,
    /// Time for each figure.
    pub(crate) time: Duration,
    /// Whether to measure peers.
    pub(crate) peers: bool,
}

impl Common {
    /// Returns the first device.
    pub(crate) fn device(&self) -> &str {
        &self.devices[0]
    }

    /// Returns the names of all devices.
    pub(crate) fn devices(&self) -> Vec<&str> {
        self.devices.iter().map(String::as_str).collect()
    }

    /// Returns whether tables, packets and rounds must be few.
    pub(crate) fn brief(&self) -> bool {
        self.time < BRIEF
    }
}

/// Everything that a subject receives.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) common: Common,
    pub(crate) values: Values,
}

/// Values of a bench's options and parameters, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(BTreeMap<String, Vec<String>>);

impl Values {
    /// Reads the workload of a definition.
    pub(crate) fn of_workload(workload: &toml::Table) -> Self {
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let list = |value: &toml::Value| match value {
            toml::Value::Array(values) => values.iter().map(text).collect(),
            value => vec![text(value)],
        };
        Self(workload.iter().map(|(name, value)| (name.clone(), list(value))).collect())
    }

    /// Replaces the values of all options in `others`.
    pub(crate) fn replace(&mut self, others: &BTreeMap<String, Vec<String>>) {
        self.0.extend(others.iter().map(|(name, values)| (name.clone(), values.clone())));
    }

    /// Returns all values of an option.
    pub(crate) fn list<T: Value>(&self, name: &str) -> Result<Vec<T>, Error> {
        let parse = |text: &String| {
            T::parse(text).ok_or_else(|| Error::Setup(format!("--{name}: expected {}, not `{text}`", T::EXPECTED)))
        };
        self.0.get(name).map_or(&[][..], Vec::as_slice).iter().map(parse).collect()
    }

    /// Returns the last value of an option.
    pub(crate) fn get<T: Value>(&self, name: &str) -> Result<Option<T>, Error> {
        Ok(self.list(name)?.pop())
    }

    /// Returns whether a switch is on.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|values| values.last().is_some_and(|value| value == "true"))
    }

    /// Returns the text of a parameter that the definition must contain.
    pub(crate) fn parameter(&self, name: &str) -> Result<String, Error> {
        self.get(name)?.ok_or_else(|| Error::Setup(format!("the definition has no key `{name}` in [workload]")))
    }
}

/// A type of option values.
pub(crate) trait Value: Sized {
    /// Valid values, for error messages.
    const EXPECTED: &str;
    /// Parses a value.
    fn parse(text: &str) -> Option<Self>;
}

impl Value for usize {
    const EXPECTED: &str = "a whole number above 0";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number| *number > 0)
    }
}

impl Value for u32 {
    const EXPECTED: &str = "a whole number above 0";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number| *number > 0)
    }
}

impl Value for f64 {
    const EXPECTED: &str = "a number above 0";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
    }
}

impl Value for String {
    const EXPECTED: &str = "a name";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Value for Size {
    const EXPECTED: &str = "a frame size";
    fn parse(text: &str) -> Option<Self> {
        Self::from_str(text).ok()
    }
}

impl Value for Mode {
    const EXPECTED: &str = "launch or persistent";
    fn parse(text: &str) -> Option<Self> {
        [Self::Launch, Self::Persistent].into_iter().find(|mode| mode.name() == text)
    }
}

impl Value for Transfer {
    const EXPECTED: &str = "auto, copy or zero_copy";
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transfer| transfer.name() == text)
    }
}

impl Value for Layout {
    const EXPECTED: &str = "dense or slots";
    fn parse(text: &str) -> Option<Self> {
        [Self::Dense, Self::Slots].into_iter().find(|layout| layout_name(*layout) == text)
    }
}

/// Returns the name of a layout, as in `--layout`.
pub(crate) fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Dense => "dense",
        Layout::Slots => "slots",
    }
}

/// Options of benches that send prepared chunks through a lane. `None` selects a value that suits
/// the device.
#[derive(Clone, Debug)]
pub(crate) struct LaneOptions {
    pub(crate) common: Common,
    /// How the device receives chunks.
    pub(crate) mode: Option<Mode>,
    pub(crate) layout: Layout,
    /// How packets of launched chunks reach a CUDA device.
    pub(crate) transfer: Option<Transfer>,
    /// Packets of a chunk.
    pub(crate) batch: Option<usize>,
    /// Packets of a bin.
    pub(crate) bin_packets: Option<usize>,
    /// Chunks in flight, for each thread that feeds the device.
    pub(crate) in_flight: Option<usize>,
    /// Packets in the arena, over all threads.
    pub(crate) packets: Option<usize>,
    /// Numbers of engine workers, or of threads that feed the device. Each number is measured.
    pub(crate) workers: Vec<usize>,
}

impl LaneOptions {
    /// Parses the options.
    pub(crate) fn parse(context: &Context) -> Result<Self, Error> {
        let Context { common, values } = context;
        Ok(Self {
            common: common.clone(),
            mode: values.get(MODE.name)?,
            layout: values.get(LAYOUT.name)?.unwrap_or(Layout::Dense),
            transfer: values.get(TRANSFER.name)?,
            batch: values.get(BATCH.name)?,
            bin_packets: values.get(BIN.name)?,
            in_flight: values.get(IN_FLIGHT.name)?,
            packets: values.get(PACKETS.name)?,
            workers: values.list(WORKERS.name)?,
        })
    }

    /// Returns the first device.
    pub(crate) fn device(&self) -> &str {
        self.common.device()
    }

    /// Returns the names of all devices.
    pub(crate) fn devices(&self) -> Vec<&str> {
        self.common.devices()
    }

    /// Returns whether prepared chunks go through a lane. Otherwise, bins go directly to the
    /// function.
    pub(crate) fn through_lane(&self) -> bool {
        self.mode.is_some() || !is_synchronous(self.device())
    }
}

/// Parses the choice of SAs.
pub(crate) fn choice(values: &Values) -> Result<Choice, Error> {
    Ok(Choice { suite: values.get(SUITE.name)?, sas: values.get(SAS.name)?, decrypt: values.flag(DECRYPT.name) })
}
