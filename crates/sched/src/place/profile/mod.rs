//! Profile: the measured costs of functions on the devices of one machine, stored as a TOML file.
//!
//! `godwit profile` writes the file. This module only parses and checks its text. The module
//! `check` refuses invalid numbers, and the module `fit` computes costs from measured points.

mod check;
mod fit;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the file format.
const FORMAT: u32 = 1;

/// Reason why a profile is rejected. A profile contains the measured costs of functions on devices.
/// If it is rejected, the operator must measure it again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// The text is not a profile, for example because a part of the file is missing.
    #[error("line {line}: {reason}; the profile is damaged, measure it again with `godwit profile`")]
    Syntax {
        /// Line of the error. The first line has the number 1.
        line: usize,
        /// Error of the parser.
        reason: String,
    },
    /// The file does not end with its summary, or it contains less data than the summary states.
    #[error("the profile is incomplete ({reason}); run `godwit profile` again, which continues the measurement")]
    Incomplete {
        /// The part of the profile that is missing.
        reason: String,
    },
    /// The file has another format, or another version of Godwit wrote it.
    #[error("the profile has {found}, but this Godwit needs {needed}; measure it again with `godwit profile`")]
    Version {
        /// Format or version in the file.
        found: String,
        /// Format or version that is required.
        needed: String,
    },
    /// The profile was measured on another machine or with another configuration.
    #[error("the profile was measured with {key} = {found}, but this machine has {here}; measure it again here")]
    Machine {
        /// Property that differs.
        key: String,
        /// Value in the profile.
        found: String,
        /// Value of this machine.
        here: String,
    },
    /// A number is impossible.
    #[error("{location}: {key} = {value} is impossible, it must be {valid}; measure the profile again")]
    Number {
        /// The part of the profile that contains the number, such as its function and device.
        location: String,
        /// Key of the number.
        key: &'static str,
        /// The number.
        value: f64,
        /// Valid numbers.
        valid: String,
    },
    /// A table of the profile occurs twice or has invalid contents.
    #[error("{location}: {reason}; measure the profile again")]
    Table {
        /// The table.
        location: String,
        /// Its defect.
        reason: String,
    },
}

/// Machine and configuration on which a profile was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Product name of the CPU.
    pub cpu: String,
    /// Number of cores that workers can use.
    pub cores: u32,
    /// Product name and driver of each device. The key is the name of the device in configurations.
    #[serde(default)]
    pub devices: BTreeMap<String, String>,
    /// Digest of the functions and their tables.
    pub config: String,
    /// Version of Godwit.
    pub godwit: String,
    /// Date of the measurement.
    #[serde(default)]
    pub date: String,
}

/// Measured costs of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of the file format.
    pub format: u32,
    /// Median coefficient of variation of repeated measurements. No prediction can be more accurate
    /// than this noise.
    #[serde(default)]
    pub noise_cv: f64,
    /// Machine and configuration.
    pub machine: Identity,
    /// Costs of a worker that are the same for all devices.
    #[serde(default)]
    pub host: Host,
    /// Core time for packets that no function processes, from which `host` follows.
    #[serde(default, rename = "receive")]
    pub receives: Vec<ReceivePoint>,
    /// Costs of each function on each device, for each mode of the device.
    #[serde(default, rename = "curve")]
    pub curves: Vec<Curve>,
    /// Measurements of functions that ran at the same time on one device.
    #[serde(default, rename = "pair")]
    pub pairs: Vec<Pair>,
    /// Power of each device.
    #[serde(default, rename = "power")]
    pub powers: Vec<Power>,
    /// Buses between memory and devices.
    #[serde(default, rename = "bus")]
    pub buses: Vec<Bus>,
    /// Number of tables and measured points. A file that does not end with this summary is
    /// incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// Core time that a worker needs per packet, in nanoseconds. It does not depend on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Cost of receiving, classifying and sending a packet.
    pub receive_ns: f64,
    /// Additional cost per packet if more than one function receives packets.
    pub stream_ns: f64,
    /// Additional core time per packet, in nanoseconds. It applies to workers that both run kernels
    /// and submit packets to a device.
    pub mixed_ns: f64,
}

/// Core time for packets that no function processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivePoint {
    /// Frame length, in bytes.
    pub bytes: u16,
    /// Packets per second, in millions.
    pub mpps: f64,
    /// Core time of the workers per packet, in nanoseconds.
    pub host_ns: f64,
    /// Number of repetitions of the measurement.
    #[serde(default = "once")]
    pub runs: u32,
    /// Coefficient of variation of the repeated measurements.
    #[serde(default)]
    pub cv: f64,
}

/// Costs of one function on one device in one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Name of the configured function.
    pub function: String,
    /// Name of the device.
    pub device: String,
    /// Mode of the device: `launch` or `persistent`.
    #[serde(default = "launch")]
    pub mode: String,
    /// Measured points.
    #[serde(default)]
    pub points: Vec<CurvePoint>,
    /// Costs that fit the measured points. If the file contains no costs, the parser computes them
    /// from the points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
}

fn launch() -> String {
    "launch".to_owned()
}

/// One measured point of a cost curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Packet limit of a submission.
    pub chunk: u32,
    /// Frame length, in bytes.
    pub bytes: u16,
    /// Offered load as a fraction of the maximum rate. The value 1 means that packets were offered
    /// as fast as possible.
    #[serde(default = "full", rename = "use")]
    pub load: f64,
    /// Mean number of packets in a submission. If it is missing, submissions were full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<f64>,
    /// Processed packets per second, in millions.
    pub mpps: f64,
    /// Core time of the workers per packet for submitting and routing packets, in nanoseconds. It
    /// excludes the kernel, and the core time for receiving and sending ([`Host::receive_ns`]).
    #[serde(default)]
    pub host_ns: f64,
    /// Device time per packet, in nanoseconds. On the CPU, it is the core time of the kernel.
    #[serde(default)]
    pub device_ns: f64,
    /// Median latency, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Power of the device, in watts. The value is `None` if the device has no power meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Number of repetitions of the measurement.
    #[serde(default = "once")]
    pub runs: u32,
    /// Coefficient of variation of the repeated measurements.
    #[serde(default)]
    pub cv: f64,
}

fn full() -> f64 {
    1.0
}

fn once() -> u32 {
    1
}

/// Linear costs of one function on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fit {
    /// Time of the device per submission, in nanoseconds.
    pub chunk_ns: f64,
    /// Device time per packet that does not depend on the frame length, in nanoseconds. The linear
    /// fit can make it negative if the cost grows faster than the frame length.
    pub packet_ns: f64,
    /// Time of the device per frame byte, in nanoseconds.
    pub byte_ns: f64,
    /// Smallest measured device time per packet, in nanoseconds. No predicted time is smaller.
    pub floor_ns: f64,
    /// Time of the device per batch, in nanoseconds.
    pub bin_ns: f64,
    /// Core time per packet for submitting packets to the device and for routing them, in
    /// nanoseconds.
    pub host_ns: f64,
    /// Core time per submission to the device, in nanoseconds.
    pub submit_ns: f64,
    /// Median latency of the idle device, in nanoseconds.
    pub trip_ns: f64,
    /// Additional latency per frame byte, in nanoseconds.
    pub trip_byte_ns: f64,
    /// Ratio of 99th percentile to median latency of the idle device.
    pub tail: f64,
    /// Median relative error of the predicted rate.
    pub error_median: f64,
    /// Largest relative error of the predicted rate.
    pub error_max: f64,
}

/// Measurement of two or three functions that ran at the same time on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Name of the device.
    pub device: String,
    /// Names of the functions.
    pub functions: Vec<String>,
    /// Packet limit of a submission.
    pub chunk: u32,
    /// Frame length, in bytes.
    pub bytes: u16,
    /// Rate of each function, in million packets per second.
    pub mpps: Vec<f64>,
    /// Rate of each function as a fraction of its rate when it runs alone.
    pub of_solo: Vec<f64>,
    /// For each function, the relative increase of its cost while other functions also use the
    /// device.
    pub gamma: Vec<f64>,
}

/// Power of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Name of the device.
    pub device: String,
    /// Power meter that was used: `nvml`, `rapl` or `hwmon`.
    pub meter: String,
    /// Power while the device sleeps, in watts. For the CPU, it is the power while all workers
    /// sleep.
    pub asleep: f64,
    /// Power while the device is awake and idle, in watts. For the CPU, it is the power while all
    /// workers spin.
    pub awake: f64,
    /// Time from waking the device until its first submission is finished, in microseconds.
    #[serde(default)]
    pub wake_us: f64,
    /// Power under load.
    #[serde(default)]
    pub points: Vec<PowerPoint>,
}

/// Power of a device at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerPoint {
    /// Used fraction of the device's capacity.
    #[serde(rename = "use")]
    pub load: f64,
    /// Power, in watts.
    pub watts: f64,
}

/// Bus that one or several devices share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Name of the bus in sentences, such as `PCIe`.
    pub name: String,
    /// Devices on the bus.
    pub devices: Vec<String>,
    /// Transfer rate of the bus towards the devices, in gigabits per second.
    pub in_gbps: f64,
    /// Transfer rate of the bus from the devices, in gigabits per second.
    pub out_gbps: f64,
    /// Bytes that each direction transfers per packet in addition to the frame, such as the packet
    /// descriptor.
    #[serde(default)]
    pub packet_bytes: f64,
}

/// Numbers of tables and measured points in a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Number of curves (measured costs).
    pub curves: usize,
    /// Number of measured points in all curves.
    pub points: usize,
    /// Number of measurements of functions that ran at the same time.
    pub pairs: usize,
}

impl Profile {
    /// Parses a complete profile. Computes missing costs of functions from their measured points.
    ///
    /// # Errors
    /// Returns an error if the text is not a profile, if a part is missing, or if a number is
    /// impossible.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self::parse_partial(text)?;
        profile.check_complete()?;
        for curve in &mut profile.curves {
            curve.fit = curve.fit.or_else(|| fit::fit(&curve.points, &curve.device));
            if curve.fit.is_none() {
                let location = curve.location();
                return Err(ProfileError::Table { location, reason: "too few points for a fit".to_owned() });
            }
        }
        Ok(profile)
    }

    /// Parses a profile that may be incomplete. `godwit profile` then continues the measurement.
    ///
    /// # Errors
    /// Returns an error if the text is not a profile, or if a number is impossible.
    pub fn parse_partial(text: &str) -> Result<Self, ProfileError> {
        // The format is checked first, because another format may have other keys.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let syntax = |error: toml::de::Error| {
            let start = error.span().map_or(text.len(), |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
            ProfileError::Syntax { line, reason: error.message().replace('\n', " ") }
        };
        let head: Head = toml::from_str(text).map_err(syntax)?;
        if head.format != FORMAT {
            let (found, needed) = (format!("format {}", head.format), format!("format {FORMAT}"));
            return Err(ProfileError::Version { found, needed });
        }
        let profile: Self = toml::from_str(text).map_err(syntax)?;
        profile.check_numbers()?;
        Ok(profile)
    }

    /// Returns the profile as the text of a file, with its summary.
    ///
    /// # Errors
    /// Returns an error if the profile contains a number that [`Profile::parse`] would refuse.
    pub fn to_text(&self) -> Result<String, ProfileError> {
        Self { summary: Some(self.count()), ..self.clone() }.text()
    }

    /// Returns the profile as the text of a file without its summary. [`Profile::parse`] refuses
    /// such a file, because measurements may be missing.
    ///
    /// # Errors
    /// Returns an error if the profile contains a number that [`Profile::parse`] would refuse.
    pub fn to_partial_text(&self) -> Result<String, ProfileError> {
        Self { summary: None, ..self.clone() }.text()
    }

    fn text(&self) -> Result<String, ProfileError> {
        self.check_numbers()?;
        let refuse = |error: toml::ser::Error| ProfileError::Syntax { line: 0, reason: error.to_string() };
        toml::to_string(self).map_err(refuse)
    }

    /// Computes the costs of all functions from their measured points, and the noise from repeated
    /// measurements.
    pub fn fit(&mut self) {
        for curve in &mut self.curves {
            curve.fit = fit::fit(&curve.points, &curve.device);
        }
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let mut noise: Vec<f64> = points.filter(|point| point.runs > 1).map(|point| point.cv).collect();
        noise.sort_by(f64::total_cmp);
        self.noise_cv = noise.get(noise.len() / 2).copied().unwrap_or(0.0);
    }

    /// Returns the measured costs of a function on a device, for one mode of the device.
    pub fn curve(&self, function: &str, device: &str, mode: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.function == function && curve.device == device && curve.mode == mode)
    }

    /// Returns the power of a device.
    pub fn power(&self, device: &str) -> Option<&Power> {
        self.powers.iter().find(|power| power.device == device)
    }

    fn count(&self) -> Summary {
        let points = self.curves.iter().map(|curve| curve.points.len()).sum();
        Summary { curves: self.curves.len(), points, pairs: self.pairs.len() }
    }
}

impl Curve {
    /// Returns the name of the curve's table in error messages.
    fn location(&self) -> String {
        format!("curve of {} on {} ({})", self.function, self.device, self.mode)
    }
}
