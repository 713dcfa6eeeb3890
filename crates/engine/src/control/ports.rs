//! Opens the ports, which receive and send packets. In a replay, capture files replace the
//! configured ports.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_io::live::{LiveContext, LivePort};
use godwit_io::pcap::{self, ReplayInput, Sink};
use godwit_io::synthetic::{self, Digest, ProbeReport, Probes};
use godwit_io::{PortCounters, QueueContext, Receive};
use godwit_packet::{ArenaConfig, ArenaHandle, Region, Steering};

use crate::config::{Config, PortKind};
use crate::error::Error;
use crate::observe::view::WorkerView;
use crate::options::{Options, Replay};
use crate::path::egress::NamedTransmit;
use crate::path::intake::NamedReceive;

/// All ports of the engine.
pub(crate) struct Ports {
    names: Vec<String>,
    sources: Vec<Source>,
    exits: Vec<Exit>,
    sinks: Vec<(String, Sink)>,
    /// Live ports, by port number. An entry is `None` for other kinds of ports, and for a port that
    /// is not open yet.
    live: Vec<Option<Arc<dyn LivePort>>>,
}

/// Source of packets. It has one receive queue per worker.
enum Source {
    Synthetic {
        port: u8,
        config: Box<synthetic::Config>,
    },
    Pcap {
        port: u8,
        config: pcap::Config,
    },
    Live {
        port: u8,
    },
    /// Capture files whose packets are merged in the order of their timestamps.
    Replay {
        inputs: Vec<ReplayInput>,
    },
}

impl Source {
    fn port(&self) -> u8 {
        match self {
            Self::Synthetic { port, .. } | Self::Pcap { port, .. } | Self::Live { port } => *port,
            Self::Replay { inputs } => inputs.first().map_or(0, |input| input.port),
        }
    }
}

/// Destination of the packets that leave by a port.
enum Exit {
    None,
    Synthetic { config: Box<synthetic::Config>, digest: Digest },
    Capture { sink: usize, interface: usize },
    Live,
}

impl Ports {
    /// Opens those parts of the ports that all workers share.
    pub(crate) fn open(config: &Config, options: &Options, workers: usize) -> Result<Self, Error> {
        let names: Vec<String> = config.ports.iter().map(|port| port.name.clone()).collect();
        let live = vec![None; names.len()];
        let mut ports = Self { names, sources: Vec::new(), exits: Vec::new(), sinks: Vec::new(), live };
        match &options.replay {
            Some(replay) => ports.open_replay(config, replay, workers)?,
            None => ports.open_configured(config, workers)?,
        }
        Ok(ports)
    }

    fn open_configured(&mut self, config: &Config, workers: usize) -> Result<(), Error> {
        config.check_captures().map_err(|error| Error::Setup(error.to_string()))?;
        config.check_live().map_err(|error| Error::Setup(error.to_string()))?;
        let has_live = config.ports.iter().any(|port| matches!(port.kind, PortKind::Live(..)));
        for (index, port) in config.ports.iter().enumerate() {
            let number = index as u8;
            let kind = with_probes(&port.kind);
            if config.feeds_chain(number) {
                self.sources.push(match &kind {
                    PortKind::Synthetic(config) => Source::Synthetic { port: number, config: Box::new(config.clone()) },
                    PortKind::Pcap(config) => Source::Pcap { port: number, config: config.clone() },
                    PortKind::Live(..) => Source::Live { port: number },
                });
            }
            let exit = match &kind {
                PortKind::Synthetic(config) => {
                    Exit::Synthetic { config: Box::new(config.clone()), digest: Digest::new() }
                }
                PortKind::Pcap(config) => match config.sink(&port.name, workers).map_err(|e| self.fault(number, e))? {
                    // A run with live ports must not stop after a failed write, for example on a
                    // full disk.
                    Some(sink) if has_live => self.capture(port.name.clone(), sink.tolerant(), 0),
                    Some(sink) => self.capture(port.name.clone(), sink, 0),
                    None => Exit::None,
                },
                PortKind::Live(..) => Exit::Live,
            };
            self.exits.push(exit);
        }
        Ok(())
    }

    /// Opens capture files instead of the configured ports. A port without an output file does not
    /// transmit.
    fn open_replay(&mut self, config: &Config, replay: &Replay, workers: usize) -> Result<(), Error> {
        let mut inputs: Vec<ReplayInput> = Vec::new();
        for (name, path) in &replay.inputs {
            let port = match name {
                Some(name) => self.number(name)?,
                None => (0..self.names.len() as u8).find(|port| config.feeds_chain(*port)).ok_or_else(|| {
                    Error::Setup("no port feeds the chain, so --in has no port to replace".to_owned())
                })?,
            };
            if inputs.iter().any(|input| input.port == port) {
                let name = &self.names[usize::from(port)];
                return Err(Error::Setup(format!("--in names port `{name}` twice")));
            }
            inputs.push(ReplayInput { path: path.clone(), port });
        }
        refuse_overwriting(replay)?;
        self.exits.extend((0..self.names.len()).map(|_| Exit::None));
        let (named, unnamed): (Vec<_>, Vec<_>) = replay.outputs.iter().partition(|(name, _)| name.is_some());
        for (name, path) in named {
            let port = self.number(name.as_deref().unwrap_or_default())?;
            if !matches!(self.exits[usize::from(port)], Exit::None) {
                let name = &self.names[usize::from(port)];
                return Err(Error::Setup(format!("--out names port `{name}` twice")));
            }
            let name = self.names[usize::from(port)].clone();
            let sink = create(path, std::slice::from_ref(&name), workers).map_err(|e| self.fault(port, e))?;
            self.exits[usize::from(port)] = self.capture(name, sink, 0);
        }
        if unnamed.len() > 1 {
            return Err(Error::Setup("--out without a port can be given only once".to_owned()));
        }
        if let Some((_, path)) = unnamed.first() {
            let free: Vec<usize> =
                (0..self.names.len()).filter(|&port| matches!(self.exits[port], Exit::None)).collect();
            let interfaces: Vec<String> = free.iter().map(|&port| self.names[port].clone()).collect();
            let name = interfaces.first().cloned().unwrap_or_default();
            let sink = create(path, &interfaces, workers).map_err(|error| Error::Setup(error.to_string()))?;
            for (interface, &port) in free.iter().enumerate() {
                self.exits[port] = Exit::Capture { sink: self.sinks.len(), interface };
            }
            self.sinks.push((name, sink));
        }
        self.sources.push(Source::Replay { inputs });
        Ok(())
    }

    fn capture(&mut self, name: String, sink: Sink, interface: usize) -> Exit {
        self.sinks.push((name, sink));
        Exit::Capture { sink: self.sinks.len() - 1, interface }
    }

    fn number(&self, name: &str) -> Result<u8, Error> {
        let index = self.names.iter().position(|known| known == name);
        let unknown = || {
            let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
            Error::Setup(godwit_chain::names::unknown("port", name, &known))
        };
        index.map(|index| index as u8).ok_or_else(unknown)
    }

    fn fault(&self, port: u8, source: godwit_io::Error) -> Error {
        Error::Port { port: self.names[usize::from(port)].clone(), source }
    }

    /// Returns the kind of a port.
    pub(crate) fn kind(&self, configured: &PortKind) -> &'static str {
        if self.is_replay() { "pcap" } else { configured.name() }
    }

    /// Returns whether capture files replace the configured ports.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self.sources.first(), Some(Source::Replay { .. }))
    }

    /// Opens the live ports, which receive and send packets in the packet memory.
    pub(crate) fn open_live(&mut self, config: &Config, arena: &ArenaHandle, regions: &[Region]) -> Result<(), Error> {
        let extents: Vec<_> = regions.iter().map(Region::extent).map(|(start, bytes)| start..start + bytes).collect();
        for (index, port) in config.ports.iter().enumerate() {
            let PortKind::Live(_, live) = &port.kind else { continue };
            if !matches!(self.exits[index], Exit::Live) {
                continue;
            }
            let ArenaConfig { headroom_bytes, frame_bytes_max, .. } = config.arena;
            let buffer_bytes = config.arena.buffer_bytes();
            let context = LiveContext {
                name: &port.name,
                port: index as u8,
                workers: regions.len(),
                receives: config.feeds_chain(index as u8),
                arena,
                regions: &extents,
                slot_bytes: arena.slot_pitch_bytes(),
                buffer_bytes,
                headroom_bytes,
                frame_bytes_max,
            };
            self.live[index] = Some(live.open(&context).map_err(|error| self.fault(index as u8, error))?);
        }
        Ok(())
    }

    /// Returns whether packets may arrive at workers that do not own their state.
    pub(crate) fn needs_exchange(&self) -> bool {
        self.sources.iter().any(|source| match source {
            Source::Live { .. } => true,
            Source::Synthetic { config, .. } => config.spread == synthetic::Spread::Flow,
            Source::Pcap { .. } | Source::Replay { .. } => false,
        })
    }

    /// Stops the reception of packets on live ports.
    pub(crate) fn stop(&self) {
        self.live.iter().flatten().for_each(|port| port.stop());
    }

    /// Runs the periodic checks of live ports and captures, and logs their events.
    pub(crate) fn attend(&self) {
        for (name, port) in self.names.iter().zip(&self.live) {
            let events = port.as_ref().map(|port| port.attend()).unwrap_or_default();
            events.iter().for_each(|(event, sentence)| log_port(name, event, sentence));
        }
        for (name, sink) in &self.sinks {
            sink.notice().iter().for_each(|sentence| log_port(name, CAPTURE_FAILED, sentence));
        }
    }

    fn live(&self, port: u8) -> &dyn LivePort {
        let port = self.live[usize::from(port)].as_deref();
        port.expect("live ports are opened before their queues")
    }

    /// Opens one worker's receive queues, one per source.
    pub(crate) fn receivers(
        &self,
        worker: usize,
        steering: &Arc<Steering>,
        region: &mut Region,
    ) -> Result<Vec<NamedReceive>, Error> {
        for (port, live) in self.live.iter().enumerate() {
            let Some(live) = live else { continue };
            live.attach(worker, region).map_err(|error| self.fault(port as u8, error))?;
        }
        let context = |port| QueueContext { port, worker, steering: Arc::clone(steering) };
        let mut open = |source: &Source| {
            let opened = match source {
                Source::Synthetic { port, config } => synthetic::receiver(config, context(*port)),
                Source::Pcap { port, config } => pcap::receiver(config, context(*port)),
                Source::Live { port } => self.live(*port).receiver(context(*port), region),
                Source::Replay { inputs } => pcap::Replay::open(inputs, 0, worker, Arc::clone(steering))
                    .map(|replay| Box::new(replay) as Box<dyn Receive>),
            };
            let queue = opened.map_err(|error| self.fault(source.port(), error))?;
            Ok((self.names[usize::from(source.port())].clone(), queue))
        };
        self.sources.iter().map(&mut open).collect()
    }

    /// Opens one worker's transmit queues, one per port.
    pub(crate) fn transmitters(&self, worker: usize) -> Result<Vec<NamedTransmit>, Error> {
        let open = |(port, exit): (usize, &Exit)| {
            let queue = match exit {
                Exit::None => None,
                Exit::Synthetic { config, digest } => Some(synthetic::transmitter(config, digest)),
                Exit::Capture { sink, interface } => Some(self.sinks[*sink].1.transmitter(worker, *interface)),
                Exit::Live => {
                    let port = port as u8;
                    Some(self.live(port).transmitter(worker).map_err(|error| self.fault(port, error))?)
                }
            };
            Ok((self.names[port].clone(), queue))
        };
        self.exits.iter().enumerate().map(open).collect()
    }

    /// Returns the counters of each port, summed over all workers. `finished` states that the
    /// workers have ended.
    pub(crate) fn counters(&self, workers: &[WorkerView], finished: bool) -> Vec<PortCounters> {
        let mut ports = vec![PortCounters::default(); self.names.len()];
        for worker in workers {
            for (source, counters) in self.sources.iter().zip(&worker.received) {
                ports[usize::from(source.port())] += counters.read();
            }
            for (port, counters) in ports.iter_mut().zip(&worker.transmitted) {
                *port += counters.read();
            }
        }
        for (port, live) in ports.iter_mut().zip(&self.live) {
            let Some(live) = live.as_ref().map(|live| live.counters()) else { continue };
            if !finished {
                *port = live;
                continue;
            }
            // Live ports also count events in hardware, which the workers do not see.
            port.missed = port.missed.max(live.missed);
            port.faulty = port.faulty.max(live.faulty);
            port.unsent = port.unsent.max(live.unsent);
        }
        ports
    }

    pub(crate) fn is_up(&self, port: usize) -> Option<bool> {
        self.live.get(port)?.as_ref()?.is_up()
    }

    /// Returns the probe packet statistics of a synthetic port.
    pub(crate) fn probes(&self, port: usize) -> Option<ProbeReport> {
        match &self.exits[port] {
            Exit::Synthetic { config, .. } => config.probes.as_ref().map(Probes::report),
            _ => None,
        }
    }

    /// Returns the digest of all frames that a synthetic port transmitted, if the port computes
    /// one. The frame order does not matter.
    pub(crate) fn digest(&self, port: usize) -> Option<u64> {
        match &self.exits[port] {
            Exit::Synthetic { config, digest } if config.digest => Some(digest.value()),
            _ => None,
        }
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        for (port, sink) in &self.sinks {
            sink.sync().map_err(|source| Error::Port { port: port.clone(), source })?;
            sink.notice().iter().for_each(|sentence| log_port(port, CAPTURE_FAILED, sentence));
        }
        for (port, sink) in self.sinks {
            sink.finish().map_err(|source| Error::Port { port, source })?;
        }
        Ok(())
    }
}

/// Event name for a capture that ends early, for example on a full disk.
const CAPTURE_FAILED: &str = "capture_failed";

fn log_port(port: &str, event: &str, sentence: &str) {
    match event {
        "link_up" | "interface_back" | "mtu_changed" => tracing::info!(event, port, "port `{port}`: {sentence}"),
        _ => tracing::warn!(event, port, "port `{port}`: {sentence}"),
    }
}

/// Returns a copy of the port configuration. If the port generates probe packets, the copy has new
/// probe statistics.
fn with_probes(kind: &PortKind) -> PortKind {
    let mut kind = kind.clone();
    if let PortKind::Synthetic(config) = &mut kind
        && config.probe
    {
        config.probes = Some(Probes::new());
    }
    kind
}

fn create(path: &Path, interfaces: &[String], workers: usize) -> Result<Sink, godwit_io::Error> {
    Sink::create(path, pcap::Format::from_path(path), interfaces, workers)
}

fn refuse_overwriting(replay: &Replay) -> Result<(), Error> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let inputs: Vec<PathBuf> = replay.inputs.iter().map(|(_, path)| real(path)).collect();
    match replay.outputs.iter().find(|(_, path)| inputs.contains(&real(path))) {
        Some((_, path)) => Err(Error::Setup(format!("{} is both read and written", path.display()))),
        None => Ok(()),
    }
}
