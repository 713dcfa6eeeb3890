//! The functions that whole-engine benches measure, each with frames that its table knows.

use std::sync::Arc;

use godwit_function::Function;
use tempfile::NamedTempFile;

use super::VERIFIED_PACKETS;
use crate::frames::{self, Random};
use crate::lookups::{self, Extent, Lookups, PORTS};
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

/// Those that are asked for, or all.
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

/// What a row of [`APPS`] is asked for.
pub(super) struct Ask {
    pub(super) frames: usize,
    pub(super) size: Size,
    /// How large tables are to be.
    pub(super) extent: Extent,
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
        file.as_ref().map_or(Ok(()), lookups::shorten)?;
        Ok(Self { name: name.to_owned(), kind, stanza, function, _file: file })
    }

    /// Its keys below `[[function]]`.
    pub(super) fn keys(&self) -> String {
        self.stanza.replace("[[next_hop]]", "[[function.next_hop]]")
    }
}

/// Functions with their traffic.
pub(super) struct Case {
    pub(super) functions: Vec<Built>,
    /// Destination ports of the classes that each lead to one of `functions`, the others to the first; none: there are no
    /// classes.
    pub(super) class_ports: Vec<u16>,
    /// Where verdicts lead; `""` are all others.
    pub(super) exits: &'static [(&'static str, &'static str)],
    /// Whether there is the second of [`PORTS`], by which packets leave.
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

    /// One function that looks something up, and frames for it.
    fn of(kind: &'static str, lookups: Lookups, ask: &Ask) -> Self {
        let Lookups { function, stanza, file, frame } = lookups;
        let mut random = Random::new(16);
        let frames = Arc::new(Frames::new((0..ask.frames).map(|_| frame(ask.size, &mut random))));
        let functions = vec![Built { name: "app".to_owned(), kind, stanza, function, _file: file }];
        Self { functions, class_ports: Vec::new(), exits: FORWARDED, far: false, frames }
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
    let routes = if ask.extent.little { routes::random_routes(1000) } else { routes::prefixes_2025()? };
    let file = routes::write_file(&routes)?;
    Case::new("ipv4", routes::stanza(file.path()), Some(file), FORWARDED, udp(ask))
}

fn ipv6(ask: &Ask) -> Result<Case, Error> {
    Ok(Case::of("ipv6", lookups::ipv6(&ask.extent)?, ask))
}

fn l2(ask: &Ask) -> Result<Case, Error> {
    Ok(Case { far: true, ..Case::of("l2", lookups::l2(&ask.extent)?, ask) })
}

fn ndn(ask: &Ask) -> Result<Case, Error> {
    Ok(Case::of("ndn", lookups::ndn(&ask.extent)?, ask))
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
    let all = if ask.extent.little { 100 * automata } else { PATTERNS };
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
    let payload = |random: &mut Random, payload: &mut [u8]| {
        payload.fill_with(|| random.next_u32() as u8);
        // What `echo` takes for the number of the port.
        payload.iter_mut().take(4).for_each(|byte| *byte = 0);
    };
    Arc::new(Frames::new((0..ask.frames).map(|_| frames::frame(ask.size, &mut random, &payload))))
}
