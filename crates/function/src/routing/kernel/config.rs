//! Settings in the configuration table `[function.follow]`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use nix::unistd::User;
use serde::Deserialize;
use toml::Spanned;

use super::peers::Peers;
use super::{KernelRoutes, RouteSource, Settings};
use crate::config::value;
use crate::{BuildContext, Error};

/// Number of the kernel's main routing table (rtnetlink(7)).
const TABLE_MAIN: u32 = 254;
/// Default port of FRR's FPM plugin.
const FPM_PORT: u16 = 2620;
/// Users whose processes may connect to the FPM listener if none are configured. They are the user
/// of FRR's daemons, and root, which can change the kernel's routes anyway.
const FPM_USERS: [&str; 2] = ["root", "frr"];

/// Settings in the configuration table `[function.follow]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelRoutesConfig {
    /// Source of the routes, which is `"kernel"` or `"fpm"`.
    routes: Spanned<String>,
    /// Network interface of each named port.
    interfaces: BTreeMap<Spanned<String>, Spanned<String>>,
    table: Option<u32>,
    fpm: Option<Spanned<String>>,
    /// Names or uids of the users whose processes may connect to the listening address `fpm`.
    fpm_users: Option<Vec<Spanned<String>>>,
    /// Addresses of other machines that may connect to `fpm`.
    fpm_peers: Option<Vec<Spanned<String>>>,
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
        let (fpm, peers) = (self.fpm_address()?, self.fpm_peers()?);
        Ok(KernelRoutes::new(Settings { source, table: self.table.unwrap_or(TABLE_MAIN), fpm, peers, ports }))
    }

    fn fpm_address(&self) -> Result<SocketAddr, Error> {
        let Some(fpm) = &self.fpm else { return Ok(SocketAddr::from(([127, 0, 0, 1], FPM_PORT))) };
        let address: SocketAddr = fpm.get_ref().parse().map_err(|_| {
            let message = format!("\"{}\" is not an address with a port, such as 127.0.0.1:2620", fpm.get_ref());
            value(fpm.span(), message)
        })?;
        if !address.ip().to_canonical().is_loopback() && self.fpm_peers.is_none() {
            let message = format!(
                "other machines can reach fpm = \"{address}\" and announce routes: use a loopback address, \
                 or name the machines that may connect with fpm_peers = [\"ADDRESS\", ...]"
            );
            return Err(value(fpm.span(), message));
        }
        Ok(address)
    }

    fn fpm_peers(&self) -> Result<Peers, Error> {
        let mut peers = Peers::default();
        match &self.fpm_users {
            None => peers.users.extend(FPM_USERS.iter().filter_map(|name| uid(name))),
            Some(names) => {
                for name in names {
                    let message = || format!("fpm_users: there is no user \"{}\" on this machine", name.get_ref());
                    peers.users.push(uid(name.get_ref()).ok_or_else(|| value(name.span(), message()))?);
                }
            }
        }
        for machine in self.fpm_peers.iter().flatten() {
            let address: IpAddr = machine.get_ref().parse().map_err(|_| {
                let message = format!("fpm_peers: \"{}\" is not an address, such as 192.0.2.1", machine.get_ref());
                value(machine.span(), message)
            })?;
            peers.machines.push(address.to_canonical());
        }
        Ok(peers)
    }
}

/// Returns the uid of a user, who is given by name or number.
fn uid(user: &str) -> Option<u32> {
    user.parse().ok().or_else(|| User::from_name(user).ok().flatten().map(|user| user.uid.as_raw()))
}
