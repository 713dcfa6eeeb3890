//! One line of results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::size::Size;

/// A row of results. `gbps` counts frame bytes without FCS, unless the detail `gbps_of` names
/// something else.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Name of the bench.
    #[serde(default)]
    pub bench: String,
    /// Device, such as `cpu`, several devices joined by `+`, or the name of a peer.
    pub device: String,
    /// `ref`, a compiled form of a kernel, or the function of a peer.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// How packets reach the device: `call` (bins directly to the function), `launch` or
    /// `persistent` (prepared chunks through a device lane), `engine` (the whole engine), or
    /// `process` (a peer).
    pub mode: String,
    /// Frame size, or `None` if the bench has no frames.
    pub size: Option<Size>,
    /// Packets of one chunk or call.
    pub batch: usize,
    /// Millions of packets or lookups per second, as the median of the rounds.
    pub mpps: f64,
    /// Gigabits of frames per second, or 0 if the bench has no frames.
    pub gbps: f64,
    /// Median time of a batch, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the time of a batch, in microseconds.
    pub p99_us: f64,
    /// Mean power, or `None` if it was not measured.
    pub watts: Option<f64>,
    /// Whether the row belongs to a peer.
    pub peer: bool,
    /// Further facts about this row.
    #[serde(default)]
    pub details: Details,
}

/// Named facts about a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Details(BTreeMap<String, Detail>);

/// One fact about a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Detail {
    /// A count.
    Count(u64),
    /// A measured number.
    Number(f64),
    /// A name or a sentence.
    Text(String),
}

impl Details {
    /// Adds a fact. A number that is not finite is left out.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Detail>) -> Self {
        let value = value.into();
        if !matches!(value, Detail::Number(number) if !number.is_finite()) {
            self.0.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds a fact, if there is one.
    #[must_use]
    pub(crate) fn with_option<T: Into<Detail>>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds all facts of `other`.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the fact called `name`.
    pub fn get(&self, name: &str) -> Option<&Detail> {
        self.0.get(name)
    }

    /// Returns all facts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Detail)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Detail {
    /// Returns the value as a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl std::fmt::Display for Detail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(number) => write!(f, "{number:.2}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<usize> for Detail {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<u64> for Detail {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Detail {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Detail {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
