//! The function `dpi` (deep packet inspection) searches the payload of every packet for many byte
//! strings.

mod config;
pub(crate) mod patterns;
pub(crate) mod reference;
pub(crate) mod tables;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ImageRef, Memory};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Error, Function, Kind};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/dpi/dpi.h`.
pub use godwit_kernels::declared::dpi::*;
pub use patterns::{parse as parse_patterns, parse_pattern};

/// Registration of the function kind `dpi`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Whether upper and lower case letters are different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Upper and lower case letters are different.
    #[default]
    Sensitive,
    /// Upper and lower case letters of ASCII are equal.
    Insensitive,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Self::Sensitive => byte,
            Self::Insensitive => byte.to_ascii_lowercase(),
        }
    }
}

/// Configured function of kind `dpi`.
#[derive(Debug)]
pub struct Dpi {
    patterns: Vec<Vec<u8>>,
    case: Case,
    image: Memory,
    image_bytes: usize,
}

impl Dpi {
    /// Creates a function that searches for `patterns`. The number of a pattern is its index in the
    /// list.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if
    /// a pattern is empty or there are too many patterns.
    pub fn new(patterns: Vec<Vec<u8>>, case: Case) -> Result<Self, Error> {
        if let Some(number) = patterns.iter().position(Vec::is_empty) {
            return Err(Error::Value { span: None, message: format!("pattern {number} is empty") });
        }
        let (image, image_bytes) = tables::image(&patterns, case)?;
        Ok(Self { patterns, case, image, image_bytes })
    }

    /// Returns the patterns in the order of their numbers.
    pub fn patterns(&self) -> &[Vec<u8>] {
        &self.patterns
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let (patterns, case) = config.resolve(context)?;
    Ok(Arc::new(Dpi::new(patterns, case)?))
}

impl Function for Dpi {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        self.image[..self.image_bytes].into()
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let Some(payload) = reference::payload(crate::frame_mut(buffer, descriptor)) else {
            return Outcome::drop(DROP_TRUNCATED);
        };
        let matches = reference::search(payload, &self.patterns, self.case);
        let verdict = if matches.count == 0 { VERDICT_CLEAN } else { VERDICT_MATCH };
        // The count is limited to the range of its 16-bit field.
        let port = matches.count.min(usize::from(u16::MAX)) as u16;
        Outcome { port, value: matches.first, ..Outcome::verdict(verdict) }
    }
}

#[cfg(test)]
mod tests;
