//! Tables of `ipv6`, `l2` and `ndn`, with matching frames.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use godwit_function::{BuildContext, Function, l2};
use godwit_wire::MacAddress;
use tempfile::NamedTempFile;
use toml::de::DeTable;

use crate::error::Error;
use crate::load::build::build_with_ports;
use crate::load::frames::{self, Make, Random};
use crate::load::routes;
use crate::load::size::Size;

/// Port names. `l2` uses both ports, and the other functions use the first.
pub(crate) const PORTS: [&str; 2] = ["out", "far"];

/// Size of a table.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Whether the table has few entries, so that tests are fast.
    pub(crate) brief: bool,
    /// Approximate size in bytes. `None` selects an entry count that is common in networks.
    pub(crate) table_bytes: Option<usize>,
}

impl Extent {
    /// Returns the number of entries. `in_bytes` converts a size in bytes to a number of entries.
    fn entries(&self, common: u32, in_bytes: impl Fn(usize) -> usize) -> u32 {
        const BRIEF_ENTRIES: u32 = 1000;
        let in_table = |bytes: usize| u32::try_from(in_bytes(bytes)).unwrap_or(u32::MAX).max(BRIEF_ENTRIES);
        if self.brief { BRIEF_ENTRIES } else { self.table_bytes.map_or(common, in_table) }
    }
}

/// A function with its table, and frames that the table knows.
pub(crate) struct Lookups {
    pub(crate) function: Arc<dyn Function>,
    /// Configuration keys for the engine. They build a small table, which `function` then replaces.
    pub(crate) stanza: String,
    /// File that `stanza` names. It must exist while the engine reads the configuration.
    pub(crate) file: Option<NamedTempFile>,
    pub(crate) frame: Box<Make<'static>>,
}

impl Lookups {
    /// Builds the function from a stanza that names a file. Then truncates the file to its first
    /// line, because reading all of it again takes long.
    pub(crate) fn of_file(
        kind: &str,
        stanza: String,
        file: NamedTempFile,
        frame: Box<Make<'static>>,
    ) -> Result<Self, Error> {
        let function = build_with_ports(kind, &stanza, &PORTS.map(str::to_owned))?;
        shorten(&file)?;
        Ok(Self { function, stanza, file: Some(file), frame })
    }
}

/// Truncates a file to its first line.
pub(crate) fn shorten(file: &NamedTempFile) -> Result<(), Error> {
    let text = std::fs::read(file.path()).map_err(Error::setup)?;
    let line = text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| end + 1);
    file.as_file().set_len(line as u64).map_err(Error::setup)
}

/// Returns `ipv6` with 200,000 random prefixes of 48 to 64 bits, and frames to addresses below
/// them.
pub(crate) fn ipv6(extent: &Extent) -> Result<Lookups, Error> {
    let routes = routes::random_prefixes6(extent.entries(200_000, |bytes| bytes / 65) as usize);
    let file = routes::write_file6(&routes)?;
    let frame = move |size: Size, random: &mut Random| {
        let route = &routes[random.below(routes.len() as u32) as usize];
        let host = u128::from(random.next_u32()) << 32 | u128::from(random.next_u32());
        let mut frame = ethernet(size, random, 0x86dd);
        let payload = (frame.len() - 54) as u16;
        // 59 means no next header: 60-byte frames have no room for UDP.
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, (payload >> 8) as u8, payload as u8, 59, 64]);
        frame[22..38].copy_from_slice(&(0x2001_0db8_u128 << 96 | u128::from(random.next_u32())).to_be_bytes());
        frame[38..54].copy_from_slice(&(route.prefix | host).to_be_bytes());
        frame
    };
    Lookups::of_file("ipv6", routes::stanza(file.path()), file, Box::new(frame))
}

/// Number of stations on the port `out`.
const NEAR_STATIONS: u32 = 64;

/// Returns the number of stations of `l2` on the port `far`. A table has a power of two of slots of
/// 8 bytes. At most 95.5 % of them are filled, as with a million stations.
fn far_stations(extent: &Extent) -> u32 {
    extent.entries(1_000_000, |bytes| (1 << bytes.max(1).ilog2()) / 8 / 1000 * 954)
}

/// Returns the address of a station. All are distinct local unicast addresses.
fn station(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [2, 1, a, b, c, d]
}

/// Returns the addresses of all stations of `l2`, each with the index of its port in [`PORTS`].
pub(crate) fn stations(extent: &Extent) -> impl Iterator<Item = (MacAddress, u8)> {
    let far = far_stations(extent);
    (0..far + NEAR_STATIONS).map(move |number| (MacAddress(station(number)), u8::from(number < far)))
}

/// Returns `l2` with a million stations on the port `far`, and frames to them from 64 stations on
/// `out`.
pub(crate) fn l2(extent: &Extent) -> Result<Lookups, Error> {
    let stations = far_stations(extent);
    // Ageing is off: its scans would use the same memory as the lookups.
    let stanza = |capacity: u32| format!("capacity = {capacity}\nageing_s = 0\n");
    let context = BuildContext { name: "l2", ports: &PORTS.map(str::to_owned), directory: Path::new(".") };
    let text = stanza(stations + NEAR_STATIONS);
    let function = l2::build_switch(DeTable::parse(&text).map_err(Error::setup)?, &context).map_err(Error::setup)?;
    // The stations are learned directly. For 70 million stations, writing and reading a file with 2
    // GB of text would take longer.
    let learned = |number: u32| (l2::key(1, MacAddress(station(number))), u8::from(number < stations));
    let numbers: Vec<u32> = (0..stations + NEAR_STATIONS).collect();
    for part in numbers.chunks(1 << 20) {
        let entries: Vec<(u64, u8)> = part.iter().map(|&number| learned(number)).collect();
        function.learn_all(&entries).map_err(Error::setup)?;
    }
    let frame = move |size: Size, random: &mut Random| {
        let mut frame = ethernet(size, random, 0x88b5);
        frame[..6].copy_from_slice(&station(random.below(stations)));
        frame[6..12].copy_from_slice(&station(stations + random.below(NEAR_STATIONS)));
        frame
    };
    Ok(Lookups { function: Arc::new(function), stanza: stanza(NEAR_STATIONS), file: None, frame: Box::new(frame) })
}

/// Returns `ndn` with ten million two-component names, and Interests for names with one more
/// component.
pub(crate) fn ndn(extent: &Extent) -> Result<Lookups, Error> {
    let names = extent.entries(10_000_000, |bytes| bytes / 80);
    // The factor is odd, so all names differ.
    let name = |number: u32| [format!("{:08x}", number.wrapping_mul(0x9e37_79b1)), format!("{:03x}", number % 1000)];
    let mut text = String::with_capacity(names as usize * 24);
    for number in 0..names {
        let [first, second] = name(number);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "/{first}/{second} hop{}", number % routes::NEXT_HOPS);
    }
    let file = routes::temporary(text.as_bytes())?;
    drop(text);
    let stanza = routes::stanza(file.path()).replacen("routes", "names", 1);
    let frame = move |size: Size, random: &mut Random| {
        let element = |kind: u8, value: &[u8]| [&[kind, value.len() as u8][..], value].concat();
        let [first, second] = name(random.below(names));
        let third = format!("{:04x}", random.below(1 << 16));
        let components: Vec<u8> = [first, second, third].iter().flat_map(|part| element(8, part.as_bytes())).collect();
        let nonce = random.next_u32().to_be_bytes();
        let interest = element(5, &[element(7, &components), element(10, &nonce)].concat());
        let mut frame = ethernet(size, random, 0x8624);
        frame[14..14 + interest.len()].copy_from_slice(&interest);
        frame
    };
    Lookups::of_file("ndn", stanza, file, Box::new(frame))
}

/// Returns a frame of this size with zeros after the Ethernet header.
fn ethernet(size: Size, random: &mut Random, ether_type: u16) -> Vec<u8> {
    let mut frame = vec![0; frames::length(size, random).max(60)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    frame
}
