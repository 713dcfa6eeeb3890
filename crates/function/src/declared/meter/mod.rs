//! Table shape `meter`, which holds packet rates by five-tuple. The table is not part of the table
//! image. The worker that owns the packets of an entry keeps its tokens, and passes the color of
//! each packet to the kernel as the parameter.
//!
//! | module | holds |
//! |---|---|
//! | `bucket` | tokens of one entry (RFC 2697) |
//! | `key` | key of a packet, which also selects its worker |
//! | `host` | host half |

mod bucket;
mod host;
mod key;

use std::sync::Arc;

use arc_swap::ArcSwap;
use godwit_declare::{MeterUnit, RecordLayout, Table};
use godwit_packet::{Image, SteerKey};
use hashbrown::HashMap;

use super::entry::{Change, Key, Row};
use super::shapes::{Content, Place, Plan};
use crate::{Error, HostHalf, Running};

use bucket::Rate;
use host::MeterHost;
use key::{KeyOf, Words};

/// Entries of a meter. A table change replaces the whole map.
type Rates = HashMap<Words, Rate>;

/// A meter, which all workers share.
#[derive(Debug)]
pub(crate) struct Meter {
    key: KeyOf,
    unit: MeterUnit,
    /// Offsets of `rate`, `burst` and `excess` in a row.
    offsets: Vec<usize>,
    rates: ArcSwap<Rates>,
}

impl Meter {
    /// Creates a meter with these entries.
    pub(super) fn new(table: &Table, entries: &[(Key, Row)]) -> Arc<Self> {
        let offsets = RecordLayout::padded(&table.row).offsets;
        let meter = Self { key: KeyOf::new(&table.key), unit: table.unit, offsets, rates: ArcSwap::default() };
        meter.apply(entries.iter().map(|(key, row)| (key, Some(row))));
        Arc::new(meter)
    }

    /// Returns the part of the function that runs on the CPU of a worker.
    pub(crate) fn host_half(self: &Arc<Self>) -> HostHalf {
        HostHalf::Arrange(Box::new(MeterHost::new(Arc::clone(self))))
    }

    /// Returns the key that selects the worker of a packet.
    pub(crate) fn steer_key(&self) -> Arc<dyn SteerKey> {
        Arc::new(self.key.clone())
    }

    /// Applies changes to the entries.
    fn apply<'a>(&self, changes: impl Iterator<Item = (&'a Key, Option<&'a Row>)>) {
        let mut rates = Rates::clone(&self.rates.load());
        for (key, row) in changes {
            let Key::Words(words) = key else { unreachable!("the key of a meter") };
            let words: Words = std::array::from_fn(|index| words.get(index).copied().unwrap_or(0));
            match row {
                Some(row) => rates.insert(words, self.rate(row)),
                None => rates.remove(&words),
            };
        }
        self.rates.store(Arc::new(rates));
    }

    /// Returns the rate in a row. Bursts in bytes are converted to bits.
    fn rate(&self, row: &Row) -> Rate {
        let number = |field: usize, bytes: usize| {
            let at = self.offsets[field];
            row[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let scale = if self.unit == MeterUnit::Bits { 8 } else { 1 };
        Rate { per_second: number(0, 8), burst: scale * number(1, 4), excess: scale * number(2, 4) }
    }
}

/// Plans a meter, which takes no bytes of the table image.
pub(super) fn plan(table: &Table, entries: &[(Key, Row)]) -> Plan {
    let meter = Meter::new(table, entries);
    let write = |_: &Arc<Image>, _: Place| -> Result<Box<dyn Content>, Error> { Ok(Box::new(Metered(meter))) };
    Plan { bytes: 0, write: Box::new(write) }
}

/// The meter of a running function.
struct Metered(Arc<Meter>);

impl Content for Metered {
    fn change(&mut self, _: &Arc<Image>, changes: &[Change], _: &dyn Running) -> Result<(), (usize, Error)> {
        self.0.apply(changes.iter().map(|(key, row)| (key, row.as_ref())));
        Ok(())
    }

    fn meter(&self) -> Option<&Arc<Meter>> {
        Some(&self.0)
    }
}
