//! Functions that look something up in a large table, each with frames that its table knows.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use godwit_function::{BuildContext, Function, l2};
use godwit_wire::MacAddress;
use tempfile::NamedTempFile;
use toml::de::DeTable;

use crate::frames::{self, Random};
use crate::function::{self, Make, Refresh, Workload};
use crate::{BenchOptions, Error, LITTLE, Progress, Row, Size, routes};

/// Names of the ports; the second is there where a function needs it.
pub(crate) const PORTS: [&str; 2] = ["out", "far"];

/// How large tables are to be.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Small, as a test asks for.
    pub(crate) little: bool,
    /// Bytes of tables, about; `None`: as many entries as networks have.
    pub(crate) table_bytes: Option<usize>,
}

impl Extent {
    pub(crate) fn asked(options: &BenchOptions) -> Self {
        Self { little: options.time < LITTLE, table_bytes: options.table_bytes }
    }

    /// How many entries a table has, where `in_bytes` says how many a table of so many bytes has.
    fn entries(&self, common: u32, in_bytes: impl Fn(usize) -> usize) -> u32 {
        const LITTLE_ENTRIES: u32 = 1000;
        let asked = |bytes: usize| u32::try_from(in_bytes(bytes)).unwrap_or(u32::MAX).max(LITTLE_ENTRIES);
        if self.little { LITTLE_ENTRIES } else { self.table_bytes.map_or(common, asked) }
    }
}

/// A function, and frames for it.
pub(crate) struct Lookups {
    pub(crate) function: Arc<dyn Function>,
    /// Keys of a stanza that a configuration of the engine can have in its place until it gets the function.
    pub(crate) stanza: String,
    /// What the stanza names, as long as a configuration may be read.
    pub(crate) file: Option<NamedTempFile>,
    pub(crate) frame: Box<Make<'static>>,
}

impl Lookups {
    /// Builds it from a stanza that names a file, of which the first line is kept: reading all of it again takes long.
    pub(crate) fn of_file(
        kind: &str,
        stanza: String,
        file: NamedTempFile,
        frame: Box<Make<'static>>,
    ) -> Result<Self, Error> {
        let function = function::build_at(kind, &stanza, &PORTS.map(str::to_owned))?;
        shorten(&file)?;
        Ok(Self { function, stanza, file: Some(file), frame })
    }
}

/// Leaves the first line of a file.
pub(crate) fn shorten(file: &NamedTempFile) -> Result<(), Error> {
    let text = std::fs::read(file.path()).map_err(Error::setup)?;
    let line = text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| end + 1);
    file.as_file().set_len(line as u64).map_err(Error::setup)
}

/// 200,000 random prefixes of 48 to 64 bits, and addresses below them.
pub(crate) fn ipv6(extent: &Extent) -> Result<Lookups, Error> {
    let routes = routes::random_prefixes6(extent.entries(200_000, |bytes| bytes / 65) as usize);
    let file = routes::write_file6(&routes)?;
    let frame = move |size: Size, random: &mut Random| {
        let route = &routes[random.below(routes.len() as u32) as usize];
        let host = u128::from(random.next_u32()) << 32 | u128::from(random.next_u32());
        let mut frame = ethernet(size, random, 0x86dd);
        let payload = (frame.len() - 54) as u16;
        // No next header, so that it fits where UDP does not.
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, (payload >> 8) as u8, payload as u8, 59, 64]);
        frame[22..38].copy_from_slice(&(0x2001_0db8_u128 << 96 | u128::from(random.next_u32())).to_be_bytes());
        frame[38..54].copy_from_slice(&(route.prefix | host).to_be_bytes());
        frame
    };
    Lookups::of_file("ipv6", routes::stanza(file.path()), file, Box::new(frame))
}

/// Stations on this side, which speak to all the others.
const NEAR_STATIONS: u32 = 64;

/// A million stations beyond the other port, spoken to by 64 on this one.
pub(crate) fn l2(extent: &Extent) -> Result<Lookups, Error> {
    // Tables have powers of two of places, each of 8 bytes, of which 0.955 are filled at most; a million fill a table so too.
    let stations = extent.entries(1_000_000, |bytes| (1 << bytes.max(1).ilog2()) / 8 / 1000 * 954);
    // Local unicast addresses, all different.
    let station = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 1, a, b, c, d]
    };
    // Nothing ages: what looks for old entries would share memory with the look-ups.
    let stanza = |capacity: u32| format!("capacity = {capacity}\nageing_s = 0\n");
    let site = BuildContext { name: "l2", ports: &PORTS.map(str::to_owned), directory: Path::new(".") };
    let text = stanza(stations + NEAR_STATIONS);
    let function = l2::build_switch(DeTable::parse(&text).map_err(Error::setup)?, &site).map_err(Error::setup)?;
    // Not by a file: seventy million lines are 2 GB of text, and take longer to write and to read than to enter.
    let learned = |number: u32| (l2::key(1, MacAddress(station(number))), u8::from(number < stations));
    let numbers: Vec<u32> = (0..stations + NEAR_STATIONS).collect();
    for some in numbers.chunks(1 << 20) {
        let some: Vec<(u64, u8)> = some.iter().map(|&number| learned(number)).collect();
        function.learn_all(&some).map_err(Error::setup)?;
    }
    let frame = move |size: Size, random: &mut Random| {
        let mut frame = ethernet(size, random, 0x88b5);
        frame[..6].copy_from_slice(&station(random.below(stations)));
        frame[6..12].copy_from_slice(&station(stations + random.below(NEAR_STATIONS)));
        frame
    };
    Ok(Lookups { function: Arc::new(function), stanza: stanza(NEAR_STATIONS), file: None, frame: Box::new(frame) })
}

/// Ten million names of two components, and Interests for names that have one more.
pub(crate) fn ndn(extent: &Extent) -> Result<Lookups, Error> {
    let names = extent.entries(10_000_000, |bytes| bytes / 80);
    // The factor is odd: all names differ.
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

/// A frame of this size, zeros behind the Ethernet header.
fn ethernet(size: Size, random: &mut Random, ether_type: u16) -> Vec<u8> {
    let mut frame = vec![0; frames::length(size, random).max(60)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    frame
}

/// The bench `ipv6`.
pub(crate) fn forwarding6(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    measure("ipv6", ipv6, options, progress)
}

/// The bench `l2`.
pub(crate) fn switching(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    measure("l2", l2, options, progress)
}

/// The bench `ndn`.
pub(crate) fn names(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    measure("ndn", ndn, options, progress)
}

fn measure(
    bench: &'static str,
    make: fn(&Extent) -> Result<Lookups, Error>,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let Lookups { function, frame, .. } = make(&Extent::asked(options))?;
    progress(&format!("{bench}: tables of {:.1} MiB", function.image().len() as f64 / f64::from(1 << 20)));
    // Every pass asks for other entries, as passes of the bench `ipv4` do.
    let workload = Workload { frame: &*frame, refresh: Refresh::Made, ..Workload::new(bench, function) };
    function::measure(workload, options, progress)
}
