//! `[function.follow]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::{Follower, From, Settings};
use crate::config::value;
use crate::{BuildContext, Error};

/// The main table of the kernel (rtnetlink(7)).
const TABLE_MAIN: u32 = 254;
/// Where FRR's plugin connects to if it is told nothing else.
const FPM_PORT: u16 = 2620;

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FollowConfig {
    /// `"kernel"` or `"fpm"`.
    routes: Spanned<String>,
    /// Port, and the interface of the kernel that stands for it.
    interfaces: BTreeMap<Spanned<String>, Spanned<String>>,
    table: Option<u32>,
    fpm: Option<Spanned<String>>,
}

impl FollowConfig {
    pub(crate) fn resolve(&self, site: &BuildContext<'_>) -> Result<Follower, Error> {
        let from = match self.routes.get_ref().as_str() {
            "kernel" => From::Kernel,
            "fpm" => From::Fpm,
            other => {
                let message = format!("routes of follow is \"kernel\" or \"fpm\", and not \"{other}\"");
                return Err(value(self.routes.span(), message));
            }
        };
        let mut ports = Vec::new();
        for (port, interface) in &self.interfaces {
            let Some(index) = site.ports.iter().position(|known| known == port.get_ref()) else {
                let known = site.ports.join(", ");
                let message = format!("there is no port called \"{}\"; the ports are: {known}", port.get_ref());
                return Err(value(port.span(), message));
            };
            if ports.iter().any(|(known, _)| known == interface.get_ref()) {
                let message = format!("interface \"{}\" stands for two ports", interface.get_ref());
                return Err(value(interface.span(), message));
            }
            ports.push((interface.get_ref().clone(), index as u16));
        }
        if ports.is_empty() {
            let message = "follow needs interfaces = { PORT = \"INTERFACE\", ... }".to_owned();
            return Err(value(self.routes.span(), message));
        }
        let fpm = match &self.fpm {
            None => SocketAddr::from(([127, 0, 0, 1], FPM_PORT)),
            Some(fpm) => fpm.get_ref().parse().map_err(|_| {
                let message = format!("\"{}\" is not an address with a port such as 127.0.0.1:2620", fpm.get_ref());
                value(fpm.span(), message)
            })?,
        };
        Ok(Follower::new(Settings { from, table: self.table.unwrap_or(TABLE_MAIN), fpm, ports }))
    }
}
