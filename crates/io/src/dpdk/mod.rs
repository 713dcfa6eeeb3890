//! Packet port `dpdk`, which uses a device with a DPDK driver (cargo feature `dpdk`).
//!
//! The NIC writes and reads frames directly in the packet memory of this program, where the CPU and
//! other devices access them. The port therefore never copies frames. DPDK needs no patch.
//!
//! | file | contents |
//! |---|---|
//! | `shim.h`, `shim.c`, `shim_pool.c` | C part, because the packet path of DPDK consists of inline functions |
//! | `ffi` | declarations of the shim |
//! | `eal` | environment of DPDK (EAL), initialized once per process |
//! | `interface` | missing features of drivers that use an interface of the kernel |
//! | `xdp_link.c` | attaches an XDP program that is detached when the process ends |
//! | `pool` | the region of a worker as a mempool |
//! | `device` | opens the device of a [`Config`] |
//! | `queue` | receive and transmit queue of a worker |

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

/// Configuration of a port with `kind = "dpdk"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Device in the syntax of DPDK. It is a PCI address, or a virtual device with arguments such
    /// as `net_af_packet0,iface=eth1`.
    pub device: String,
    /// Number of entries of each receive ring. The driver may round the number.
    #[serde(default = "ring")]
    pub receive_ring: u16,
    /// Number of entries of each transmit ring. The driver may round this number.
    #[serde(default = "ring")]
    pub transmit_ring: u16,
    /// MTU of the device in bytes: the maximum packet length without the Ethernet header. Without
    /// this key, the port does not change the MTU.
    pub mtu: Option<u16>,
    /// Whether the port also receives frames to other MAC addresses (promiscuous mode). Without
    /// this key, the device receives them, and a router drops them.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// Selects what happens to packets with a wrong checksum.
    #[serde(default)]
    pub checksum: Checksum,
    /// Arguments for the Environment Abstraction Layer (EAL) of DPDK, from the section `[dpdk]` of
    /// the configuration.
    #[serde(skip)]
    pub eal: Option<Vec<String>>,
}

/// Selects how the port treats packets with wrong IP, TCP or UDP checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// The device does not check checksums. Functions of the chain check them if their standards
    /// require this.
    #[default]
    None,
    /// The device checks checksums. The port counts and drops packets with a wrong checksum.
    Drop,
}

fn ring() -> u16 {
    1024
}

impl Config {
    /// Returns the name of the device without its arguments.
    fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default().trim()
    }

    /// Returns whether the device is a PCI device, such as `0000:3b:00.0` or `pci:...`. All other
    /// devices are virtual.
    fn is_pci(&self) -> bool {
        let name = self.name().strip_prefix("pci:").unwrap_or(self.name());
        let mut parts = name.rsplit(':');
        let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let function = parts.next().and_then(|last| last.split_once('.'));
        function.is_some_and(|(device, function)| is_hex(device) && is_hex(function))
            && parts.next().is_some_and(is_hex)
            && parts.all(is_hex)
    }

    /// Returns whether the device has the driver net_af_xdp, which uses AF_XDP sockets.
    fn is_af_xdp(&self) -> bool {
        self.name().starts_with("net_af_xdp")
    }

    /// Returns whether the device has the driver net_af_packet, which uses packet sockets.
    fn is_af_packet(&self) -> bool {
        self.name().starts_with("net_af_packet")
    }

    /// Returns the number of bytes that the driver needs in each buffer, in addition to the
    /// headroom and the frame.
    fn driver_bytes(&self) -> usize {
        if self.is_af_xdp() {
            // The driver needs XDP_PACKET_HEADROOM bytes in front of a received frame.
            256
        } else if self.is_af_packet() {
            // The driver net_af_packet uses frames of 2048 bytes for any MTU. Such a frame must fit
            // in the buffer.
            512
        } else {
            0
        }
    }
}

/// Returns the numbers of packets that DPDK has received and sent on an attached device. `device`
/// is the device name without arguments. A test compares these numbers with the counters of the
/// port.
pub fn packet_counts(device: &str) -> Option<[u64; 2]> {
    device::packet_counts(device)
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
                "names no device: expected a PCI address such as 0000:3b:00.0, or a virtual device such as net_af_packet0,iface=eth1",
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

    fn hardware(&self) -> Option<String> {
        Some(format!("DPDK device {}", self.name()))
    }

    fn promiscuous(&self) -> Option<bool> {
        self.promiscuous
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
    fn kinds_of_devices_are_recognized() {
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
    fn invalid_values_are_refused() {
        assert!(device("net_null0").validate().is_ok());
        assert!(device(" ,x=1").validate().unwrap_err().to_string().contains("names no device"));
        let config = Config { receive_ring: 5, ..device("net_null0") };
        assert!(config.validate().unwrap_err().to_string().contains("receive_ring = 5"));
        assert!(Config { mtu: Some(20), ..device("net_null0") }.validate().is_err());
        assert!(toml::from_str::<Config>("device = \"net_null0\"\nrings = 3").is_err());
    }
}
