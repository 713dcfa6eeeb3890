//! Access of the fuzz target to the state.

use super::*;

impl State {
    /// Applies an event of the kernel, or of zebra.
    pub(in crate::routing::kernel) fn apply(&mut self, event: Event, family: Family, is_of_zebra: bool) {
        if is_of_zebra { self.zebra_event(event) } else { self.event(event, family) }
    }

    pub(in crate::routing::kernel) fn check(&self) {
        for prefix in &self.dirty {
            if let Some(key) = self.hop_key(*prefix) {
                let next_hop = self.next_hop(key);
                assert!(key != HopKey::Local || next_hop == NextHop::Local);
            }
        }
    }
}
