//! The `dpdk` port: a device that DPDK drives, over the arena (cargo feature `dpdk`).
//!
//! The elements of a device's mempool are the slots of the arena, so a frame that the NIC writes is where the CPU and other
//! devices find it, and one that leaves is read from there: nothing is copied, nothing in DPDK is patched.
//!
//! | file | holds |
//! |---|---|
//! | `shim.h`, `shim.c`, `shim_pool.c` | what is C: DPDK's packet path consists of inline functions |
//! | `ffi` | its declarations |
//! | `eal` | DPDK's environment, once a process |
//! | `interface` | what drivers over an interface of the kernel leave undone |
//! | `xdp_link.c` | an XDP program that goes with the process |
//! | `pool` | a worker's region as a mempool |
//! | `device` | [`Config`] → an open device |
//! | `queue` | a worker's receive queue and transmit queue |

mod device;
mod eal;
mod ffi;
mod interface;
mod pool;
mod queue;

use std::sync::Arc;

use serde::Deserialize;

use crate::Error;
use crate::live::{ArenaNeeds, Live, LiveContext, LivePort};

/// A port of `kind = "dpdk"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The device and its arguments, as DPDK writes them: a PCI address, or a virtual device such as `net_af_packet0,iface=eth1`.
    pub device: String,
    /// Places in each receive ring; the driver may round it.
    #[serde(default = "ring")]
    pub receive_ring: u16,
    /// Places in each transmit ring; the driver may round it.
    #[serde(default = "ring")]
    pub transmit_ring: u16,
    /// Longest packet without the Ethernet header; as the device has it where this is not given.
    pub mtu: Option<u16>,
    /// Takes packets for other MAC addresses too.
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// What becomes of packets whose checksum the device finds wrong.
    #[serde(default)]
    pub checksum: Checksum,
    /// Arguments of DPDK's environment: `[dpdk]`, not the port, has them.
    #[serde(skip)]
    pub eal: Option<Vec<String>>,
}

/// What becomes of packets whose IP, TCP or UDP checksum is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// The device does not look; functions do where their standards want it.
    #[default]
    None,
    /// The device looks, and those packets are counted and dropped.
    Drop,
}

fn ring() -> u16 {
    1024
}

fn yes() -> bool {
    true
}

impl Config {
    /// The device without its arguments.
    fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default().trim()
    }

    /// Whether the device is on a bus, and no driver's invention: `0000:3b:00.0`, `3b:00.0`, `pci:...`.
    fn is_pci(&self) -> bool {
        let name = self.name().strip_prefix("pci:").unwrap_or(self.name());
        let mut parts = name.rsplit(':');
        let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let function = parts.next().and_then(|last| last.split_once('.'));
        function.is_some_and(|(device, function)| is_hex(device) && is_hex(function))
            && parts.next().is_some_and(is_hex)
            && parts.all(is_hex)
    }

    /// Whether the kernel fills rings of the driver's, whatever the size of ours.
    fn is_af_xdp(&self) -> bool {
        self.name().starts_with("net_af_xdp")
    }

    /// Whether it stands on packet sockets.
    fn is_af_packet(&self) -> bool {
        self.name().starts_with("net_af_packet")
    }

    /// What the driver wants of a buffer beside the headroom and the frame.
    fn driver_bytes(&self) -> usize {
        if self.is_af_xdp() {
            // XDP_PACKET_HEADROOM: an arriving frame begins behind it.
            256
        } else if self.is_af_packet() {
            // Its frames of 2048 bytes have to fit, whatever the MTU.
            512
        } else {
            0
        }
    }
}

/// What DPDK itself has counted of a device that is attached, by its name without arguments: received and sent packets. For comparison.
pub fn counted(device: &str) -> Option<[u64; 2]> {
    device::counted(device)
}

impl Live for Config {
    fn needs(&self) -> ArenaNeeds {
        ArenaNeeds {
            headroom_bytes: ffi::HEADROOM_BYTES,
            buffers: device::buffers(self),
            prefix_bytes: ffi::PREFIX_BYTES,
            driver_bytes: self.driver_bytes(),
            ..ArenaNeeds::default()
        }
    }

    fn validate(&self) -> Result<(), Error> {
        if self.name().is_empty() {
            return Err(Error::config(
                "device",
                &self.device,
                "names no device: a PCI address as 0000:3b:00.0, or a virtual device as net_af_packet0,iface=eth1",
            ));
        }
        for (key, value) in [("receive_ring", self.receive_ring), ("transmit_ring", self.transmit_ring)] {
            if !(32..=16384).contains(&value) {
                return Err(Error::config(key, value, "must be 32 to 16384"));
            }
        }
        match self.mtu {
            Some(mtu) if !(68..=16110).contains(&mtu) => Err(Error::config("mtu", mtu, "must be 68 to 16110")),
            _ => Ok(()),
        }
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        device::Port::open(self, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> Config {
        toml::from_str(&format!("device = \"{text}\"")).unwrap()
    }

    #[test]
    fn devices_are_told_apart() {
        for pci in ["0000:3b:00.0", "3b:00.1,representor=0", "pci:0000:3b:00.0", "10000:01:00.0"] {
            assert!(device(pci).is_pci(), "{pci}");
        }
        for other in ["net_null0", "net_pcap0,rx_pcap=/a:b.c", "net_af_xdp0,iface=eth0", "eth_ring:0"] {
            assert!(!device(other).is_pci(), "{other}");
        }
        assert!(device("net_af_xdp1,iface=eth0").is_af_xdp());
        assert!(!device("net_af_packet1,iface=eth0").is_af_xdp());
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(device("net_null0").validate().is_ok());
        assert!(device(" ,x=1").validate().unwrap_err().to_string().contains("names no device"));
        let config = Config { receive_ring: 5, ..device("net_null0") };
        assert!(config.validate().unwrap_err().to_string().contains("receive_ring = 5"));
        assert!(Config { mtu: Some(20), ..device("net_null0") }.validate().is_err());
        assert!(toml::from_str::<Config>("device = \"net_null0\"\nrings = 3").is_err());
    }
}
