//! Loads the XDP program `filter.bpf.c`, attaches it to an interface, and sets its filter rules.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use aya::maps::{Array, HashMap, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, Pod};

use super::config::{Action, Attach, Config, Ports, Protocol, Rule, Take};
use crate::Error;
use crate::synthetic::Prefix;

/// Maximum number of filter rules. The C file `filter.bpf.c` must declare the same constants and
/// structs.
pub(super) const RULES_MAX: usize = 64;
/// Maximum number of queues of an interface.
pub(super) const QUEUES_MAX: usize = 128;
const ADDRESSES_MAX: usize = 4096;
const ANY_PROTOCOL: u16 = 256;
const ESP_IN_UDP: u16 = 257;
/// UDP port of ESP in UDP (RFC 3948), for rules without ports.
const ESP_IN_UDP_PORT: u16 = 4500;

/// Object file that `scripts/bpf.sh` compiles from `filter.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("filter.bpf.o");

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawRule {
    source: [u8; 16],
    source_mask: [u8; 16],
    destination: [u8; 16],
    destination_mask: [u8; 16],
    source_ports: [u16; 2],
    destination_ports: [u16; 2],
    protocol: u16,
    family: u8,
    action: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawSettings {
    take: u32,
    mac: [u8; 6],
    padding: [u8; 2],
}

// SAFETY: the struct consists of integers and arrays of integers and has no padding.
unsafe impl Pod for RawRule {}
// SAFETY: the struct consists of integers and arrays of integers and has no padding.
unsafe impl Pod for RawSettings {}

const _: () = assert!(size_of::<RawRule>() == 76 && size_of::<RawSettings>() == 12);

impl RawRule {
    fn new(rule: &Rule) -> Self {
        let (source, source_mask) = prefix(rule.source);
        let (destination, destination_mask) = prefix(rule.destination);
        let ports = |ports: Option<Ports>| ports.map_or([0, u16::MAX], |Ports(first, last)| [first, last]);
        let is_esp_in_udp = rule.protocol == Some(Protocol::EspInUdp);
        let default = (is_esp_in_udp && rule.source_ports.is_none()).then_some(Ports(ESP_IN_UDP_PORT, ESP_IN_UDP_PORT));
        Self {
            source,
            source_mask,
            destination,
            destination_mask,
            source_ports: ports(rule.source_ports),
            destination_ports: ports(rule.destination_ports.or(default)),
            protocol: match rule.protocol {
                None => ANY_PROTOCOL,
                Some(Protocol::Number(number)) => number.into(),
                Some(Protocol::EspInUdp) => ESP_IN_UDP,
            },
            family: rule.family(),
            action: match rule.action {
                Action::Take => 1,
                Action::Pass => 2,
            },
        }
    }
}

/// Returns the address and the mask of an IP prefix. An IPv4 prefix becomes an IPv4-mapped IPv6
/// prefix. Without a prefix, the mask is zero and matches every address.
fn prefix(prefix: Option<Prefix>) -> ([u8; 16], [u8; 16]) {
    let Some(Prefix { address, length_bits }) = prefix else { return Default::default() };
    let bits = if address.is_ipv4() { length_bits + 96 } else { length_bits };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    (mapped(address), mask.to_be_bytes())
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Counters of frames that the XDP program did not pass to a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilterCounters {
    /// Number of frames that stay in the kernel because of the filter rules or the setting `take`.
    pub(super) passed: u64,
    /// Number of frames for workers that arrived in a queue without a socket.
    pub(super) no_socket: u64,
}

/// The loaded XDP program, which is detached from the interface on drop.
pub(super) struct Filter {
    ebpf: Ebpf,
    /// BPF link that attaches the program to the interface, or `None` if the program is detached.
    link: Option<FdLink>,
    take: Take,
    addresses: Vec<IpAddr>,
}

impl Filter {
    /// Loads the XDP program and sets the filter rules. Does not attach the program to an
    /// interface.
    pub(super) fn load(config: &Config) -> Result<Self, Error> {
        let fault = |error: &dyn std::fmt::Display| {
            Error::Port(format!(
                "cannot load the XDP program: {error}: it requires Linux 5.11 or later, and root or the \
                 capabilities CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW"
            ))
        };
        let mut ebpf = EbpfLoader::new().load(OBJECT).map_err(|error| fault(&error))?;
        let program: &mut Xdp = program(&mut ebpf);
        program.load().map_err(|error| fault(&error_chain(&error)))?;
        let mut filter = Self { ebpf, link: None, take: config.take, addresses: Vec::new() };
        filter.write_rules(&config.rules).map_err(|error| fault(&error))?;
        Ok(filter)
    }

    fn write_rules(&mut self, rules: &[Rule]) -> Result<(), MapError> {
        let mut map: Array<_, RawRule> = Array::try_from(map(&mut self.ebpf, "rules"))?;
        for (index, rule) in rules.iter().enumerate() {
            map.set(index as u32, RawRule::new(rule), 0)?;
        }
        Ok(())
    }

    /// Tells the XDP program the MAC address of the interface.
    pub(super) fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        let take = match self.take {
            Take::None => 0,
            Take::All => 1,
            Take::Ip => 2,
            Take::Routed => 3,
        };
        let settings = RawSettings { take, mac, padding: [0; 2] };
        let map = Array::try_from(map(&mut self.ebpf, "settings"));
        map.and_then(|mut map: Array<_, RawSettings>| map.set(0, settings, 0)).map_err(map_error)
    }

    /// Writes the IP addresses of this machine to the map of the XDP program, if they have changed.
    pub(super) fn set_addresses(&mut self, mut addresses: Vec<IpAddr>) -> Result<(), Error> {
        addresses.truncate(ADDRESSES_MAX);
        if addresses == self.addresses {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.addresses, addresses);
        let map = HashMap::try_from(map(&mut self.ebpf, "addresses"));
        let change = |mut map: HashMap<_, [u8; 16], u8>| {
            for address in old.iter().filter(|address| !self.addresses.contains(address)) {
                map.remove(&mapped(*address))?;
            }
            for address in self.addresses.iter().filter(|address| !old.contains(address)) {
                map.insert(mapped(*address), 1, 0)?;
            }
            Ok(())
        };
        map.and_then(change).map_err(map_error)
    }

    /// Sets the socket that receives the selected frames of an interface queue.
    pub(super) fn set_socket(&mut self, queue: usize, socket: BorrowedFd<'_>) -> Result<(), Error> {
        use std::os::fd::AsRawFd;
        let map = XskMap::try_from(map(&mut self.ebpf, "sockets"));
        map.and_then(|mut map| map.set(queue as u32, socket.as_raw_fd(), 0)).map_err(map_error)
    }

    /// Attaches the XDP program to the interface. Returns `true` if the program runs in the driver,
    /// and `false` if it runs in the kernel's network stack.
    pub(super) fn attach(&mut self, name: &str, index: u32, attach: Attach) -> Result<bool, Error> {
        self.detach();
        let modes: &[(XdpMode, bool)] = match attach {
            Attach::Auto => &[(XdpMode::Driver, true), (XdpMode::Skb, false)],
            Attach::Native => &[(XdpMode::Driver, true)],
            Attach::Generic => &[(XdpMode::Skb, false)],
        };
        let mut failure = None;
        for &(mode, is_native) in modes {
            let program = program(&mut self.ebpf);
            match program.attach_to_if_index(index, mode).and_then(|link| program.take_link(link)) {
                Ok(link) => {
                    // Only a BPF link with a file descriptor ends with the process. Otherwise, the
                    // program stays attached after the process is killed.
                    let link = FdLink::try_from(link);
                    let link = link.map_err(|_| Error::Port("XDP requires Linux 5.9 or later".to_owned()))?;
                    self.link = Some(link);
                    return Ok(is_native);
                }
                // If another program is attached or a permission is missing, the next mode would
                // fail too.
                Err(error) => {
                    let errno = errno(&error);
                    let is_final = matches!(errno, Some(libc::EBUSY | libc::EPERM));
                    let problem = match errno {
                        Some(libc::EBUSY) => format!(
                            "another XDP program is attached to {name} (`bpftool net` shows its owner; \
                             `ip link set {name} xdp off` detaches it)"
                        ),
                        Some(libc::EPERM) => {
                            format!(
                                "no permission to attach an XDP program to {name}: CAP_NET_ADMIN and CAP_BPF are required"
                            )
                        }
                        Some(libc::ERANGE | libc::EINVAL) if is_native => format!(
                            "cannot attach the XDP program to {name}: {} (check for a large MTU or large receive offload)",
                            error_chain(&error)
                        ),
                        _ => format!("cannot attach the XDP program to {name}: {}", error_chain(&error)),
                    };
                    failure = Some(Error::Port(problem));
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::Port(format!("cannot attach the XDP program to {name}"))))
    }

    /// Detaches the program from the interface. The kernel then processes all frames.
    pub(super) fn detach(&mut self) {
        self.link = None;
    }

    /// Returns the counters of the program, summed over all cores.
    pub(super) fn counters(&self) -> FilterCounters {
        let sum = |map: &PerCpuArray<_, u64>, counter: u32| {
            map.get(&counter, 0).map(|values| values.iter().sum()).unwrap_or(0)
        };
        let map = self.ebpf.map("counters").map(PerCpuArray::try_from);
        match map {
            Some(Ok(map)) => FilterCounters { passed: sum(&map, 1), no_socket: sum(&map, 2) },
            _ => FilterCounters::default(),
        }
    }
}

fn program(ebpf: &mut Ebpf) -> &mut Xdp {
    let program = ebpf.program_mut("godwit").expect("the object contains the program");
    program.try_into().expect("the program is an XDP program")
}

fn map<'e>(ebpf: &'e mut Ebpf, name: &str) -> &'e mut aya::maps::Map {
    ebpf.map_mut(name).expect("the object contains the map")
}

fn map_error(error: MapError) -> Error {
    Error::Port(format!("cannot write to a map of the XDP program: {}", error_chain(&error)))
}

/// Returns the messages of an error and all its causes as one text.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = error.source();
    }
    text
}

fn errno(error: &ProgramError) -> Option<i32> {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if let Some(errno) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            return Some(errno);
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_the_bits_of_the_prefix() {
        let parsed = |text: &str| prefix(Some(text.parse().unwrap()));
        let (address, mask) = parsed("10.1.0.0/16");
        assert_eq!(address[10..], [0xff, 0xff, 10, 1, 0, 0]);
        assert_eq!((mask[..14].iter().all(|&byte| byte == 255), mask[14], mask[15]), (true, 0, 0));
        let (_, mask) = parsed("2001:db8::/33");
        assert_eq!((mask[3], mask[4], mask[5]), (255, 128, 0));
        assert_eq!(parsed("::/0").1, [0; 16]);
        assert_eq!(parsed("0.0.0.0/0").1[..12], [255; 12]);
        assert_eq!(parsed("::1").1, [255; 16]);
    }

    #[test]
    fn object_contains_the_maps_and_the_program() {
        let object = object_text();
        for name in ["sockets", "rules", "settings", "addresses", "counters", "godwit"] {
            assert!(object.contains(name), "{name}");
        }
    }

    fn object_text() -> String {
        String::from_utf8_lossy(OBJECT).into_owned()
    }
}
