//! What the operator writes.

use serde::Deserialize;
use toml::Spanned;

use crate::{BuildContext, Error};

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many ports to spread over, counted from the first. All of them where it is not given.
    ports: Option<Spanned<u32>>,
}

impl Config {
    /// The number of ports, 1 to what the configuration has.
    pub(super) fn ports(&self, site: &BuildContext<'_>) -> Result<u32, Error> {
        let available = u32::try_from(site.ports.len()).unwrap_or(u32::MAX);
        match &self.ports {
            Some(ports) if *ports.get_ref() == 0 || *ports.get_ref() > available => {
                let given = ports.get_ref();
                let message = match available {
                    0 => format!("ports = {given}: no port is configured"),
                    1 => format!("ports = {given}: must be 1, for one port is configured"),
                    _ => format!("ports = {given}: must be 1 to {available}, the number of configured ports"),
                };
                Err(crate::config::value(ports.span(), message))
            }
            Some(ports) => Ok(*ports.get_ref()),
            None if available == 0 => {
                let message = format!("function \"{}\" sends to ports, and no port is configured", site.name);
                Err(Error::Value { span: None, message })
            }
            None => Ok(available),
        }
    }
}
