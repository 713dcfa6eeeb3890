//! The functions, with frames that their tables know.

use std::sync::Arc;

use godwit_function::Function;
use tempfile::NamedTempFile;

use crate::error::Error;
use crate::load::build::build_with_ports;
use crate::load::frames::{self, Random};
use crate::load::lookups::{self, Extent, Lookups, PORTS};
use crate::load::routes;
use crate::load::size::Size;
use crate::load::traffic::Frames;

/// Smallest number of frames for `dpi`.
const FRAMES_MIN: usize = 4096;

/// A function.
pub(super) struct App {
    /// Name in rows, and kind of the function.
    pub(super) name: &'static str,
    /// Makes the function and its frames.
    pub(super) make: fn(&Request) -> Result<Case, Error>,
}

/// All functions.
const APPS: &[App] = &[
    App { name: "echo", make: echo },
    App { name: "ipv4", make: ipv4 },
    App { name: "ipv6", make: ipv6 },
    App { name: "l2", make: l2 },
    App { name: "ndn", make: ndn },
];

/// Returns the functions with these names, or all functions for an empty list.
pub(super) fn apps(names: &[String]) -> Result<Vec<&'static App>, Error> {
    if names.is_empty() {
        return Ok(APPS.iter().collect());
    }
    let find = |name: &String| {
        APPS.iter().find(|app| app.name == name).ok_or_else(|| Error::Unknown {
            what: "app",
            name: name.clone(),
            known: APPS.iter().map(|app| app.name.to_owned()).collect(),
        })
    };
    names.iter().map(find).collect()
}

/// Number and size of the frames, and size of the table.
pub(super) struct Request {
    pub(super) frames: usize,
    pub(super) size: Size,
    pub(super) extent: Extent,
}

/// A function that is built once, because building large tables takes longer than measuring a row.
pub(super) struct Built {
    /// Name in configurations.
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Configuration keys. The file that they name is truncated to its first line.
    stanza: String,
    pub(super) function: Arc<dyn Function>,
    /// File that `stanza` names. It must exist while the engine reads the configuration.
    _file: Option<NamedTempFile>,
}

impl Built {
    /// Builds the function from a stanza, and truncates the file that it names. The engine then
    /// builds a function from the short file, and `function` replaces it.
    fn new(name: &str, kind: &'static str, stanza: String, file: Option<NamedTempFile>) -> Result<Self, Error> {
        let function = build_with_ports(kind, &stanza, &PORTS.map(str::to_owned))?;
        file.as_ref().map_or(Ok(()), lookups::shorten)?;
        Ok(Self { name: name.to_owned(), kind, stanza, function, _file: file })
    }

    /// Returns the keys below `[[function]]`.
    pub(super) fn keys(&self) -> String {
        self.stanza.replace("[[next_hop]]", "[[function.next_hop]]")
    }
}

/// Functions with their frames.
pub(super) struct Case {
    pub(super) functions: Vec<Built>,
    /// Destination port of each function's packets. If it is empty, the first function receives all
    /// packets.
    pub(super) class_ports: Vec<u16>,
    /// Next stage for each verdict. The verdict `""` matches all others.
    pub(super) exits: &'static [(&'static str, &'static str)],
    /// Whether the second of [`PORTS`] exists.
    pub(super) far: bool,
    pub(super) frames: Arc<Frames>,
}

impl Case {
    /// Returns a case with one function.
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

    /// Returns a case with one function that looks up its frames.
    fn of(kind: &'static str, lookups: Lookups, request: &Request) -> Self {
        let Lookups { function, stanza, file, frame } = lookups;
        let mut random = Random::new(16);
        let frames = Arc::new(Frames::new((0..request.frames).map(|_| frame(request.size, &mut random))));
        let functions = vec![Built { name: "app".to_owned(), kind, stanza, function, _file: file }];
        Self { functions, class_ports: Vec::new(), exits: FORWARDED, far: false, frames }
    }

    /// Returns the kind of the functions.
    pub(super) fn kind(&self) -> &'static str {
        self.functions[0].kind
    }
}

const FORWARDED: &[(&str, &str)] = &[("forward", "egress"), ("", "drop")];

fn echo(request: &Request) -> Result<Case, Error> {
    Case::new("echo", String::new(), None, &[("", "egress")], udp(request))
}

/// Returns `ipv4` with the table of 2025, and frames to random addresses.
fn ipv4(request: &Request) -> Result<Case, Error> {
    let routes = if request.extent.brief { routes::random_routes(1000) } else { routes::prefixes_2025()? };
    let file = routes::write_file(&routes)?;
    Case::new("ipv4", routes::stanza(file.path()), Some(file), FORWARDED, udp(request))
}

fn ipv6(request: &Request) -> Result<Case, Error> {
    Ok(Case::of("ipv6", lookups::ipv6(&request.extent)?, request))
}

fn l2(request: &Request) -> Result<Case, Error> {
    Ok(Case { far: true, ..Case::of("l2", lookups::l2(&request.extent)?, request) })
}

fn ndn(request: &Request) -> Result<Case, Error> {
    Ok(Case::of("ndn", lookups::ndn(&request.extent)?, request))
}

/// Number of patterns in G-Opt's figure 12. They have 8 to 24 letters here.
const PATTERNS: usize = 23_331;

/// Returns `dpi` with several automata, each for the packets to one port. The automata share
/// patterns and packets in the ratio 1 : 1/2 : ... : 1/n. 30 % of the packets contain a pattern.
/// All other bytes are letters, so that the automata leave their root state.
pub(super) fn dpi(request: &Request, automata: usize) -> Result<Case, Error> {
    let mut random = Random::new(12);
    let letter = |random: &mut Random| b'a' + random.below(26) as u8;
    let word = |random: &mut Random| (0..8 + random.below(17)).map(|_| letter(random)).collect::<Vec<u8>>();
    let all = if request.extent.brief { 100 * automata } else { PATTERNS };
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
        let mut frame = frames::frame(request.size, &mut random, &payload);
        frame[36..38].copy_from_slice(&port(part).to_be_bytes());
        frame
    };
    // Payloads are ten times longer than those of lookups.
    let frames = (request.frames / 16).max(FRAMES_MIN);
    let frames = Arc::new(Frames::new((0..frames).map(&mut frame)));
    let class_ports = if automata == 1 { Vec::new() } else { (0..automata).map(port).collect() };
    Ok(Case { functions, class_ports, exits: &[("", "out")], far: false, frames })
}

/// Returns the destination port for packets of an automaton.
fn port(automaton: usize) -> u16 {
    1000 + automaton as u16
}

/// Returns UDP frames with random addresses.
fn udp(request: &Request) -> Arc<Frames> {
    let mut random = Random::new(10);
    let payload = |random: &mut Random, payload: &mut [u8]| {
        payload.fill_with(|| random.next_u32() as u8);
        // `echo` reads the number of the output port here.
        payload.iter_mut().take(4).for_each(|byte| *byte = 0);
    };
    Arc::new(Frames::new((0..request.frames).map(|_| frames::frame(request.size, &mut random, &payload))))
}
