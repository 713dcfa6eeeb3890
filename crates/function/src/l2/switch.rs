//! Ports and VLANs of the switch (IEEE 802.1Q-2018 clauses 6.9 and 8.6.2).

use crate::Error;

/// Number of VLAN identifiers (VIDs). The values 0 and 4095 are not VLANs.
pub(super) const VIDS: u16 = 4096;

/// Port of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) name: String,
    /// VLAN of untagged frames that arrive on the port. With `None`, the port accepts no untagged
    /// frames.
    pub(super) untagged: Option<u16>,
    /// VLANs whose frames are tagged.
    pub(super) tagged: Vec<u16>,
    /// Whether the port accepts tagged frames of its VLANs.
    pub(super) is_trunk: bool,
    pub(super) learns: bool,
    /// Maximum number of addresses that are learned at this port.
    pub(super) mac_limit: Option<u32>,
}

impl Default for Port {
    /// Returns a port without VLANs.
    fn default() -> Self {
        Self { name: String::new(), untagged: None, tagged: Vec::new(), is_trunk: false, learns: true, mac_limit: None }
    }
}

/// Ports of a VLAN.
#[derive(Clone, Debug, Default)]
struct Vlan {
    /// Numbers of the member ports, sorted.
    members: Vec<u8>,
    tagged: [u64; 4],
}

/// Ports and VLANs of the switch.
#[derive(Debug)]
pub(super) struct Switch {
    /// Ports of the switch, indexed by port number. `None` means that a port does not belong to the
    /// switch.
    ports: Vec<Option<Port>>,
    vlans: Vec<Vlan>,
}

impl Switch {
    /// Creates a switch. `ports` holds at most 256 ports, indexed by port number.
    pub(super) fn new(ports: Vec<Option<Port>>) -> Self {
        let mut vlans = vec![Vlan::default(); usize::from(VIDS)];
        for (number, port) in ports.iter().enumerate().filter_map(|(number, port)| Some((number, port.as_ref()?))) {
            for &vid in &port.tagged {
                vlans[usize::from(vid)].tagged[number / 64] |= 1 << (number % 64);
            }
            for &vid in port.untagged.iter().chain(&port.tagged) {
                vlans[usize::from(vid)].members.push(number as u8);
            }
        }
        Self { ports, vlans }
    }

    pub(super) fn port(&self, number: u8) -> Option<&Port> {
        self.ports.get(usize::from(number))?.as_ref()
    }

    /// Returns all ports with their numbers.
    pub(super) fn ports(&self) -> impl Iterator<Item = (u8, &Port)> {
        (0u8..=255).zip(&self.ports).filter_map(|(number, port)| Some((number, port.as_ref()?)))
    }

    /// Returns the number of the port named `name`, or an error.
    pub(super) fn number(&self, name: &str) -> Result<u8, Error> {
        let found = self.ports().find(|(_, port)| port.name == name);
        found.map(|(number, _)| number).ok_or_else(|| {
            let known: Vec<&str> = self.ports().map(|(_, port)| port.name.as_str()).collect();
            Error::value(format!("the switch has no port named \"{name}\"; it has {}", known.join(", ")))
        })
    }

    /// Returns the ports of a VLAN.
    pub(super) fn members(&self, vid: u16) -> &[u8] {
        self.vlans.get(usize::from(vid)).map_or(&[], |vlan| &vlan.members)
    }

    pub(super) fn is_member(&self, vid: u16, port: u8) -> bool {
        self.members(vid).contains(&port)
    }

    /// Returns whether the frames of a VLAN leave by `port` with a tag.
    pub(super) fn is_tagged(&self, vid: u16, port: u8) -> bool {
        let set = self.vlans.get(usize::from(vid)).map_or(0, |vlan| vlan.tagged[usize::from(port / 64)]);
        set >> (port % 64) & 1 != 0
    }

    /// Returns whether some VLAN has both tagged and untagged ports. The switch must then add tags
    /// to frames.
    pub(super) fn pushes(&self) -> bool {
        self.vlans.iter().any(|vlan| {
            let tagged = vlan.tagged.iter().map(|word| word.count_ones() as usize).sum();
            tagged > 0 && vlan.members.len() > tagged
        })
    }
}
