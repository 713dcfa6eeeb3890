//! Updates the function's table to match the routing state of this machine.

use hashbrown::HashSet;

use super::{Hop, HopKey, OwnAddresses, Prefix, RouteChange, Routing, State, Target};
use crate::neighbours;
use crate::routing::NextHop;
use crate::{Error, Running};

impl State {
    /// Updates the next hops of the function's table, and then its routes.
    pub(super) fn install(
        &mut self,
        routing: &dyn Routing,
        own: &OwnAddresses,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let changed: Vec<HopKey> = self.changed.iter().copied().collect();
        let mut updates = Vec::new();
        for key in changed {
            let next_hop = self.next_hop(key);
            if let Some(hop) = self.hops.get_mut(&key)
                && hop.next_hop != next_hop
            {
                updates.push((hop.index, next_hop));
                hop.next_hop = next_hop;
                self.awaiting.register(hop.index, target_of(key, next_hop));
            }
        }
        if !updates.is_empty() {
            // If these next hops cannot be copied to a device, the device receives them with the
            // next change.
            routing.set_next_hops(&updates, running)?;
        }
        self.changed.clear();
        if self.dirty.is_empty() {
            return Ok(());
        }
        let static_routes = self.static_routes.take().unwrap_or_default();
        let dirty: Vec<Prefix> = self.dirty.iter().filter(|prefix| !static_routes.contains(*prefix)).copied().collect();
        self.static_routes = Some(static_routes);
        let (moves, unchanged): (Vec<(Prefix, Option<HopKey>)>, Vec<_>) = (dirty.into_iter())
            .map(|prefix| (prefix, self.hop_key(prefix)))
            .partition(|(prefix, key)| self.installed.get(prefix) != key.as_ref());
        for (prefix, _) in &unchanged {
            self.dirty.remove(prefix);
        }
        self.add_hops(&moves, routing, running)?;
        let changes: Vec<RouteChange> = moves
            .iter()
            .map(|&(prefix, key)| RouteChange { prefix, next_hop: key.map(|key| self.hops[&key].index) })
            .collect();
        let done = routing.change(&changes, running);
        let made = done.as_ref().map_or_else(|unchanged| unchanged.made, |()| changes.len());
        for &(prefix, key) in &moves[..made] {
            self.dirty.remove(&prefix);
            if prefix.is_host() {
                // Stations behind interfaces without a port also have the key `Local`, although
                // their addresses are not local.
                own.set(prefix.address(), self.target(prefix) == Some(Target::Local));
            }
            let before = match key {
                Some(key) => {
                    if let Some(hop) = self.hops.get_mut(&key) {
                        hop.routes += 1;
                    }
                    self.installed.insert(prefix, key)
                }
                None => self.installed.remove(&prefix),
            };
            if let Some(before) = before {
                self.release(before);
            }
        }
        done.map_err(|unchanged| unchanged.error)?;
        self.dirty.clear();
        let unused: Vec<(HopKey, u32)> =
            self.hops.iter().filter(|(_, hop)| hop.routes == 0).map(|(key, hop)| (*key, hop.index)).collect();
        let indexes: Vec<u32> = unused.iter().map(|(_, index)| *index).collect();
        routing.remove_next_hops(&indexes, running)?;
        for (key, index) in &unused {
            self.hops.remove(key);
            self.awaiting.register(*index, None);
        }
        Ok(())
    }

    fn add_hops(
        &mut self,
        moves: &[(Prefix, Option<HopKey>)],
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let new: HashSet<HopKey> =
            moves.iter().filter_map(|(_, key)| *key).filter(|key| !self.hops.contains_key(key)).collect();
        let new: Vec<(HopKey, NextHop)> = new.into_iter().map(|key| (key, self.next_hop(key))).collect();
        let next_hops: Vec<NextHop> = new.iter().map(|(_, next_hop)| *next_hop).collect();
        let indexes = routing.add_next_hops(&next_hops, running)?;
        for ((key, next_hop), index) in new.into_iter().zip(indexes) {
            self.hops.insert(key, Hop { index, next_hop, routes: 0 });
            self.awaiting.register(index, target_of(key, next_hop));
        }
        Ok(())
    }
}

/// Returns the station of a next hop, for packets that wait until its address is known. Returns
/// `None` for a next hop that does not lead to a station.
fn target_of(key: HopKey, next_hop: NextHop) -> Option<neighbours::Target> {
    let adjacency = next_hop.adjacency()?;
    let gateway = match key {
        HopKey::Station(_, address) => Some(address),
        HopKey::OnLink(_) => None,
        HopKey::Local | HopKey::Blackhole | HopKey::Unreachable => return None,
    };
    Some(neighbours::Target { port: adjacency.port, gateway, mtu: adjacency.mtu })
}
