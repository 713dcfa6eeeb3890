//! The XDP program: loading it, its rules, attaching it. `filter.bpf.c` is what runs in the kernel.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use aya::maps::{Array, HashMap, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, Pod};

use super::config::{Attach, Base, Config, Ports, Protocol, Rule, Verdict};
use crate::Error;
use crate::synthetic::Prefix;

/// Most rules. This and what follows is as in `filter.bpf.c`.
pub(super) const RULES_MAX: usize = 64;
/// Most queues of an interface.
pub(super) const QUEUES_MAX: usize = 128;
const ADDRESSES_MAX: usize = 4096;
const ANY_PROTOCOL: u16 = 256;

/// Made of `filter.bpf.c` by `scripts/bpf.sh`.
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
    base: u32,
    mac: [u8; 6],
    padding: [u8; 2],
}

// SAFETY: integers and arrays of integers without padding between or behind them.
unsafe impl Pod for RawRule {}
// SAFETY: as above.
unsafe impl Pod for RawSettings {}

const _: () = assert!(size_of::<RawRule>() == 76 && size_of::<RawSettings>() == 12);

impl RawRule {
    fn of(rule: &Rule) -> Self {
        let (source, source_mask) = prefix(rule.source);
        let (destination, destination_mask) = prefix(rule.destination);
        let ports = |ports: Option<Ports>| ports.map_or([0, u16::MAX], |Ports(first, last)| [first, last]);
        Self {
            source,
            source_mask,
            destination,
            destination_mask,
            source_ports: ports(rule.source_ports),
            destination_ports: ports(rule.destination_ports),
            protocol: rule.protocol.map_or(ANY_PROTOCOL, |Protocol(number)| number.into()),
            family: rule.family(),
            action: match rule.action {
                Verdict::Take => 1,
                Verdict::Pass => 2,
            },
        }
    }
}

/// An address and its mask, IPv4 mapped into IPv6. Without a prefix the mask is zero: every address.
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

/// What the program did with frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// They stayed with the kernel.
    pub(super) passed: u64,
    /// They should have been taken, and their queue had no socket.
    pub(super) no_socket: u64,
}

/// The program in the kernel. Dropped, it is detached.
pub(super) struct Filter {
    ebpf: Ebpf,
    /// While it is attached.
    link: Option<FdLink>,
    base: Base,
    addresses: Vec<IpAddr>,
}

impl Filter {
    /// Loads it, attached to nothing.
    pub(super) fn load(config: &Config) -> Result<Self, Error> {
        let fault = |error: &dyn std::fmt::Display| {
            Error::Port(format!(
                "cannot load the XDP program: {error}: it takes root, or the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and Linux \
                 5.11 or later"
            ))
        };
        let mut ebpf = EbpfLoader::new().load(OBJECT).map_err(|error| fault(&error))?;
        let program: &mut Xdp = program(&mut ebpf);
        program.load().map_err(|error| fault(&chain(&error)))?;
        let mut filter = Self { ebpf, link: None, base: config.take, addresses: Vec::new() };
        filter.write_rules(&config.rules).map_err(|error| fault(&error))?;
        Ok(filter)
    }

    fn write_rules(&mut self, rules: &[Rule]) -> Result<(), MapError> {
        let mut map: Array<_, RawRule> = Array::try_from(map(&mut self.ebpf, "rules"))?;
        for (index, rule) in rules.iter().enumerate() {
            map.set(index as u32, RawRule::of(rule), 0)?;
        }
        Ok(())
    }

    /// Says which Ethernet address is the interface's own.
    pub(super) fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        let base = match self.base {
            Base::None => 0,
            Base::All => 1,
            Base::Ip => 2,
            Base::Routed => 3,
        };
        let settings = RawSettings { base, mac, padding: [0; 2] };
        let map = Array::try_from(map(&mut self.ebpf, "settings"));
        map.and_then(|mut map: Array<_, RawSettings>| map.set(0, settings, 0)).map_err(refused)
    }

    /// Says which addresses are this machine's. Cheap where they have not changed.
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
        map.and_then(change).map_err(refused)
    }

    /// Says which socket a queue's frames go to.
    pub(super) fn set_socket(&mut self, queue: usize, socket: BorrowedFd<'_>) -> Result<(), Error> {
        use std::os::fd::AsRawFd;
        let map = XskMap::try_from(map(&mut self.ebpf, "sockets"));
        map.and_then(|mut map| map.set(queue as u32, socket.as_raw_fd(), 0)).map_err(refused)
    }

    /// Attaches it. Says whether it runs in the driver.
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
                    // A link that is no file descriptor would outlive a process that is killed.
                    let link = FdLink::try_from(link);
                    let link = link.map_err(|_| Error::Port("Linux 5.9 or later is needed for XDP".to_owned()))?;
                    self.link = Some(link);
                    return Ok(is_native);
                }
                // Another program is there, or a right is missing: another mode would not help.
                Err(error) => {
                    let errno = errno(&error);
                    let is_final = matches!(errno, Some(libc::EBUSY | libc::EPERM));
                    let what = match errno {
                        Some(libc::EBUSY) => format!(
                            "another XDP program is attached to {name} (`ip link set {name} xdp off` detaches it; `bpftool net` says \
                             whose it is)"
                        ),
                        Some(libc::EPERM) => {
                            format!("no right to attach an XDP program to {name}: it takes CAP_NET_ADMIN and CAP_BPF")
                        }
                        Some(libc::ERANGE | libc::EINVAL) if is_native => format!(
                            "cannot attach the XDP program to {name}: {} (a large MTU, or large receive offload?)",
                            chain(&error)
                        ),
                        _ => format!("cannot attach the XDP program to {name}: {}", chain(&error)),
                    };
                    failure = Some(Error::Port(what));
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::Port(format!("cannot attach to {name}"))))
    }

    /// From now on all stays with the kernel.
    pub(super) fn detach(&mut self) {
        self.link = None;
    }

    /// What it did so far, on all cores.
    pub(super) fn counted(&self) -> Counted {
        let sum = |map: &PerCpuArray<_, u64>, counter: u32| {
            map.get(&counter, 0).map(|values| values.iter().sum()).unwrap_or(0)
        };
        let map = self.ebpf.map("counters").map(PerCpuArray::try_from);
        match map {
            Some(Ok(map)) => Counted { passed: sum(&map, 1), no_socket: sum(&map, 2) },
            _ => Counted::default(),
        }
    }
}

fn program(ebpf: &mut Ebpf) -> &mut Xdp {
    let program = ebpf.program_mut("godwit").expect("the object holds the program");
    program.try_into().expect("the program is one for XDP")
}

fn map<'e>(ebpf: &'e mut Ebpf, name: &str) -> &'e mut aya::maps::Map {
    ebpf.map_mut(name).expect("the object holds the map")
}

fn refused(error: MapError) -> Error {
    Error::Port(format!("the XDP program does not take what it is told: {}", chain(&error)))
}

/// What an error and all behind it say.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
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
    fn prefixes_have_masks_of_their_bits() {
        let of = |text: &str| prefix(Some(text.parse().unwrap()));
        let (address, mask) = of("10.1.0.0/16");
        assert_eq!(address[10..], [0xff, 0xff, 10, 1, 0, 0]);
        assert_eq!((mask[..14].iter().all(|&byte| byte == 255), mask[14], mask[15]), (true, 0, 0));
        let (_, mask) = of("2001:db8::/33");
        assert_eq!((mask[3], mask[4], mask[5]), (255, 128, 0));
        assert_eq!(of("::/0").1, [0; 16]);
        assert_eq!(of("0.0.0.0/0").1[..12], [255; 12]);
        assert_eq!(of("::1").1, [255; 16]);
    }

    #[test]
    fn the_object_has_what_is_asked_of_it() {
        let object = aya_obj();
        for name in ["sockets", "rules", "settings", "addresses", "counters", "godwit"] {
            assert!(object.contains(name), "{name}");
        }
    }

    fn aya_obj() -> String {
        String::from_utf8_lossy(OBJECT).into_owned()
    }
}
