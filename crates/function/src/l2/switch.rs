//! Ports and VLANs (IEEE 802.1Q-2018 clauses 6.9 and 8.6.2).

/// VIDs that there are; 0 and 4095 name no VLAN.
pub(super) const VIDS: u16 = 4096;

/// A port of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) name: String,
    /// The VLAN of frames without a tag; `None`: it takes none.
    pub(super) untagged: Option<u16>,
    /// VLANs whose frames come and go with a tag.
    pub(super) tagged: Vec<u16>,
    /// Whether it takes frames with a tag of its VLANs.
    pub(super) is_trunk: bool,
    pub(super) learns: bool,
    /// Most addresses that are learned here.
    pub(super) mac_limit: Option<u32>,
}

impl Default for Port {
    /// One that belongs to no VLAN.
    fn default() -> Self {
        Self { name: String::new(), untagged: None, tagged: Vec::new(), is_trunk: false, learns: true, mac_limit: None }
    }
}

/// The ports that a VLAN has.
#[derive(Clone, Debug, Default)]
struct Vlan {
    /// In order.
    members: Vec<u8>,
    tagged: [u64; 4],
}

/// All ports.
#[derive(Debug)]
pub(super) struct Switch {
    /// By number; `None`: none of the switch's.
    ports: Vec<Option<Port>>,
    vlans: Vec<Vlan>,
}

impl Switch {
    /// `ports`: by number, at most 256.
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

    /// All ports by number.
    pub(super) fn ports(&self) -> impl Iterator<Item = (u8, &Port)> {
        (0u8..=255).zip(&self.ports).filter_map(|(number, port)| Some((number, port.as_ref()?)))
    }

    /// The number of the port called `name`, or what to say.
    pub(super) fn number(&self, name: &str) -> Result<u8, String> {
        let found = self.ports().find(|(_, port)| port.name == name);
        found.map(|(number, _)| number).ok_or_else(|| {
            let known: Vec<&str> = self.ports().map(|(_, port)| port.name.as_str()).collect();
            format!("the switch has no port called \"{name}\"; it has {}", known.join(", "))
        })
    }

    /// The ports of a VLAN.
    pub(super) fn members(&self, vid: u16) -> &[u8] {
        self.vlans.get(usize::from(vid)).map_or(&[], |vlan| &vlan.members)
    }

    pub(super) fn is_member(&self, vid: u16, port: u8) -> bool {
        self.members(vid).contains(&port)
    }

    /// Whether frames of a VLAN leave a port with a tag.
    pub(super) fn is_tagged(&self, vid: u16, port: u8) -> bool {
        let set = self.vlans.get(usize::from(vid)).map_or(0, |vlan| vlan.tagged[usize::from(port / 64)]);
        set >> (port % 64) & 1 != 0
    }

    /// Whether frames that come without a tag may leave with one.
    pub(super) fn pushes(&self) -> bool {
        self.vlans.iter().any(|vlan| {
            let tagged = vlan.tagged.iter().map(|word| word.count_ones() as usize).sum();
            tagged > 0 && vlan.members.len() > tagged
        })
    }
}
