//! Configuration keys of `[function.follow]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::{KernelRoutes, RouteSource, Settings};
use crate::config::value;
use crate::{BuildContext, Error};

/// Number of the kernel's main routing table (rtnetlink(7)).
const TABLE_MAIN: u32 = 254;
/// Default port of FRR's FPM plugin.
const FPM_PORT: u16 = 2620;

/// Keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelRoutesConfig {
    /// `"kernel"` or `"fpm"`.
    routes: Spanned<String>,
    /// Kernel interface that corresponds to each port.
    interfaces: BTreeMap<Spanned<String>, Spanned<String>>,
    table: Option<u32>,
    fpm: Option<Spanned<String>>,
}

impl KernelRoutesConfig {
    pub(crate) fn resolve(&self, context: &BuildContext<'_>) -> Result<KernelRoutes, Error> {
        let source = match self.routes.get_ref().as_str() {
            "kernel" => RouteSource::Kernel,
            "fpm" => RouteSource::Fpm,
            other => {
                let message = format!("routes = \"{other}\" is unknown; follow takes routes = \"kernel\" or \"fpm\"");
                return Err(value(self.routes.span(), message));
            }
        };
        let mut ports = Vec::new();
        for (port, interface) in &self.interfaces {
            let Some(index) = context.ports.iter().position(|known| known == port.get_ref()) else {
                let known = context.ports.join(", ");
                let message = format!("there is no port named \"{}\"; the ports are: {known}", port.get_ref());
                return Err(value(port.span(), message));
            };
            if ports.iter().any(|(known, _)| known == interface.get_ref()) {
                let message = format!("interface \"{}\" belongs to two ports; name it once", interface.get_ref());
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
                let message = format!("\"{}\" is not an address with a port, such as 127.0.0.1:2620", fpm.get_ref());
                value(fpm.span(), message)
            })?,
        };
        Ok(KernelRoutes::new(Settings { source, table: self.table.unwrap_or(TABLE_MAIN), fpm, ports }))
    }
}
