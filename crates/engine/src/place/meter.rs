//! Counts of a worker for the monitor of the placement: packets, lengths and times of each function
//! on each device.
//!
//! The worker counts in plain memory, once per submission and batch, and publishes the values every
//! millisecond. Without a configured placement, nothing is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_sched::place::{LENGTH_CLASSES, length_class_of};
use godwit_sched::{Bin, Chunk};

/// Interval between two publications, in nanoseconds.
const PUBLISH_NS: u64 = 1_000_000;
/// Period for which the fill level of the order ring is remembered, in nanoseconds.
const FILL_NS: u64 = 10_000_000;
/// Number of packets of a batch whose lengths are counted. Larger batches are sampled.
const SAMPLES: usize = 32;
/// Fill level of a full order ring, in thousandths.
const FULL: u64 = 1000;

/// Positions of the counts of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeterLayout {
    pub(crate) functions: usize,
    pub(crate) devices: usize,
}

impl MeterLayout {
    /// Position of the number of loop iterations.
    pub(crate) const TURNS: usize = 0;
    /// Position of the number of loop iterations that received a full burst of packets.
    pub(crate) const FULL_TURNS: usize = 1;
    /// Position of the fill level of the order ring, in thousandths.
    pub(crate) const FILL: usize = 2;
    const FIXED: usize = 3;

    /// Returns the position of the time for which the worker had no packets on a device, in
    /// nanoseconds.
    pub(crate) fn idle_ns(self, device: usize) -> usize {
        Self::FIXED + device
    }

    /// Returns the position of the number of bytes of a function.
    pub(crate) fn bytes(self, function: usize) -> usize {
        Self::FIXED + self.devices + function * (1 + LENGTH_CLASSES)
    }

    /// Returns the position of the number of packets of a function in a length class.
    pub(crate) fn class(self, function: usize, class: usize) -> usize {
        self.bytes(function) + 1 + class
    }

    /// Returns the position of the number of packets of a function that a device processed.
    pub(crate) fn packets(self, function: usize, device: usize) -> usize {
        Self::FIXED + self.devices + self.functions * (1 + LENGTH_CLASSES) + 2 * (function * self.devices + device)
    }

    /// Returns the position of the time of the batches of a function on a device, in nanoseconds.
    pub(crate) fn busy_ns(self, function: usize, device: usize) -> usize {
        self.packets(function, device) + 1
    }

    pub(crate) fn len(self) -> usize {
        self.packets(self.functions, 0)
    }
}

/// Counts of one worker.
#[derive(Debug)]
pub(crate) struct Meter {
    layout: MeterLayout,
    counts: Vec<u64>,
    shared: Arc<[AtomicU64]>,
    /// Time since which the worker has no packets on each device, or `None` if it has some.
    idle_since_ns: Vec<Option<u64>>,
    published_ns: u64,
    /// Highest fill level of the order ring in the current period and in the period before.
    fills: [u64; 2],
    fill_ns: u64,
}

impl Meter {
    pub(crate) fn new(layout: MeterLayout) -> Self {
        Self {
            layout,
            counts: vec![0; layout.len()],
            shared: (0..layout.len()).map(|_| AtomicU64::new(0)).collect(),
            idle_since_ns: vec![Some(0); layout.devices],
            published_ns: 0,
            fills: [0; 2],
            fill_ns: 0,
        }
    }

    /// Returns the counts that other threads read.
    pub(crate) fn shared(&self) -> Arc<[AtomicU64]> {
        Arc::clone(&self.shared)
    }

    /// Counts one loop iteration. `is_full` states whether it received a full burst of packets.
    #[inline]
    pub(crate) fn turn(&mut self, now_ns: u64, is_full: bool, in_flight: usize, capacity: usize) {
        self.counts[MeterLayout::TURNS] += 1;
        self.counts[MeterLayout::FULL_TURNS] += u64::from(is_full);
        self.fills[0] = self.fills[0].max(in_flight as u64 * FULL / capacity.max(1) as u64);
        if now_ns.saturating_sub(self.published_ns) >= PUBLISH_NS {
            self.publish(now_ns);
        }
    }

    fn publish(&mut self, now_ns: u64) {
        self.published_ns = now_ns;
        self.counts[MeterLayout::FILL] = self.fills[0].max(self.fills[1]);
        if now_ns.saturating_sub(self.fill_ns) >= FILL_NS {
            (self.fill_ns, self.fills) = (now_ns, [0, self.fills[0]]);
        }
        for device in 0..self.layout.devices {
            self.count_idle(device, now_ns);
        }
        self.shared.iter().zip(&self.counts).for_each(|(shared, count)| shared.store(*count, Ordering::Relaxed));
    }

    fn count_idle(&mut self, device: usize, now_ns: u64) {
        if let Some(since_ns) = &mut self.idle_since_ns[device] {
            self.counts[self.layout.idle_ns(device)] += now_ns.saturating_sub(*since_ns);
            *since_ns = now_ns;
        }
    }

    /// Counts the packets of a submission to a device, and their lengths.
    pub(crate) fn submitted(&mut self, device: usize, chunk: &Chunk, now_ns: u64) {
        self.count_idle(device, now_ns);
        self.idle_since_ns[device] = None;
        for (bin, bytes) in chunk.bins.iter().zip(&chunk.bin_bytes) {
            let function = usize::from(bin.instance);
            self.counts[self.layout.bytes(function)] += bytes;
            let packets = &chunk.descriptors[chunk.range(bin)];
            let step = packets.len().div_ceil(SAMPLES).max(1);
            for packet in packets.iter().step_by(step) {
                self.counts[self.layout.class(function, length_class_of(packet.length))] += step as u64;
            }
        }
    }

    /// Records that a device has no more packets of this worker.
    pub(crate) fn idles(&mut self, device: usize, now_ns: u64) {
        self.idle_since_ns[device].get_or_insert(now_ns);
    }

    /// Counts a batch that a device has finished.
    pub(crate) fn finished(&mut self, device: usize, bin: &Bin, elapsed_ns: u64) {
        let function = usize::from(bin.instance);
        self.counts[self.layout.packets(function, device)] += u64::from(bin.count);
        self.counts[self.layout.busy_ns(function, device)] += elapsed_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use godwit_sched::{Descriptor, Packer, PackerConfig};

    use super::*;

    const LAYOUT: MeterLayout = MeterLayout { functions: 2, devices: 3 };

    fn read(meter: &Meter, position: usize) -> u64 {
        meter.shared[position].load(Ordering::Relaxed)
    }

    #[test]
    fn every_count_has_its_own_position() {
        let mut positions = vec![MeterLayout::TURNS, MeterLayout::FULL_TURNS, MeterLayout::FILL];
        positions.extend((0..3).map(|device| LAYOUT.idle_ns(device)));
        for function in 0..2 {
            positions.push(LAYOUT.bytes(function));
            positions.extend((0..LENGTH_CLASSES).map(|class| LAYOUT.class(function, class)));
            positions
                .extend((0..3).flat_map(|device| [LAYOUT.packets(function, device), LAYOUT.busy_ns(function, device)]));
        }
        assert_eq!(positions.len(), LAYOUT.len());
        assert_eq!(positions.into_iter().collect::<BTreeSet<_>>(), (0..LAYOUT.len()).collect());
    }

    #[test]
    fn chunks_become_packets_bytes_and_length_classes() {
        let mut meter = Meter::new(LAYOUT);
        let mut packer = Packer::new(PackerConfig::default(), &[0, 0], 2).expect("valid");
        for length in [[60; 100], [1000; 100]].concat() {
            packer.insert(0, 1, 0, Descriptor { length, ..Descriptor::default() }, 0);
        }
        let chunk = packer.take(0).expect("packets wait");
        meter.submitted(2, &chunk, 5_000);
        chunk.bins.iter().for_each(|bin| meter.finished(2, bin, 700));
        meter.idles(2, 9_000);
        meter.turn(PUBLISH_NS, true, 512, 1024);
        let classes: Vec<u64> = (0..LENGTH_CLASSES).map(|class| read(&meter, LAYOUT.class(1, class))).collect();
        // Every seventh packet is counted seven times.
        assert!(classes[0].abs_diff(100) <= 7 && classes[2].abs_diff(100) <= 7, "{classes:?}");
        assert_eq!((classes[1], classes[3]), (0, 0));
        assert_eq!((read(&meter, LAYOUT.bytes(1)), read(&meter, LAYOUT.bytes(0))), (106_000, 0));
        assert_eq!((read(&meter, LAYOUT.packets(1, 2)), read(&meter, LAYOUT.busy_ns(1, 2))), (200, 700));
        // The device was idle until 5 us and after 9 us.
        assert_eq!(read(&meter, LAYOUT.idle_ns(2)), 5_000 + PUBLISH_NS - 9_000);
        assert_eq!((read(&meter, MeterLayout::FILL), read(&meter, MeterLayout::FULL_TURNS)), (500, 1));
    }

    #[test]
    fn fill_level_is_forgotten_after_two_periods() {
        let mut meter = Meter::new(LAYOUT);
        meter.turn(PUBLISH_NS, false, 1024, 1024);
        let fill_at = |meter: &mut Meter, now_ns: u64| {
            meter.turn(now_ns, false, 0, 1024);
            read(meter, MeterLayout::FILL)
        };
        assert_eq!(fill_at(&mut meter, FILL_NS), 1000);
        assert_eq!(fill_at(&mut meter, 2 * FILL_NS), 1000);
        assert_eq!(fill_at(&mut meter, 3 * FILL_NS), 0);
    }
}
