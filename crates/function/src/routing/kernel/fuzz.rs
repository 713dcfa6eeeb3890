//! Fuzz target for messages of the kernel and of zebra.

use super::fpm::read_frames;
use super::netlink::{self, Message};
use super::state::State;
use super::{RouteSource, Settings, peers};
use crate::routing::Family;

/// Feeds route messages to the recorded routing state. The first byte selects the sender: the
/// kernel (rtnetlink) or zebra (FPM).
pub fn netlink_messages(data: &[u8]) {
    let Some((&source, bytes)) = data.split_first() else { return };
    let settings = Settings {
        source: if source == 0 { RouteSource::Kernel } else { RouteSource::Fpm },
        table: 254,
        fpm: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
        peers: peers::Peers::default(),
        ports: vec![("eth0".to_owned(), 0), ("eth1".to_owned(), 1)],
    };
    for family in [Family::V4, Family::V6] {
        let mut state = State::new(settings.clone());
        if source == 0 {
            netlink::read(bytes, |message| {
                if let Message::Event(event) = message {
                    state.apply(event, family, false);
                }
            });
        } else {
            let mut read = bytes.to_vec();
            let is_valid = read_frames(&mut read, &mut |event| state.apply(event, family, true));
            assert!(!is_valid || read.len() <= bytes.len());
        }
        state.check();
    }
}
