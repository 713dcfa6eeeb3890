//! Receive queue of a synthetic port. It generates packets at the configured rate.

use std::sync::Arc;

use godwit_packet::{Batch, Region};

use super::config::{Config, Spread, Time};
use super::generator::{Generator, Pace, Stop};
use super::probe::Probes;
use super::program::Program;
use super::units::Rate;
use crate::{Clock, Error, PortCounters, QueueContext, Receive, Received};

/// Creates the receive queue of one worker. Packets are generated according to the system clock.
///
/// # Errors
/// Returns an error if the configuration is invalid or the pattern file cannot be read.
pub fn receiver(config: &Config, context: QueueContext) -> Result<Box<dyn Receive>, Error> {
    receiver_with_clock(config, context, Clock::Machine)
}

/// Creates the receive queue of one worker. Packets are generated according to `clock`.
///
/// # Errors
/// Returns an error in the same cases as [`receiver`].
pub fn receiver_with_clock(config: &Config, context: QueueContext, clock: Clock) -> Result<Box<dyn Receive>, Error> {
    let workers = context.steering.workers();
    let steering = match config.spread {
        Spread::Owner => context.steering,
        Spread::Flow => Arc::new(context.steering.by_flow()),
    };
    let generator = Generator::new(config, steering, context.worker, context.port)?;
    let units_per_s = match config.rate {
        Rate::Max => None,
        Rate::PacketsPerS(rate) | Rate::BitsPerS(rate) => Some(rate),
    };
    let queue_units = match config.queue_packets {
        0 => None,
        packets => Some((f64::from(packets) * workers as f64 * generator.units_mean()) as u64),
    };
    Ok(Box::new(Receiver {
        program: generator.program(),
        generator,
        clock,
        units_per_s,
        queue_units,
        time: config.time,
        start_ns: None,
        probes: config.probes.clone(),
        is_steered: config.spread == Spread::Owner,
    }))
}

/// Receive queue of one worker. A packet is due when enough time for all earlier packets has passed
/// at the configured rate.
///
/// All workers use the same packet schedule, and the flow hash distributes the packets over the
/// workers.
struct Receiver {
    generator: Generator,
    /// Load program that determines the rate, if there is one.
    program: Option<Arc<Program>>,
    clock: Clock,
    /// Rate in packets or bits per second, or `None` without a limit.
    units_per_s: Option<f64>,
    /// Maximum number of waiting packets or bits of all workers, or `None` without a limit.
    queue_units: Option<u64>,
    time: Time,
    /// Time at which the first packet was due.
    start_ns: Option<u64>,
    /// State of the probe packets, or `None` if packets are not probes. A probe is a packet that
    /// contains its number and the time of its generation.
    probes: Option<Probes>,
    is_steered: bool,
}

impl Receive for Receiver {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        let is_paced = self.units_per_s.is_some() || self.program.is_some();
        let now_ns = if !is_paced && self.time == Time::Schedule { 0 } else { self.clock.now_ns() };
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        let stamp_start_ns = if self.time == Time::Schedule { 0 } else { start_ns };
        let elapsed_ns = now_ns.saturating_sub(start_ns);
        let pace = match (&self.program, self.units_per_s, self.time) {
            (Some(program), _, _) => {
                Pace { due: program.due(elapsed_ns), first: 0, start_ns: stamp_start_ns, unit_ns: 1.0 }
            }
            (None, Some(units_per_s), _) => {
                let due = (elapsed_ns as f64 * (units_per_s / 1e9)) as u64;
                Pace { due, first: 0, start_ns: stamp_start_ns, unit_ns: 1e9 / units_per_s }
            }
            (None, None, Time::Schedule) => Pace { due: u64::MAX, first: 0, start_ns: 0, unit_ns: 1.0 },
            (None, None, Time::Clock) => Pace { due: u64::MAX, first: 0, start_ns: now_ns, unit_ns: 0.0 },
        };
        if let Some(queue_units) = self.queue_units.filter(|_| is_paced) {
            self.generator.miss(pace.due, queue_units);
        }
        let first = batch.len();
        let stop = self.generator.fill_paced(region, batch, packets_max, &pace);
        if let Some(probes) = &self.probes
            && batch.len() > first
        {
            let now_ns = self.clock.now_ns();
            for (descriptor, stamp) in batch.descriptors[first..].iter().zip(&batch.stamps[first..]) {
                probes.mark(region.frame_mut(descriptor), stamp.sequence, now_ns);
            }
        }
        match stop {
            Stop::Ended => Ok(Received::Ended),
            Stop::Enough | Stop::RegionFull | Stop::NotDue => Ok(Received::Open),
        }
    }

    fn sequence_next(&self) -> u64 {
        self.generator.sequence_next()
    }

    fn counters(&self) -> PortCounters {
        self.generator.counters()
    }

    fn is_steered(&self) -> bool {
        self.is_steered
    }
}
