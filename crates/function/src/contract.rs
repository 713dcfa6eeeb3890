//! What a function says of itself, as data.

/// The contract of a function: what it reads and writes, what it says, why it drops.
///
/// The contract block at the head of the function's kernel says the same in words; the route decider,
/// the counters and the documentation come from here.
#[derive(Debug)]
pub struct Contract {
    /// Name of the function: of its folders, its vectors, its bench, its page, the prefix of its counters.
    pub kind: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Number of its kernel in `kernels/functions.h`.
    pub kernel: u8,
    /// What it can say of a packet; `Outcome::verdict` is an index into this.
    pub verdicts: &'static [Verdict],
    /// Why it can drop a packet; `Outcome::reason` is an index into this.
    pub drops: &'static [Drop],
    /// Its variants by name; the variant number is an index into this.
    pub variants: &'static [&'static str],
    /// Whether its host half must see packets in order of arrival (it hands out sequence numbers).
    pub in_order: bool,
    /// How far into the frame it may read, bytes: what a device with memory of its own needs of the packet.
    /// [`Contract::ALL`]: to the end.
    pub reads_bytes: u16,
    /// How far from the first byte of the frame it may write, bytes: what such a device has to bring back. A function
    /// that moves that first byte says [`Contract::ALL`]: anywhere in the buffer; 0: it writes nothing. At most
    /// `reads_bytes`: such a device has no more of the frame than that, and would bring back what it does not have.
    pub writes_bytes: u16,
    /// Most bytes it prepends to a frame.
    pub headroom_bytes: u16,
    /// Most bytes it appends to a frame.
    pub tailroom_bytes: u16,
    /// How many of these it does without in a frame whose length is the index modulo 16, whatever its L2 header: a
    /// function that pads to blocks needs all of them for some lengths only.
    pub tailroom_saved: [u8; 16],
    /// What it counts besides verdicts and drops; [`Function::counts`](crate::Function::counts) gives the values, in this order.
    pub counters: &'static [Counter],
    /// The standard or paper it implements.
    pub spec: &'static str,
}

/// One thing that a function can say of a packet.
#[derive(Debug)]
pub struct Verdict {
    /// Its name in chains.
    pub name: &'static str,
    /// When it is said.
    pub sentence: &'static str,
    /// Whether the function chose the egress port (`Outcome::port`).
    pub chooses_port: bool,
}

/// One reason to drop a packet.
#[derive(Debug)]
pub struct Drop {
    /// Its name in counters: `<kind>_dropped_<name>`.
    pub name: &'static str,
    /// When it happens.
    pub sentence: &'static str,
}

/// One thing that a function counts, over all workers.
#[derive(Debug)]
pub struct Counter {
    /// Its name in counters: `<kind>_<name>`.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What it means, for the operator.
    pub sentence: &'static str,
}

impl Contract {
    /// The whole frame, however long it is.
    pub const ALL: u16 = u16::MAX;

    /// Whether frames may leave it longer or shorter than they came.
    pub fn changes_length(&self) -> bool {
        self.headroom_bytes > 0 || self.tailroom_bytes > 0 || self.writes_bytes == Self::ALL
    }

    /// The number of the verdict called `name`.
    pub fn verdict(&self, name: &str) -> Option<u8> {
        let index = self.verdicts.iter().position(|verdict| verdict.name == name)?;
        u8::try_from(index).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::KINDS;

    #[test]
    fn nothing_is_written_that_is_not_read() {
        for contract in KINDS.iter().map(|kind| kind.contract) {
            assert!(contract.writes_bytes <= contract.reads_bytes, "{}", contract.kind);
        }
    }

    #[test]
    fn no_more_tailroom_is_saved_than_there_is() {
        for contract in KINDS.iter().map(|kind| kind.contract) {
            let most = contract.tailroom_saved.into_iter().map(u16::from).max();
            assert!(most <= Some(contract.tailroom_bytes), "{}", contract.kind);
        }
    }
}
