//! Host half of a function with a meter.

use std::sync::Arc;

use godwit_declare::MeterUnit;
use godwit_packet::{Descriptor, Region};
use hashbrown::HashMap;

use super::bucket::{Bucket, Color};
use super::key::Words;
use super::{Meter, Rates};
use crate::{Arrange, Arrangement, Complete, Step, Work};

/// Tokens of the entries whose packets this worker owns.
pub(super) struct MeterHost {
    meter: Arc<Meter>,
    /// Entries when this worker last looked at them.
    rates: Arc<Rates>,
    buckets: HashMap<Words, Bucket>,
}

impl MeterHost {
    pub(super) fn new(meter: Arc<Meter>) -> Self {
        let rates = meter.rates.load_full();
        Self { meter, rates, buckets: HashMap::new() }
    }

    /// Discards the tokens of removed entries. Changed entries keep their tokens, up to the new
    /// burst sizes.
    fn refresh(&mut self) {
        let rates = self.meter.rates.load();
        if !Arc::ptr_eq(&rates, &self.rates) {
            self.rates = Arc::clone(&rates);
            self.buckets.retain(|words, _| self.rates.contains_key(words));
        }
    }

    /// Returns the work for a packet that arrived at `time_ns`.
    fn work(&mut self, region: &Region, packet: &Descriptor, time_ns: u64) -> Work {
        let parsed = godwit_wire::parse(region.frame(packet));
        let found = self.meter.key.of(&parsed).and_then(|words| Some((words, self.rates.get(&words)?)));
        let color = found.map_or(Color::None, |(words, rate)| {
            let bucket = self.buckets.entry(words).or_insert_with(|| Bucket::full(rate, time_ns));
            let cost = match self.meter.unit {
                MeterUnit::Bits => 8 * u64::from(packet.length),
                MeterUnit::Packets => 1,
            };
            bucket.take(rate, cost, time_ns)
        });
        Work::Run { variant: 0, parameter: color as u64 }
    }
}

impl Complete for MeterHost {}

impl Arrange for MeterHost {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        self.refresh();
        for (packet, stamp) in packets.arrived.iter().zip(packets.stamps) {
            let work = self.work(packets.region, packet, stamp.time_ns);
            packets.steps.push(Step::Keep { packet: *packet, work });
        }
        u64::MAX
    }
}
