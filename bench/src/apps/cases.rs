//! The functions that whole-engine benches measure, each with frames that its table knows.

use std::fmt::Write as _;
use std::sync::Arc;

use godwit_function::Function;
use tempfile::NamedTempFile;

use super::VERIFIED_PACKETS;
use crate::frames::{self, Random};
use crate::traffic::Frames;
use crate::{Error, Size, function, routes};

/// An application of figure 10.
pub(super) struct App {
    /// Also the function's kind.
    pub(super) name: &'static str,
    /// With room for so many frames of that size; small where a test asks.
    pub(super) make: fn(&Ask) -> Result<Case, Error>,
}

/// One line for each.
const APPS: &[App] = &[
    App { name: "echo", make: echo },
    App { name: "ipv4", make: ipv4 },
    App { name: "ipv6", make: ipv6 },
    App { name: "l2", make: l2 },
    App { name: "ndn", make: ndn },
];

/// Those whose function there is.
pub(super) fn apps() -> impl Iterator<Item = &'static App> {
    APPS.iter().filter(|app| godwit_function::kind(app.name).is_some())
}

/// What a row of [`APPS`] is asked for.
pub(super) struct Ask {
    pub(super) frames: usize,
    pub(super) size: Size,
    /// Whether tables are to be small.
    pub(super) little: bool,
    /// Bytes that tables of `ipv6`, `l2` and `ndn` are to have about; `None`: as many entries as networks have.
    pub(super) table_bytes: Option<usize>,
}

impl Ask {
    /// How many entries a table has that takes about so many bytes for each.
    fn entries(&self, common: u32, entry_bytes: usize) -> u32 {
        const LITTLE_ENTRIES: u32 = 1000;
        let asked = |bytes: usize| u32::try_from(bytes / entry_bytes).unwrap_or(u32::MAX).max(LITTLE_ENTRIES);
        if self.little { LITTLE_ENTRIES } else { self.table_bytes.map_or(common, asked) }
    }
}

/// A function, built once: large tables take longer than a row.
pub(super) struct Built {
    /// What a configuration calls it.
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Keys of its stanza, as in one of its own; those that name a file name what is left of it.
    stanza: String,
    pub(super) function: Arc<dyn Function>,
    /// What the stanza names, until the last configuration is read.
    _file: Option<NamedTempFile>,
}

impl Built {
    /// Builds it from a stanza that may name a file, of which the first line is kept: a configuration of the engine builds
    /// the function again, with that alone, and gets this one in its place.
    fn new(name: &str, kind: &'static str, stanza: String, file: Option<NamedTempFile>) -> Result<Self, Error> {
        let function = function::build_at(kind, &stanza, &PORTS.map(str::to_owned))?;
        if let Some(file) = &file {
            let text = std::fs::read(file.path()).map_err(Error::setup)?;
            let line = text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| end + 1);
            file.as_file().set_len(line as u64).map_err(Error::setup)?;
        }
        Ok(Self { name: name.to_owned(), kind, stanza, function, _file: file })
    }

    /// Its keys below `[[function]]`.
    pub(super) fn keys(&self) -> String {
        self.stanza.replace("[[next_hop]]", "[[function.next_hop]]")
    }
}

/// Names of the ports; the second is there where [`Case::far`] says so.
const PORTS: [&str; 2] = ["out", "far"];

/// Functions with their traffic.
pub(super) struct Case {
    pub(super) functions: Vec<Built>,
    /// Destination ports of the classes that each lead to one of `functions`, the others to the first; none: there are no
    /// classes.
    pub(super) class_ports: Vec<u16>,
    /// Where verdicts lead; `""` are all others.
    pub(super) exits: &'static [(&'static str, &'static str)],
    /// Whether there is a second port, by which packets leave.
    pub(super) far: bool,
    pub(super) frames: Arc<Frames>,
}

impl Case {
    /// One function.
    fn new(
        kind: &'static str,
        stanza: String,
        file: Option<NamedTempFile>,
        exits: &'static [(&'static str, &'static str)],
        frames: Arc<Frames>,
    ) -> Result<Self, Error> {
        let functions = vec![Built::new("app", kind, stanza, file)?];
        Ok(Self { functions, class_ports: Vec::new(), exits, far: false, frames })
    }

    pub(super) fn kind(&self) -> &'static str {
        self.functions[0].kind
    }
}

const FORWARDED: &[(&str, &str)] = &[("forward", "egress"), ("", "drop")];

fn echo(ask: &Ask) -> Result<Case, Error> {
    Case::new("echo", String::new(), None, &[("", "egress")], udp(ask))
}

/// The table of 2025, and addresses at random.
fn ipv4(ask: &Ask) -> Result<Case, Error> {
    let routes = if ask.little { routes::random_routes(1000) } else { routes::prefixes_2025()? };
    let file = routes::write_file(&routes)?;
    Case::new("ipv4", routes::stanza(file.path()), Some(file), FORWARDED, udp(ask))
}

/// 200,000 random prefixes of 48 to 64 bits, and addresses below them.
fn ipv6(ask: &Ask) -> Result<Case, Error> {
    let routes = routes::random_prefixes6(ask.entries(200_000, 65) as usize);
    let file = routes::write_file6(&routes)?;
    let mut random = Random::new(16);
    let frame = |_| {
        let route = &routes[random.below(routes.len() as u32) as usize];
        let host = u128::from(random.next_u32()) << 32 | u128::from(random.next_u32());
        let mut frame = ethernet(ask.size, 0x86dd);
        let payload = (frame.len() - 54) as u16;
        // No next header, so that it fits where UDP does not.
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, (payload >> 8) as u8, payload as u8, 59, 64]);
        frame[22..38].copy_from_slice(&(0x2001_0db8_u128 << 96 | u128::from(random.next_u32())).to_be_bytes());
        frame[38..54].copy_from_slice(&(route.prefix | host).to_be_bytes());
        frame
    };
    let frames = Arc::new(Frames::new((0..ask.frames).map(frame)));
    Case::new("ipv6", routes::stanza(file.path()), Some(file), FORWARDED, frames)
}

/// A million stations beyond the other port, spoken to by 64 on this one.
fn l2(ask: &Ask) -> Result<Case, Error> {
    let stations = ask.entries(1_000_000, 9);
    // Local unicast addresses, all different.
    let station = |number: u32| [2, 1, (number >> 24) as u8, (number >> 16) as u8, (number >> 8) as u8, number as u8];
    let mut text = String::with_capacity(stations as usize * 26);
    for number in 0..stations + 64 {
        let [a, b, c, d, e, f] = station(number);
        let port = if number < stations { "far" } else { "out" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "1 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} {port}");
    }
    let file = routes::temporary(text.as_bytes())?;
    let stanza = format!("capacity = {}\nmacs = {:?}\n", stations + 64, file.path().display().to_string());
    let mut random = Random::new(20);
    let frame = |_| {
        let mut frame = ethernet(ask.size, 0x88b5);
        frame[..6].copy_from_slice(&station(random.below(stations)));
        frame[6..12].copy_from_slice(&station(stations + random.below(64)));
        frame
    };
    let frames = Arc::new(Frames::new((0..ask.frames).map(frame)));
    Ok(Case { far: true, ..Case::new("l2", stanza, Some(file), FORWARDED, frames)? })
}

/// A frame of this size, zeros behind the Ethernet header.
fn ethernet(size: Size, ether_type: u16) -> Vec<u8> {
    let length = match size {
        Size::Bytes(bytes) => usize::from(bytes).max(60),
        Size::Imix | Size::Random => 60,
    };
    let mut frame = vec![0; length];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    frame
}

/// Ten million names of two components, and Interests for names that have one more.
fn ndn(ask: &Ask) -> Result<Case, Error> {
    let names = ask.entries(10_000_000, 80);
    // The factor is odd: all names differ.
    let name = |number: u32| [format!("{:08x}", number.wrapping_mul(0x9e37_79b1)), format!("{:03x}", number % 1000)];
    let mut text = String::with_capacity(names as usize * 24);
    for number in 0..names {
        let [first, second] = name(number);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "/{first}/{second} hop{}", number % routes::NEXT_HOPS);
    }
    let file = routes::temporary(text.as_bytes())?;
    let stanza = routes::stanza(file.path()).replacen("routes", "names", 1);
    let mut random = Random::new(23);
    let element = |kind: u8, value: &[u8]| [&[kind, value.len() as u8][..], value].concat();
    let frame = |_| {
        let [first, second] = name(random.below(names));
        let third = format!("{:04x}", random.below(1 << 16));
        let components: Vec<u8> = [first, second, third].iter().flat_map(|part| element(8, part.as_bytes())).collect();
        let nonce = random.next_u32().to_be_bytes();
        let interest = element(5, &[element(7, &components), element(10, &nonce)].concat());
        let mut frame = ethernet(ask.size, 0x8624);
        frame[14..14 + interest.len()].copy_from_slice(&interest);
        frame
    };
    let frames = Arc::new(Frames::new((0..ask.frames).map(frame)));
    Case::new("ndn", stanza, Some(file), FORWARDED, frames)
}

/// The patterns of G-Opt's figure 12, of 8 to 24 letters.
const PATTERNS: usize = 23_331;

/// `dpi` with so many automata, each for the packets to one port, as rules are grouped by ports: patterns and packets
/// are divided between them as one to `n` by 1, 1/2, ... 1/n. 30 % of the packets have a pattern; all else are
/// letters too, so that the automaton leaves its root.
pub(super) fn dpi(ask: &Ask, automata: usize) -> Result<Case, Error> {
    let mut random = Random::new(12);
    let letter = |random: &mut Random| b'a' + random.below(26) as u8;
    let word = |random: &mut Random| (0..8 + random.below(17)).map(|_| letter(random)).collect::<Vec<u8>>();
    let all = if ask.little { 100 * automata } else { PATTERNS };
    let parts: f64 = (1..=automata).map(|part| 1.0 / part as f64).sum();
    let share = |part: usize| 1.0 / (part + 1) as f64 / parts;
    let mut groups = Vec::with_capacity(automata);
    let mut functions = Vec::with_capacity(automata);
    for part in 0..automata {
        let count = ((all as f64 * share(part)) as usize).max(1);
        let patterns: Vec<Vec<u8>> = (0..count).map(|_| word(&mut random)).collect();
        let file = routes::temporary(&patterns.join(&b'\n'))?;
        let stanza = format!("patterns = {:?}\n", file.path().display().to_string());
        functions.push(Built::new(&format!("app{part}"), "dpi", stanza, Some(file))?);
        groups.push(patterns);
    }
    let mut frame = |_| {
        let mut drawn = f64::from(random.below(1 << 20)) / f64::from(1 << 20);
        let part = (0..automata - 1).find(|&part| {
            drawn -= share(part);
            drawn < 0.0
        });
        let part = part.unwrap_or(automata - 1);
        let patterns = &groups[part];
        let payload = |random: &mut Random, payload: &mut [u8]| {
            payload.fill_with(|| letter(random));
            let pattern = &patterns[random.below(patterns.len() as u32) as usize];
            if random.below(100) < 30 && payload.len() > pattern.len() {
                let at = random.below((payload.len() - pattern.len()) as u32) as usize;
                payload[at..at + pattern.len()].copy_from_slice(pattern);
            }
        };
        let mut frame = frames::frame(ask.size, &mut random, &payload);
        frame[36..38].copy_from_slice(&port(part).to_be_bytes());
        frame
    };
    // Payloads are ten times as long as those of look-ups.
    let frames = (ask.frames / 16).max(VERIFIED_PACKETS as usize);
    let frames = Arc::new(Frames::new((0..frames).map(&mut frame)));
    let class_ports = if automata == 1 { Vec::new() } else { (0..automata).map(port).collect() };
    Ok(Case { functions, class_ports, exits: &[("", "out")], far: false, frames })
}

/// The destination port whose packets are for an automaton.
fn port(automaton: usize) -> u16 {
    1000 + automaton as u16
}

/// UDP over IPv4 from anywhere to anywhere.
fn udp(ask: &Ask) -> Arc<Frames> {
    let mut random = Random::new(10);
    let payload = |random: &mut Random, payload: &mut [u8]| payload.fill_with(|| random.next_u32() as u8);
    Arc::new(Frames::new((0..ask.frames).map(|_| frames::frame(ask.size, &mut random, &payload))))
}
