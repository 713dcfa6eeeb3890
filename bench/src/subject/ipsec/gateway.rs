//! An ESP gateway in the whole engine, port to port, with the function on a device.
//!
//! ```text
//! synthetic port -> host half (SPD, sequence number) -> bins -> device
//!                -> outcomes, in order -> synthetic port
//! ```
//! Every SA protects a separate /24, and flows are random over all of them. Before the first
//! figure, a digest of all sent frames is compared with the digest of `ref` for the same packets.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_device::{Implementation, LAST_RESORT, has_own_memory, is_synchronous, kind_of};
use godwit_engine::config::{Config, EngineConfig};
use godwit_engine::{Engine, Options, Report};
use godwit_packet::Layout;

use crate::error::Error;
use crate::load::associations::{Associations, Choice};
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::options::{LaneOptions, layout_name};

/// Mean number of flows of an SA.
const FLOWS_PER_SA: u32 = 4;
/// Largest number of packets of a worker in flight.
const IN_FLIGHT_PACKETS_MAX: usize = 65_536;
/// Headroom for the headers that ESP prepends.
const HEADROOM_BYTES: usize = 44;
/// Tailroom for the trailer and the ICV that ESP appends.
const TAILROOM_BYTES: usize = 29;
/// Alignment of the buffers.
const ALIGN_BYTES: usize = 64;
/// Packets in flight per worker on the CPU. The CPU completes a chunk on submission, and few
/// packets stay in the caches.
const CPU_IN_FLIGHT_PACKETS: usize = 1024;
/// Packets that are compared with `ref`.
const VERIFIED_PACKETS: u32 = 4096;
/// Time after which a gateway that sent nothing is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the SAs of a gateway.
///
/// # Errors
/// Returns an error if the number of SAs is not a power of two.
pub(super) fn associations(choice: &Choice) -> Result<Associations, Error> {
    let associations = Associations::of(choice)?;
    if !associations.sas.is_power_of_two() {
        let message = format!("--sas {}: the gateway needs a power of two", associations.sas);
        return Err(Error::Setup(message));
    }
    Ok(associations)
}

/// A configuration of the engine around `ipsec`.
pub(super) struct Gateway<'a> {
    pub(super) options: &'a LaneOptions,
    pub(super) size: Size,
    /// Device of the function, or several devices that share its packets.
    pub(super) devices: &'a [&'a str],
    pub(super) implementation: Implementation,
    pub(super) workers: usize,
    /// Whether a separate thread sends for each worker.
    pub(super) dual: bool,
    /// Whether packets arrive at any worker, as from a NIC that does not know SAs.
    pub(super) by_flow: bool,
    pub(super) associations: &'a Associations,
}

/// The device of `ref`.
const CPU: &[&str] = &[LAST_RESORT];

impl<'a> Gateway<'a> {
    /// Returns a gateway on the CPU with one worker.
    pub(super) fn new(options: &'a LaneOptions, associations: &'a Associations, size: Size) -> Self {
        Self {
            options,
            size,
            devices: CPU,
            implementation: Implementation::Scalar,
            workers: 1,
            dual: false,
            by_flow: false,
            associations,
        }
    }

    /// Returns the report of `ref` on the CPU with one worker. Other worker counts produce the same
    /// frames.
    pub(super) fn expected(self) -> Result<Report, Error> {
        let by_ref = Self { devices: CPU, implementation: Implementation::Ref, ..self };
        Ok(by_ref.run(Some(VERIFIED_PACKETS), None)?.1)
    }

    /// Compares the sent frames with the report of `ref`.
    pub(super) fn verify(&self, expected: &Report, progress: &mut Progress<'_>) -> Result<(), Error> {
        let (_, found) = self.run(Some(VERIFIED_PACKETS), None)?;
        let (size, device) = (self.size, self.name());
        let digest = |report: &Report| report.ports[0].digest;
        let sent = [expected, &found].map(|report| report.conservation.sent);
        if digest(&found) != digest(expected) || sent != [u64::from(VERIFIED_PACKETS); 2] {
            let what = format!(
                "at {size}, `ref` and the gateway sent {sent:?} of {VERIFIED_PACKETS} packets, or different frames"
            );
            return Err(Error::Wrong { who: format!("the gateway on {device}"), what });
        }
        progress(&format!("gateway at {size} on {device}: {VERIFIED_PACKETS} packets compared with ref"));
        Ok(())
    }

    /// Runs for at least `time`, and until a packet was sent. Returns the packets per chunk, and
    /// the report.
    pub(super) fn time(&self, mut time: Duration) -> Result<(usize, Report), Error> {
        time = time.max(Duration::from_millis(1));
        loop {
            let (chunk_packets, report) = self.run(None, Some(time))?;
            if report.conservation.sent > 0 {
                return Ok((chunk_packets, report));
            }
            if time >= PATIENCE {
                return Err(Error::Setup(format!("the gateway sent no packet within {} s", time.as_secs())));
            }
            time *= 4;
        }
    }

    /// Runs for a number of packets, or for a time. Returns the packets per chunk, and the report.
    fn run(&self, packets: Option<u32>, time: Option<Duration>) -> Result<(usize, Report), Error> {
        self.run_after(packets, time, || {})
    }

    /// Does the same as [`Gateway::run`], and calls `begin` before the run, even if building the
    /// engine failed.
    pub(super) fn run_after(
        &self,
        packets: Option<u32>,
        time: Option<Duration>,
        begin: impl FnOnce(),
    ) -> Result<(usize, Report), Error> {
        let built = self.build(packets);
        begin();
        let (chunk_packets, engine) = built?;
        let stop = Arc::new(AtomicBool::new(false));
        let report = engine.run(&stop, time, &mut |_| {}).map_err(Error::setup)?;
        self.check(&report)?;
        Ok((chunk_packets, report))
    }

    fn build(&self, packets: Option<u32>) -> Result<(usize, Engine), Error> {
        let text = self.configuration(packets);
        let config = Config::parse(&text, "bench gateway", Path::new(".")).map_err(Error::setup)?;
        let device = config.devices.iter().find(|device| device.id == self.devices[0]);
        let chunk_packets = device.map_or(0, |device| device.packing.chunk_packets as usize);
        Ok((chunk_packets, Engine::new(config, &Options::default()).map_err(Error::setup)?))
    }

    /// Checks that packets were conserved, and that every sent packet was encrypted.
    fn check(&self, report: &Report) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Wrong { who: format!("the gateway on {}", self.name()), what });
        let conservation = report.conservation;
        if !conservation.holds() || conservation.in_flight > 0 {
            return wrong(conservation.to_string());
        }
        if let Some(lost) = report.lost_devices.first() {
            return Err(Error::Setup(format!("device {} was lost: {}", lost.device, lost.reason)));
        }
        let encrypted = report.functions[0].verdicts.iter().find(|(verdict, _)| verdict == "encrypted");
        match encrypted {
            Some((_, packets)) if *packets == conservation.sent => Ok(()),
            _ => wrong(format!("it sent {} packets but encrypted {encrypted:?}", conservation.sent)),
        }
    }

    fn name(&self) -> String {
        self.devices.join("+")
    }

    /// Returns whether packets are copied to any of the devices.
    fn copies(&self) -> bool {
        self.devices.iter().any(|device| has_own_memory(device))
    }

    /// Returns the size of the buffer of a frame.
    fn buffer_bytes(frame_bytes: usize) -> usize {
        (HEADROOM_BYTES + frame_bytes + TAILROOM_BYTES / 2).next_multiple_of(ALIGN_BYTES)
    }

    fn mean_buffer_bytes(&self) -> usize {
        match self.size {
            Size::Bytes(bytes) => Self::buffer_bytes(bytes.into()),
            Size::Random => Self::buffer_bytes((60 + 1514) / 2),
            Size::Uniform { min, max } => Self::buffer_bytes((usize::from(min) + usize::from(max)) / 2),
            Size::Imix => (7 * Self::buffer_bytes(60) + 4 * Self::buffer_bytes(566) + Self::buffer_bytes(1514)) / 12,
            Size::ImixPipsea => {
                (60 * Self::buffer_bytes(56) + 23 * Self::buffer_bytes(532) + 15 * Self::buffer_bytes(1356)) / 98
            }
        }
    }

    /// Returns the number of packets in all chunks of a worker.
    fn packets_of_chunks(&self) -> usize {
        let mode = self.options.mode.unwrap_or_default();
        // The CPU finishes each chunk before the next.
        let defaults = self.devices.iter().find_map(|device| kind_of(device)?.chunks(mode, self.workers));
        let Some(defaults) = defaults else { return 0 };
        let chunks = self.options.in_flight.map_or(defaults.chunks, |chunks| chunks + 1);
        // Each device has separate chunks.
        chunks * self.devices.len() * defaults.bytes as usize / self.mean_buffer_bytes()
    }

    /// Returns the `[arena]` key for the size of a worker's ring: the packets in flight plus an
    /// eighth. A larger ring would cause more cache misses.
    fn ring(&self, in_flight_packets: usize) -> String {
        if !self.copies() || self.options.layout != Layout::Dense {
            return String::new();
        }
        let packets = self.options.packets.unwrap_or_else(|| self.packets_of_chunks()).min(in_flight_packets);
        let bytes = packets * self.mean_buffer_bytes() * 9 / 8;
        let longest = HEADROOM_BYTES + self.size.frame_bytes_max().max(60) + TAILROOM_BYTES;
        format!("packets = {}", bytes / longest + 1)
    }

    /// Returns the configuration. `packets` limits the number of packets and enables the digest.
    fn configuration(&self, packets: Option<u32>) -> String {
        let Self { options, size, devices, workers, .. } = *self;
        let io = if self.dual { "dual" } else { "single" };
        let spread = if self.by_flow { "flow" } else { "owner" };
        let layout = layout_name(options.layout);
        let in_flight_packets = match (options.packets, devices) {
            (Some(packets), _) => packets,
            (None, CPU) => CPU_IN_FLIGHT_PACKETS,
            (None, _) if self.copies() => self.packets_of_chunks().next_power_of_two().min(IN_FLIGHT_PACKETS_MAX),
            (None, _) => EngineConfig::default().in_flight_packets,
        };
        let ring = self.ring(in_flight_packets);
        let flows = FLOWS_PER_SA * self.associations.sas;
        let prefix_bits = 24 - self.associations.sas.ilog2();
        let size_text = size.configured();
        // In timed runs, the cores write no payload, because a NIC would. Payload writes slow down
        // the copies to a device. On an H200 with 16 cores, the copy rate falls from 48 to 39 GB/s
        // each way while the cores write 25.6 million frames of 1408 bytes per second.
        let (count, digest, payload) = match packets {
            Some(packets) => (packets, true, "zero"),
            None => (0, false, "stale"),
        };
        let mut text = format!(
            r#"
            [engine]
            workers = {workers}
            io = "{io}"
            in_flight_packets = {in_flight_packets}
            [arena]
            layout = "{layout}"
            {ring}
            frame_bytes_max = {}
            align_bytes = {ALIGN_BYTES}
            headroom_bytes = {HEADROOM_BYTES}
            tailroom_bytes = {TAILROOM_BYTES}
            [[port]]
            name = "memory"
            kind = "synthetic"
            size = {size_text}
            flows = {flows}
            destination = "10.0.0.0/{prefix_bits}"
            payload = "{payload}"
            packets = {count}
            digest = {digest}
            spread = "{spread}"
            [[chain]]
            from = "memory"
            to = "gateway"
            [[chain]]
            from = "gateway"
            to = "memory"
            "#,
            size.frame_bytes_max().max(60),
        );
        for &device in devices {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[[device]]\nname = \"{device}\"");
            if let Some(mode) = options.mode.filter(|_| !is_synchronous(device)) {
                let _ = writeln!(text, "mode = \"{}\"", mode.name());
            }
            if let Some(transfer) = options.transfer.filter(|_| !is_synchronous(device)) {
                let _ = writeln!(text, "transfer = \"{}\"", transfer.name());
            }
            if !options.devices().contains(&device) {
                continue;
            }
            // One chunk fills while the others are in flight. The CPU runs a chunk on submission.
            let chunks = options.in_flight.filter(|_| !is_synchronous(device)).map(|chunks| chunks + 1);
            // A given number of packets also lifts the limit of bytes.
            let unlimited = options.batch.map(|_| u32::MAX as usize);
            let keys = [
                ("chunk_packets", options.batch),
                ("chunk_bytes", unlimited),
                ("bin_packets", options.bin_packets),
                ("chunks", chunks),
            ];
            for (key, value) in keys {
                if let Some(value) = value {
                    let _ = writeln!(text, "{key} = {value}");
                }
            }
        }
        let _ = writeln!(text, "[[function]]\nname = \"gateway\"\nkind = \"ipsec\"\ndevice = {devices:?}");
        // Other devices have a single form.
        if devices == CPU {
            let _ = writeln!(text, "impl = \"{}\"", self.implementation.name());
        }
        text += &self.associations.text("function.sa", 1);
        for sa in 0..self.associations.sas {
            let prefix = format!("{}.{}.{}.0/24", 10 + (sa >> 16), (sa >> 8) & 255, sa & 255);
            let _ = writeln!(
                text,
                "[[function.policy]]\naction = \"protect\"\ndestination = \"{prefix}\"\nsa = \"sa-{sa}\""
            );
        }
        text
    }
}
