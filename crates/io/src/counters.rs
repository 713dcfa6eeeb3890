//! Counters of a port. One table declares the name, the unit and the description of each counter. A
//! macro generates the struct [`PortCounters`] from this table.

/// Declaration of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSpec {
    /// Name of the counter, unique within a port.
    pub name: &'static str,
    /// Whether the value only grows, or goes up and down.
    pub kind: CounterKind,
    /// Unit of the value.
    pub unit: &'static str,
    /// One-sentence description of the counter for operators.
    pub sentence: &'static str,
}

/// Tells how the value of a counter changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// A value that only grows.
    Total,
    /// A value that goes up and down.
    Level,
}

macro_rules! counters {
    ($(#[$doc:meta])* $struct:ident; $($(#[$table_doc:meta])* $table:ident, $values:ident: {
        $($name:ident, $kind:ident, $unit:literal, $sentence:literal;)*
    })*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $struct {
            $($(#[doc = $sentence] pub $name: u64,)*)*
        }

        $(
            $(#[$table_doc])*
            pub const $table: &[CounterSpec] = &[
                $(CounterSpec {
                    name: stringify!($name),
                    kind: CounterKind::$kind,
                    unit: $unit,
                    sentence: $sentence,
                },)*
            ];
        )*

        impl $struct {
            $(
                #[doc = concat!("Returns the values in the order of [`", stringify!($table), "`].")]
                pub fn $values(&self) -> [u64; $table.len()] {
                    [$(self.$name,)*]
                }
            )*
        }

        impl $struct {
            fn set_values(&mut self, values: &[u64]) {
                let mut values = values.iter();
                $($(self.$name = values.next().copied().unwrap_or(0);)*)*
            }
        }

        impl core::ops::AddAssign for $struct {
            fn add_assign(&mut self, other: Self) {
                $($(self.$name += other.$name;)*)*
            }
        }
    };
}

counters! {
    /// Counters of one queue of a port, or the sums of these counters over all queues of the port.
    /// A receive queue sets only the receive counters, and a transmit queue sets only the transmit
    /// counters.
    ///
    /// The port skips packets that are truncated, empty or too long, and packets of another link
    /// type. Skipped packets are not counted as received. A packet is missed if no buffer was free
    /// and its source could not wait. If every worker reads all packets of the port, only the first
    /// worker counts the skipped packets.
    PortCounters;

    /// Counters of a receive queue.
    RECEIVE_COUNTERS, receive_values: {
        received_packets, Total, "packets", "Packets that the port passed to a worker.";
        received_bytes, Total, "bytes", "Bytes of these packets, without FCS.";
        missed, Total, "packets", "Packets lost because there was no free buffer and the source could not wait.";
        truncated, Total, "packets", "Packets skipped because the capture contains only a part of the frame.";
        empty, Total, "packets", "Packets skipped because the frame is empty.";
        oversized, Total, "packets", "Packets skipped because the frame does not fit in a buffer.";
        bad_checksum, Total, "packets", "Packets skipped because the device reported a wrong IP, TCP or UDP checksum.";
        faulty, Total, "packets", "Packets with errors that the device did not deliver.";
        skipped_link_type, Total, "packets", "Packets skipped because their capture interface is not Ethernet.";
        left_to_kernel, Total, "packets", "Packets that the XDP program left to the kernel, as configured.";
    }

    /// Counters of a transmit queue.
    TRANSMIT_COUNTERS, transmit_values: {
        sent_packets, Total, "packets", "Packets that the port accepted for sending.";
        sent_bytes, Total, "bytes", "Bytes of these packets, without FCS.";
        refused, Total, "packets", "Packets lost because the port did not accept them.";
        over_mtu, Total, "packets", "Refused packets that were longer than the MTU of the link allows.";
        unsent, Total, "packets", "Packets that the port accepted but the device could not send.";
    }
}

impl PortCounters {
    /// Returns all counters with their values. The receive counters come first.
    pub fn iter(&self) -> impl Iterator<Item = (&'static CounterSpec, u64)> {
        let specs = RECEIVE_COUNTERS.iter().chain(TRANSMIT_COUNTERS);
        specs.zip(self.receive_values().into_iter().chain(self.transmit_values()))
    }

    /// Number of counters.
    pub const COUNT: usize = RECEIVE_COUNTERS.len() + TRANSMIT_COUNTERS.len();

    /// Creates the counters from values in the order of [`PortCounters::iter`].
    pub fn from_values(values: [u64; Self::COUNT]) -> Self {
        let mut counters = Self::default();
        counters.set_values(&values);
        counters
    }

    /// Returns the number of packets that reached the port but did not reach a worker.
    pub fn skipped(&self) -> u64 {
        self.missed
            + self.truncated
            + self.empty
            + self.oversized
            + self.bad_checksum
            + self.faulty
            + self.skipped_link_type
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_values_follow_the_table() {
        let counters = PortCounters { missed: 3, refused: 5, ..PortCounters::default() };
        let mut sum = counters;
        sum += counters;
        let values: Vec<_> =
            sum.iter().filter(|(_, value)| *value > 0).map(|(spec, value)| (spec.name, value)).collect();
        assert_eq!(values, [("missed", 6), ("refused", 10)]);
        let shared = crate::live::SharedCounters::default();
        shared.publish(&sum);
        assert_eq!(shared.read(), sum);
        let names: std::collections::HashSet<_> = counters.iter().map(|(spec, _)| spec.name).collect();
        assert_eq!(names.len(), RECEIVE_COUNTERS.len() + TRANSMIT_COUNTERS.len());
    }
}
