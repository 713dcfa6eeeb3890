//! Reduces a configuration to some of its functions with generated packets, for measurements.

use std::ops::RangeInclusive;

use godwit_chain::{Chain, Classifier, Edge, Next, Rule};
use godwit_device::LAST_RESORT;
use godwit_io::synthetic::{self, Rate, Size, Span};

use super::Config;
use super::chain::{function, port};
use super::error::ConfigError;
use super::ports::PortKind;
use super::settings::Idle;

/// First source port of generated packets. Lower numbers belong to well-known services.
const SOURCE_PORT_MIN: u16 = 1024;
/// Minimum number of flows that several functions share. Each function then receives about the same
/// number of packets.
const FLOWS_MIN: usize = 1024;

/// Functions that run alone, and the packets that they receive.
#[derive(Clone, Debug)]
pub struct Isolated<'a> {
    /// Indices of the functions. Each receives the same share of the packets. Without functions,
    /// packets return to their port.
    pub functions: &'a [usize],
    /// Name of the device that runs the functions.
    pub device: &'a str,
    /// Packet limit of a submission to the device, or `None` for the configured limit.
    pub chunk_packets: Option<u32>,
    /// Frame length, in bytes. It is increased if the headers need more.
    pub bytes: u16,
    /// Rate at which packets are generated.
    pub rate: Rate,
    /// Behavior of an idle worker.
    pub idle: Idle,
}

impl Config {
    /// Returns a configuration in which only some functions run. Generated packets go to each
    /// function and then to a port that discards them. The port of the configuration that feeds a
    /// function determines its packets, if this port generates packets. Other packets have the
    /// default properties of generated packets.
    ///
    /// The result uses no NIC, no file for state, and no socket. Its packets never leave the
    /// machine.
    ///
    /// # Errors
    /// Returns an error if there is no such function, or if no port can generate packets of this
    /// length.
    pub fn isolate(mut self, part: &Isolated<'_>) -> Result<Self, ConfigError> {
        let refuse = |message: String| ConfigError::at(&self.origin, 1, message);
        if part.functions.iter().any(|&function| function >= self.functions.len()) {
            return Err(refuse("there is no such function".to_owned()));
        }
        let sources: Vec<usize> = part.functions.iter().map(|&function| self.source_of(function)).collect();
        let mut order: Vec<usize> = (0..sources.len()).collect();
        // Functions with the same source get adjacent ranges of source ports, because a source
        // generates one range.
        order.sort_by_key(|&index| sources[index]);
        let mut ranges = vec![SOURCE_PORT_MIN..=u16::MAX; sources.len()];
        order.iter().enumerate().for_each(|(place, &index)| ranges[index] = range(place, sources.len()));
        let is_divided = sources.len() > 1;

        for (number, port) in self.ports.iter_mut().enumerate() {
            let mut config = match &port.kind {
                PortKind::Synthetic(config) => config.clone(),
                PortKind::Pcap(_) | PortKind::Live(..) => synthetic::Config::default(),
            };
            let own = sources.iter().zip(&ranges).filter(|(source, _)| **source == number);
            let own: Vec<&RangeInclusive<u16>> = own.map(|(_, range)| range).collect();
            generate(&mut config, part, is_divided.then_some(&own[..]));
            if !own.is_empty() || sources.is_empty() {
                let origin = &self.origin;
                let refuse = |error| ConfigError::at(origin, port.line, format!("port `{}`: {error}", port.name));
                config.validate().map_err(refuse)?;
            }
            port.kind = PortKind::Synthetic(config);
        }
        let classes: Vec<String> = if is_divided { (0..sources.len()).map(class_name).collect() } else { Vec::new() };
        let rule = |(index, range): (usize, &RangeInclusive<u16>)| Rule {
            class: index as u8 + 1,
            protocol: None,
            source: None,
            destination: None,
            source_ports: Some(range.clone()),
            destination_ports: None,
        };
        let rules: Vec<Rule> = if is_divided { ranges.iter().enumerate().map(rule).collect() } else { Vec::new() };
        self.classifier = Classifier::new(&rules);
        let edges = self.edges(part.functions, &sources);
        let (ports, functions) = (self.ports.iter().map(port).collect(), self.functions.iter().map(function).collect());
        let chain = Chain::new(ports, functions, &classes, &edges);
        self.chain = chain.map_err(|error| ConfigError::at(&self.origin, 1, &error))?;

        for (index, function) in self.functions.iter_mut().enumerate() {
            let device = if part.functions.contains(&index) { part.device } else { LAST_RESORT };
            function.devices = vec![device.to_owned()];
        }
        if let (Some(packets), Some(device)) =
            (part.chunk_packets, self.devices.iter_mut().find(|device| device.id == part.device))
        {
            device.packing.chunk_packets = packets;
        }
        self.engine.idle = part.idle;
        (self.engine.control, self.engine.user, self.engine.state, self.metrics) = (None, None, None, None);
        self.path = None;
        Ok(self)
    }

    /// Returns the edges of the chain from the ports `sources` to the functions, and back.
    fn edges(&self, functions: &[usize], sources: &[usize]) -> Vec<Edge> {
        let edge = |from: &str, class: Option<String>, to: &str| Edge {
            from: from.to_owned(),
            class,
            verdict: None,
            to: to.to_owned(),
        };
        if functions.is_empty() {
            let port = &self.ports[0].name;
            return vec![edge(port, None, port)];
        }
        let of = |(index, (&function, &source)): (usize, (&usize, &usize))| {
            let (port, function) = (&self.ports[source].name, &self.functions[function].name);
            let class = (functions.len() > 1).then(|| class_name(index));
            [edge(port, class, function), edge(function, None, port)]
        };
        functions.iter().zip(sources).enumerate().flat_map(of).collect()
    }

    /// Returns the number of the port whose packets reach a function. Prefers a port that generates
    /// packets.
    fn source_of(&self, function: usize) -> usize {
        let reaches = |port: &usize| self.reaches(*port as u8, function);
        let is_synthetic = |port: &usize| matches!(self.ports[*port].kind, PortKind::Synthetic(_));
        let found =
            (0..self.ports.len()).filter(reaches).max_by_key(|port| (is_synthetic(port), std::cmp::Reverse(*port)));
        found.unwrap_or(0)
    }

    /// Returns whether packets from a port can reach a function.
    fn reaches(&self, port: u8, function: usize) -> bool {
        let decider = self.chain.decider();
        let reaches_in = |class: u8| {
            let (mut seen, mut next) = (vec![false; self.functions.len()], vec![decider.entry(port, class)]);
            while let Some(step) = next.pop() {
                let Next::Function(number) = step else { continue };
                let index = usize::from(number);
                if std::mem::replace(&mut seen[index], true) {
                    continue;
                }
                let verdicts = self.functions[index].function.contract().verdicts.len();
                next.extend((0..verdicts).map(|verdict| decider.next(number, class, verdict as u8)));
            }
            seen[function]
        };
        (0..decider.classes()).any(|class| reaches_in(class as u8))
    }
}

/// Changes the configuration of a port such that it generates the packets of a measurement. `own`
/// contains the ranges of source ports of its functions, or `None` if any source port is allowed.
fn generate(config: &mut synthetic::Config, part: &Isolated<'_>, own: Option<&[&RangeInclusive<u16>]>) {
    config.size = Size::Fixed(part.bytes.max(config.headers_bytes()));
    (config.rate, config.load, config.packets, config.queue_packets) = (part.rate, None, 0, 0);
    (config.time, config.digest, config.probe) = (synthetic::Time::Clock, false, false);
    let Some(own) = own else { return };
    let (first, last) = (own.iter().map(|range| *range.start()).min(), own.iter().map(|range| *range.end()).max());
    if let (Some(min), Some(max)) = (first, last) {
        config.source_port = Span { min, max };
        config.flows = if config.flows == 0 { 0 } else { config.flows.max(FLOWS_MIN) };
    }
}

/// Returns one of `parts` equal ranges of source ports.
fn range(index: usize, parts: usize) -> RangeInclusive<u16> {
    let (first, width) = (u32::from(SOURCE_PORT_MIN), (u32::from(u16::MAX - SOURCE_PORT_MIN) + 1) / parts as u32);
    let (start, end) = (first + width * index as u32, first + width * (index as u32 + 1) - 1);
    start as u16..=end as u16
}

fn class_name(index: usize) -> String {
    format!("part-{index}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::path::testing::TWO_FUNCTIONS;

    fn isolate(functions: &[usize], bytes: u16) -> Config {
        let config = Config::parse(TWO_FUNCTIONS, "test", Path::new(".")).expect("valid");
        let part = Isolated {
            functions,
            device: "cpu",
            chunk_packets: Some(32),
            bytes,
            rate: Rate::PacketsPerS(1e3),
            idle: Idle::Spin,
        };
        config.isolate(&part).expect("valid")
    }

    fn generated(config: &Config, port: usize) -> &synthetic::Config {
        let PortKind::Synthetic(config) = &config.ports[port].kind else { panic!("not synthetic") };
        config
    }

    #[test]
    fn one_function_gets_all_packets_of_its_port() {
        for function in [0, 1] {
            let config = isolate(&[function], 200);
            let decider = config.chain.decider();
            assert_eq!(decider.entry(0, 0), Next::Function(function as u16));
            assert_eq!(decider.next(function as u16, 0, 0), Next::Port(0));
            assert_eq!(decider.entry(1, 0), Next::None);
            let left = generated(&config, 0);
            assert_eq!((left.size, left.rate, left.packets), (Size::Fixed(200), Rate::PacketsPerS(1e3), 0));
            assert!(left.destination.is_some(), "the addresses stay as configured");
            assert_eq!(config.devices[0].packing.chunk_packets, 32);
        }
    }

    #[test]
    fn several_functions_get_equal_shares_by_source_port() {
        let config = isolate(&[0, 1], 60);
        let decider = config.chain.decider();
        let targets = [1, 2].map(|class| decider.entry(0, class));
        assert_eq!(targets, [Next::Function(0), Next::Function(1)]);
        let ranges: Vec<_> = (0..3).map(|index| range(index, 3)).collect();
        assert_eq!((*ranges[0].start(), *ranges[2].end()), (1024, 65_535));
        assert!(ranges.windows(2).all(|pair| *pair[1].start() == pair[0].end() + 1), "{ranges:?}");
    }

    #[test]
    fn packets_without_functions_return_to_their_port() {
        let config = isolate(&[], 1);
        assert_eq!(config.chain.decider().entry(0, 0), Next::Port(0));
        assert_eq!(generated(&config, 0).size, Size::Fixed(42), "the headers need 42 bytes");
    }
}
