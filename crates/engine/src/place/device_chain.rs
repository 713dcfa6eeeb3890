//! Derives the device chain, which is the part of the function chain that a device executes without
//! the CPU. `path/chained.rs` completes the packets that passed it.
//!
//! A packet can continue to the next function on the device if both functions are placed there. The
//! next function must need nothing from the CPU. It has no part that runs on the CPU, does not
//! require arrival order, and does not write the whole buffer. The first function must accept that
//! its part on the CPU sees the packet only after the device returns it. All other packets return
//! to the worker after each function.

use std::ops::Range;

use godwit_chain::{Chain, Next};
use godwit_device::DeviceChain;
use godwit_function::Contract;
use godwit_sched::Stream;

use crate::config::FunctionConfig;

/// Layout of the table in which a device stores the next function for each packet class and
/// verdict. If possible, the table has room for two chains. A new chain can then be written while
/// the device still uses the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainRows {
    per_chain: usize,
    /// Number of function chains for which the table has room.
    chains: usize,
}

impl ChainRows {
    /// Maximum number of rows in the device's next-function table. Each batch of packets stores its
    /// row number in 8 bits.
    const MAX: usize = 256;
    /// Minimum number of rows per function chain in the device's next-function table. A later chain
    /// may have more packet classes than the first one.
    const MIN: usize = 16;

    /// Divides the rows of the device's next-function table between function chains. `classes` is
    /// the number of packet classes at the start of the engine.
    pub(crate) fn new(classes: usize) -> Self {
        match classes.next_power_of_two().max(Self::MIN) {
            per_chain if 2 * per_chain <= Self::MAX => Self { per_chain, chains: 2 },
            _ => Self { per_chain: classes, chains: 1 },
        }
    }

    /// Returns the rows of the device's next-function table that belong to the chain with this
    /// `number`.
    pub(crate) fn of_chain(&self, number: u64) -> Range<usize> {
        let first = (number % self.chains as u64) as usize * self.per_chain;
        first..first + self.per_chain
    }

    /// Returns whether the function chain can change at run time. The device's next-function table
    /// must then have room for a second chain.
    pub(crate) fn can_change(&self) -> bool {
        self.chains > 1
    }

    fn table(&self) -> usize {
        self.chains * self.per_chain
    }
}

/// Properties of the CPU part of a function. They determine whether a device may pass packets on to
/// the next function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostHalfInfo {
    exists: bool,
    may_continue_on_device: bool,
}

impl HostHalfInfo {
    pub(crate) fn new(exists: bool, contract: &Contract) -> Self {
        Self { exists, may_continue_on_device: !exists || contract.host.continues_on_device }
    }
}

/// Engine properties that determine which functions of a chain a device can execute in sequence.
/// They stay the same when the chain changes.
#[derive(Clone, Copy)]
pub(crate) struct ChainContext<'a> {
    pub(crate) functions: &'a [FunctionConfig],
    /// Devices on which each function may run.
    pub(crate) placement: &'a [Box<[usize]>],
    pub(crate) host_half_infos: &'a [HostHalfInfo],
    pub(crate) rows: ChainRows,
}

/// Returns the part of a function chain that `device` can execute. The chain's `number` determines
/// its rows in the device's next-function table.
pub(crate) fn device_chain(chain: &Chain, number: u64, context: ChainContext<'_>, device: usize) -> DeviceChain {
    let ChainContext { functions, placement, host_half_infos, rows } = context;
    let (decider, classes) = (chain.decider(), chain.classes().len());
    let contract = |function: usize| functions[function].function.contract();
    let verdicts = (0..functions.len()).map(|function| contract(function).verdicts.len()).max().unwrap_or(0);
    let rows_of_chain = rows.of_chain(number);
    if classes > rows_of_chain.len() {
        // The chain has more packet classes than the next-function table has rows. The device
        // therefore returns each packet after one function.
        return DeviceChain::new(functions.len(), 0, verdicts).in_table(rows_of_chain, rows.table());
    }
    let mut result = DeviceChain::new(functions.len(), classes, verdicts).in_table(rows_of_chain, rows.table());
    let is_placed_here = |function: &usize| placement[*function].contains(&device);
    let can_continue_to = |function: usize| {
        let contract = contract(function);
        is_placed_here(&function)
            && !host_half_infos[function].exists
            && !contract.in_order
            && contract.writes_bytes != Contract::ALL
    };
    let is_target = |function: usize| can_continue_to(function) && (1..u16::MAX).contains(&chain.ranks()[function]);
    // The casts below cannot truncate, because the function chain limits these numbers.
    let verdicts_of = |function: usize| {
        let verdicts = contract(function).verdicts.len();
        (0..classes).flat_map(move |class| (0..verdicts).map(move |verdict| (class, verdict)))
    };
    let may_continue_on_device = |function: &usize| host_half_infos[*function].may_continue_on_device;
    for from in (0..functions.len()).filter(is_placed_here).filter(may_continue_on_device) {
        for (class, verdict) in verdicts_of(from) {
            if let Next::Function(to) = decider.next(from as u16, class as u8, verdict as u8)
                && is_target(usize::from(to))
            {
                result.connect(from, class, verdict, to.into(), chain.ranks()[usize::from(to)]);
            }
        }
    }
    // The reverse order of execution ensures that `needed` is known for all successors.
    let mut order: Vec<usize> = (0..functions.len()).filter(is_placed_here).collect();
    order.sort_by_key(|&function| std::cmp::Reverse(chain.ranks()[function]));
    let mut needed = vec![false; functions.len()];
    for from in order {
        let row = |class: usize| (rows.of_chain(number).start + class) as u8;
        let is_needed = |(class, verdict): (usize, usize)| match result.next(from, row(class), verdict as u8) {
            Some(to) => needed[to],
            None => !matches!(decider.next(from as u16, class as u8, verdict as u8), Next::Drop | Next::None),
        };
        // A function outside the new chain can still receive packets of the old chain.
        needed[from] = !chain.is_reached(from) || verdicts_of(from).any(is_needed);
        if !needed[from] {
            result.skip_copy_back(from);
        }
    }
    let waits = |function: usize| can_continue_to(function) && !chain.is_reached(function);
    if (0..functions.len()).any(waits) && (0..functions.len()).filter(is_placed_here).count() > 1 {
        result.reserve_table();
    }
    result
}

/// Inputs of the packers, which put packets into batches for a device. Each function normally has
/// one input. It has one input per packet class if the class determines the next function on the
/// device.
pub(crate) struct Streams {
    pub(crate) streams: Vec<Stream>,
    /// For each function, the packer input of each packet class. An element is `None` if all
    /// classes share one input.
    of_class: Vec<Option<Box<[u16]>>>,
}

impl Streams {
    /// Creates the inputs of the packers. `first_row` is the row of packet class 0 in the device's
    /// next-function table. `depends_on_class` returns whether the class of a packet determines its
    /// next function on a device.
    pub(crate) fn new(
        kernels: &[u8],
        classes: usize,
        first_row: usize,
        depends_on_class: impl Fn(usize) -> bool,
    ) -> Self {
        let stream = |(instance, &kernel): (u16, &u8)| Stream { instance, kernel, row: first_row as u8 };
        let mut streams: Vec<Stream> = (0..).zip(kernels).map(stream).collect();
        let of_class = (0..kernels.len()).map(|function| {
            depends_on_class(function).then(|| {
                let mut stream_of = |class: usize| {
                    if class == 0 {
                        return function as u16;
                    }
                    streams.push(Stream { row: (first_row + class) as u8, ..streams[function] });
                    (streams.len() - 1) as u16
                };
                (0..classes).map(&mut stream_of).collect()
            })
        });
        let of_class = of_class.collect();
        Self { streams, of_class }
    }

    /// Returns the packer input of each packet class for `function`. A batch contains packets of
    /// one input only. Returns `None` if all classes share one input.
    pub(crate) fn of_class(&self, function: usize) -> Option<Box<[u16]>> {
        self.of_class[function].clone()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::path::testing::{FIRST, SECOND, TWO_FUNCTIONS};

    const GPU: usize = 1;
    const NO_HOST_HALF: HostHalfInfo = HostHalfInfo { exists: false, may_continue_on_device: true };

    fn two_in_a_row() -> Config {
        let text =
            TWO_FUNCTIONS.replacen("from = \"first\"\n    to = \"left\"", "from = \"first\"\n    to = \"second\"", 1);
        Config::parse(&text, "test", Path::new(".")).expect("the configuration is valid")
    }

    fn chain_of(config: &Config, number: u64, devices: [usize; 2], host_halves: [HostHalfInfo; 2]) -> DeviceChain {
        let placement: Vec<Box<[usize]>> = devices.iter().map(|&device| [device].into()).collect();
        let context = ChainContext {
            functions: &config.functions,
            placement: &placement,
            host_half_infos: &host_halves,
            rows: ChainRows::new(config.chain.classes().len()),
        };
        device_chain(&config.chain, number, context, GPU)
    }

    fn next(chain: &DeviceChain, number: u64) -> Option<usize> {
        let row = ChainRows::new(2).of_chain(number).start as u8;
        chain.next(FIRST, row, 0)
    }

    #[test]
    fn packets_continue_if_both_functions_are_on_the_device() {
        let config = two_in_a_row();
        let halves = [NO_HOST_HALF; 2];
        assert_eq!(next(&chain_of(&config, 0, [GPU, GPU], halves), 0), Some(SECOND));
        assert_eq!(next(&chain_of(&config, 0, [GPU, 0], halves), 0), None);
        assert_eq!(next(&chain_of(&config, 0, [0, GPU], halves), 0), None);
    }

    #[test]
    fn packets_return_before_a_host_half() {
        let config = two_in_a_row();
        let with = |may_continue_on_device| HostHalfInfo { exists: true, may_continue_on_device };
        let next_of = |halves| next(&chain_of(&config, 0, [GPU, GPU], halves), 0);
        assert_eq!(next_of([NO_HOST_HALF, with(true)]), None);
        assert_eq!(next_of([with(true), NO_HOST_HALF]), Some(SECOND));
        assert_eq!(next_of([with(false), NO_HOST_HALF]), None);
    }

    #[test]
    fn consecutive_chains_have_separate_rows() {
        let rows = ChainRows::new(2);
        assert!(rows.can_change() && rows.of_chain(0).end <= rows.of_chain(1).start);
        assert_eq!(rows.of_chain(0), rows.of_chain(2));
        assert!(!ChainRows::new(200).can_change());
        let chain = chain_of(&two_in_a_row(), 1, [GPU, GPU], [NO_HOST_HALF; 2]);
        assert_eq!((next(&chain, 1), next(&chain, 0)), (Some(SECOND), None));
    }

    #[test]
    fn classes_with_different_paths_have_separate_streams() {
        let streams = Streams::new(&[7, 8], 3, 16, |function| function == SECOND);
        assert_eq!(streams.of_class(FIRST), None);
        assert_eq!(streams.of_class(SECOND).as_deref(), Some(&[SECOND as u16, 2, 3][..]));
        let fields: Vec<_> =
            streams.streams.iter().map(|stream| (stream.instance, stream.kernel, stream.row)).collect();
        assert_eq!(fields, [(0, 7, 16), (1, 8, 16), (1, 8, 17), (1, 8, 18)]);
    }
}
