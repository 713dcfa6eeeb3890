//! What a port counts, declared once: name, unit and sentence of each counter, and the struct that holds them.

/// One line of a table of counters. Metrics and documents are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSpec {
    /// Name, unique within a port.
    pub name: &'static str,
    /// Whether the value only grows.
    pub kind: CounterKind,
    /// What is counted.
    pub unit: &'static str,
    /// What it means, for the operator.
    pub sentence: &'static str,
}

/// How a value behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Only grows.
    Total,
    /// Goes up and down.
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
                #[doc = concat!("The values in the order of [`", stringify!($table), "`].")]
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
    /// What one queue of a port counted. A receive queue leaves the counters of the other direction at zero, and the
    /// reverse; the sum over all queues is what the port counted.
    ///
    /// A packet that the port passed over (missed, truncated, empty, oversized, of another link type) never entered and is not among
    /// the received ones. Where every worker sees the whole sequence of the port, the first worker counts those.
    PortCounters;

    /// What a receive queue counts.
    RECEIVE_COUNTERS, receive_values: {
        received_packets, Total, "packets", "Packets that the port handed to a worker.";
        received_bytes, Total, "bytes", "Bytes of these packets, without FCS.";
        missed, Total, "packets", "Packets lost because there was no free buffer and the source could not wait.";
        truncated, Total, "packets", "Packets passed over because the capture holds less than the whole frame.";
        empty, Total, "packets", "Packets passed over because the frame has no bytes.";
        oversized, Total, "packets", "Packets passed over because the frame is longer than a buffer takes.";
        bad_checksum, Total, "packets", "Packets passed over because the device found a wrong IP, TCP or UDP checksum.";
        faulty, Total, "packets", "Packets that the device itself found faulty, and did not deliver.";
        skipped_link_type, Total, "packets", "Packets passed over because their capture interface is not Ethernet.";
        left_to_kernel, Total, "packets", "Packets that stayed with the kernel, as the port is configured.";
    }

    /// What a transmit queue counts.
    TRANSMIT_COUNTERS, transmit_values: {
        sent_packets, Total, "packets", "Packets that the port accepted for sending.";
        sent_bytes, Total, "bytes", "Bytes of these packets, without FCS.";
        refused, Total, "packets", "Packets lost because the port did not accept them.";
        over_mtu, Total, "packets", "Of these, packets longer than the link takes.";
        unsent, Total, "packets", "Packets that the port accepted and the device could not send.";
    }
}

impl PortCounters {
    /// All counters with their values, receive before transmit.
    pub fn iter(&self) -> impl Iterator<Item = (&'static CounterSpec, u64)> {
        let specs = RECEIVE_COUNTERS.iter().chain(TRANSMIT_COUNTERS);
        specs.zip(self.receive_values().into_iter().chain(self.transmit_values()))
    }

    /// How many counters there are.
    pub const COUNT: usize = RECEIVE_COUNTERS.len() + TRANSMIT_COUNTERS.len();

    /// The counters with these values, in the order of [`PortCounters::iter`].
    pub fn of_values(values: [u64; Self::COUNT]) -> Self {
        let mut counters = Self::default();
        counters.set_values(&values);
        counters
    }

    /// Packets that the source held and that never entered, for whatever reason.
    pub fn passed_over(&self) -> u64 {
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
