//! Configuration of the function `echo`.

use serde::Deserialize;
use toml::Spanned;

use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `echo`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Number of ports over which packets are distributed. The default is all ports.
    ports: Option<Spanned<u32>>,
}

impl Config {
    /// Returns the number of ports over which packets are distributed. It is at least 1 and at most
    /// the number of configured ports.
    pub(super) fn ports(&self, context: &BuildContext<'_>) -> Result<u32, Error> {
        let available = u32::try_from(context.ports.len()).unwrap_or(u32::MAX);
        match &self.ports {
            Some(ports) if *ports.get_ref() == 0 || *ports.get_ref() > available => {
                let given = ports.get_ref();
                let message = match available {
                    0 => format!("ports = {given}: no port is configured"),
                    1 => format!("ports = {given}: must be 1, because one port is configured"),
                    _ => format!("ports = {given}: must be 1 to {available}, the number of configured ports"),
                };
                Err(crate::config::value(ports.span(), message))
            }
            Some(ports) => Ok(*ports.get_ref()),
            None if available == 0 => {
                let message = format!("function \"{}\" sends to ports, but no port is configured", context.name);
                Err(Error::Value { span: None, message })
            }
            None => Ok(available),
        }
    }
}
