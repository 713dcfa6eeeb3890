//! Format of a load program, which describes how the traffic of a port changes over time. A program
//! is a TOML file with traffic classes and steps:
//!
//! ```toml
//! repeat = true
//!
//! [[class]]
//! name = "voice"
//! destination = "10.1.0.0/16"
//!
//! [[class]]
//! name = "bulk"
//! destination = "10.2.0.0/16"
//!
//! [[step]]
//! seconds = 2.0
//! rate = "1Mpps"
//! size = 60
//! shares = { voice = 9, bulk = 1 }
//!
//! [[step]]
//! seconds = 0.5
//! rate = "1Mpps"
//! to = "10Mpps"                   # the rate changes linearly during the step
//! size = "imix"
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::super::config::{Config, IpVersion};
use super::super::units::{Prefix, Rate, Size, Span};
use crate::Error;

/// Maximum number of steps in a program.
const STEPS_MAX: usize = 100_000;
/// Maximum number of traffic classes in a program.
pub(super) const CLASSES_MAX: usize = 16;
/// Maximum duration of a step in seconds, which is one day.
const SECONDS_MAX: f64 = 86_400.0;

/// A load program as it is written in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Whether the load program starts again after its last step. Otherwise, the port ends.
    #[serde(default)]
    pub(super) repeat: bool,
    #[serde(default, rename = "class")]
    pub(super) classes: Vec<ClassKeys>,
    #[serde(default, rename = "step")]
    pub(super) steps: Vec<StepKeys>,
}

/// A traffic class, whose packets have the same settings. Absent settings are those of the port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ClassKeys {
    pub(super) name: String,
    pub(super) source: Option<Prefix>,
    pub(super) destination: Option<Prefix>,
    pub(super) source_port: Option<Span>,
    pub(super) destination_port: Option<Span>,
}

/// A period of time with a constant or linearly changing rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepKeys {
    pub(super) seconds: f64,
    /// Rate at the start of the step. Without `to`, the rate is constant during the step.
    pub(super) rate: Rate,
    /// Rate at the end of the step.
    pub(super) to: Option<Rate>,
    /// Frame lengths of the step. If absent, they stay as in the previous step. The first step uses
    /// the frame lengths of the port.
    pub(super) size: Option<Size>,
    /// Relative proportion of packets in each traffic class. If absent, the proportions stay as in
    /// the previous step. They are equal in the first step.
    #[serde(default)]
    pub(super) shares: Option<BTreeMap<String, f64>>,
}

impl ClassKeys {
    /// Returns the configuration of a port that generates only packets of this class.
    pub(in super::super) fn apply(&self, port: &Config) -> Config {
        let mut config = port.clone();
        config.source = self.source.or(config.source);
        if self.destination.is_some() {
            (config.destination, config.destinations) = (self.destination, Vec::new());
        }
        config.source_port = self.source_port.unwrap_or(config.source_port);
        config.destination_port = self.destination_port.unwrap_or(config.destination_port);
        config
    }
}

impl File {
    pub(super) fn parse(path: &Path, text: &str, ip: IpVersion) -> Result<Self, Error> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(text.len(), |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
            Error::Load { path: path.to_owned(), place: format!("line {line}"), reason: error.message().to_owned() }
        })?;
        file.check(path, ip)?;
        Ok(file)
    }

    fn check(&self, path: &Path, ip: IpVersion) -> Result<(), Error> {
        let refuse = |place: String, reason: String| Err(Error::Load { path: path.to_owned(), place, reason });
        if self.steps.is_empty() || self.steps.len() > STEPS_MAX {
            let reason = format!("there are {} [[step]] tables, and 1 to {STEPS_MAX} are allowed", self.steps.len());
            return refuse("the file".to_owned(), reason);
        }
        if self.classes.len() > CLASSES_MAX {
            let count = self.classes.len();
            return refuse(
                "the file".to_owned(),
                format!("there are {count} classes, at most {CLASSES_MAX} are allowed"),
            );
        }
        for (index, class) in self.classes.iter().enumerate() {
            let place = || format!("class `{}`", class.name);
            if self.classes[..index].iter().any(|other| other.name == class.name) {
                return refuse(place(), "there are two classes of this name".to_owned());
            }
            for prefix in [class.source, class.destination].into_iter().flatten() {
                if prefix.address.is_ipv4() != (ip == IpVersion::V4) {
                    let reason = format!("{} does not have the IP version of the port's key `ip`", prefix.address);
                    return refuse(place(), reason);
                }
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            if let Err(error) = self.check_step(step) {
                return refuse(format!("step {}", index + 1), error.to_string());
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &StepKeys) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Value(reason));
        if !(1e-6..=SECONDS_MAX).contains(&step.seconds) {
            return refuse(format!("seconds = {}: must be 0.000001 to {SECONDS_MAX}", step.seconds));
        }
        if [Some(step.rate), step.to].contains(&Some(Rate::Max)) {
            return refuse("rate = \"max\": a load program needs rates such as \"10Mpps\"".to_owned());
        }
        for (name, share) in step.shares.iter().flatten() {
            if !self.classes.iter().any(|class| class.name == *name) {
                return refuse(format!("shares: there is no class `{name}`"));
            }
            if !(0.0..=1e9).contains(share) {
                return refuse(format!("shares: {name} = {share} must be 0 or more"));
            }
        }
        if step.shares.as_ref().is_some_and(|shares| shares.values().sum::<f64>() <= 0.0) {
            return refuse("shares: at least one class needs a share above 0".to_owned());
        }
        Ok(())
    }
}
