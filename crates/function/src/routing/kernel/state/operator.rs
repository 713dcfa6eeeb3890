//! Routes that an operator adds or deletes while the table follows the kernel.

use std::net::IpAddr;

use super::{Prefix, State, Target, refuse};
use crate::Error;
use crate::routing::Family;

impl State {
    /// Records that an operator added or deleted the route to a prefix.
    pub(in crate::routing::kernel) fn changed_by_operator(&mut self, prefix: Prefix, is_added: bool) {
        self.operator_routes.remove(&prefix);
        let static_routes = self.static_routes.get_or_insert_default();
        if is_added {
            static_routes.insert(prefix);
        } else {
            static_routes.remove(&prefix);
            self.dirty.insert(prefix);
        }
        if let Some(key) = self.installed.remove(&prefix) {
            self.release(key);
        }
    }

    /// Adds a route over a gateway, whose Ethernet address the kernel resolves. Without `port`, the
    /// gateway must be in a subnet of an interface. The next update changes the table.
    pub(in crate::routing::kernel) fn add_via(
        &mut self,
        prefix: Prefix,
        gateway: IpAddr,
        port: Option<u16>,
    ) -> Result<(), Error> {
        let interface = match port {
            Some(port) => self.interface_of(port).ok_or_else(|| {
                refuse(
                    "no interface that exists belongs to this port: see `interfaces` of [function.follow]".to_owned(),
                )
            })?,
            None => self.interface_to(gateway).ok_or_else(|| {
                refuse(format!("{gateway} is in no subnet of a followed interface: name its port with `port`"))
            })?,
        };
        self.static_routes.get_or_insert_default().remove(&prefix);
        self.operator_routes.insert(prefix, Target::Link { interface, gateway: Some(gateway) });
        self.dirty.insert(prefix);
        Ok(())
    }

    /// Returns the interface of the longest on-link prefix that covers an address.
    fn interface_to(&self, address: IpAddr) -> Option<u32> {
        let covering = (0..=Family::of(address).bits()).rev().filter_map(|length| Prefix::of(address, length));
        covering.filter_map(|prefix| self.target(prefix)).find_map(|target| match target {
            Target::Link { interface, gateway: None } if self.has_port(interface) => Some(interface),
            _ => None,
        })
    }
}
