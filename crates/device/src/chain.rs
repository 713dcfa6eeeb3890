//! The part of the function chain that a device runs without returning packets to the host.
//!
//! Each function returns a verdict for a packet. The verdict selects the packet's next function on
//! the same device. The device also records the functions that each packet passes.

use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Chain, ChainStage, HOP_NONE};

use crate::program::{AccessNeeds, Program};

/// Connections between functions on a device, and the functions whose packets need not be copied
/// back.
///
/// A connected function must work without the part that runs on the CPU, because its kernel always
/// gets parameter 0. It must not move frames, so its [`Program::writes_bytes`] is not `u16::MAX`.
///
/// The table on the device may have more rows than this chain. The other rows belong to a second
/// chain, which replaces this one while packets are in flight
/// ([`Device::update_chain`](crate::Device::update_chain)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChain {
    /// Number of rows in the device's table of next functions. Each packet class has one row.
    table_rows: usize,
    /// Table rows that belong to this chain.
    own_rows: Range<usize>,
    /// Number of rows in use, from the start of `own_rows`.
    rows: usize,
    verdicts: usize,
    /// Next function for each combination of function, packet class and verdict. `HOP_NONE` means
    /// that the packet leaves the device.
    hops: Vec<u32>,
    /// Marks functions whose packets the host does not need.
    unneeded: Vec<bool>,
    /// Whether the device reserves a table for a later chain.
    reserves_table: bool,
}

impl DeviceChain {
    /// Creates a chain without connections between functions. The device copies all packets back to
    /// the host.
    pub fn new(instances: usize, rows: usize, verdicts: usize) -> Self {
        assert!(rows <= 256 && verdicts < 255 && instances <= 1 << 14, "{instances} functions, {rows} rows");
        let hops = vec![HOP_NONE; instances * rows * verdicts];
        let unneeded = vec![false; instances];
        Self { table_rows: rows, own_rows: 0..rows, rows, verdicts, hops, unneeded, reserves_table: false }
    }

    /// Places the chain in the rows `own_rows` of the device's table of next functions. The table
    /// has `table_rows` rows. [`Bin::row`](godwit_abi::Bin::row) is an index into all rows.
    ///
    /// # Panics
    /// Panics if the chain does not fit into `own_rows`, or if the table has more than 256 rows.
    #[must_use]
    pub fn in_table(self, own_rows: Range<usize>, table_rows: usize) -> Self {
        assert!(self.rows <= own_rows.len() && own_rows.end <= table_rows && table_rows <= 256);
        Self { own_rows, table_rows, ..self }
    }

    /// Makes the device reserve memory for a later chain, even if this chain connects no functions.
    pub fn reserve_table(&mut self) {
        self.reserves_table = true;
    }

    /// Connects the function `from` to the function `to`, for the packet class `row` and the given
    /// verdict. Functions run in ascending order of their ranks. The rank of `to` is `rank`, and
    /// later functions must have higher ranks.
    ///
    /// # Panics
    /// Panics if the function, row or verdict does not exist, or if the rank is 0 or greater than
    /// 65534.
    pub fn connect(&mut self, from: usize, row: usize, verdict: usize, to: usize, rank: u16) {
        assert!(rank > 0 && rank < u16::MAX && row < self.rows && verdict < self.verdicts && to < self.unneeded.len());
        self.hops[(from * self.rows + row) * self.verdicts + verdict] = u32::from(rank) << 16 | to as u32;
    }

    /// Disables the copy back to the host for packets that are submitted to the function
    /// `instance`. This includes packets that continue with later functions.
    pub fn skip_copy_back(&mut self, instance: usize) {
        self.unneeded[instance] = true;
    }

    /// Returns the function that follows `from` after `verdict`, or `None` if the packet leaves the
    /// device. `row` is the table row of the packet class.
    #[inline]
    pub fn next(&self, from: usize, row: u8, verdict: u8) -> Option<usize> {
        let (row, verdict) = (usize::from(row).wrapping_sub(self.own_rows.start), usize::from(verdict));
        if row >= self.rows || verdict >= self.verdicts {
            return None;
        }
        match self.hops[(from * self.rows + row) * self.verdicts + verdict] {
            HOP_NONE => None,
            hop => Some(hop as usize & 0xffff),
        }
    }

    /// Returns whether any function follows `from` on the device.
    pub fn continues(&self, from: usize) -> bool {
        self.row_hops(from).any(|hop| hop != HOP_NONE)
    }

    /// Returns whether the chain has any connection.
    pub fn continues_any(&self) -> bool {
        self.hops.iter().any(|&hop| hop != HOP_NONE)
    }

    /// Returns whether the device must receive this chain.
    pub fn is_needed(&self) -> bool {
        self.has_table() || self.unneeded.contains(&true)
    }

    /// Returns whether this chain needs a table on the device.
    pub(crate) fn has_table(&self) -> bool {
        self.reserves_table || self.continues_any()
    }

    /// Returns whether the packet class affects the path after the function `from`.
    pub fn distinguishes_rows(&self, from: usize) -> bool {
        let rows = self.reached(from).into_iter().flat_map(|function| {
            let start = function * self.rows * self.verdicts;
            let row = move |row: usize| &self.hops[start + row * self.verdicts..][..self.verdicts];
            (1..self.rows).map(move |other| row(other) != row(0))
        });
        rows.into_iter().any(|differs| differs)
    }

    fn row_hops(&self, from: usize) -> impl Iterator<Item = u32> + '_ {
        let of_instance = self.rows * self.verdicts;
        self.hops[from * of_instance..][..of_instance].iter().copied()
    }

    /// Returns `from` and all functions that may follow it on the device.
    fn reached(&self, from: usize) -> Vec<usize> {
        let mut reached = vec![from];
        let mut at = 0;
        while let Some(&function) = reached.get(at) {
            for hop in self.row_hops(function).filter(|&hop| hop != HOP_NONE) {
                let to = hop as usize & 0xffff;
                if !reached.contains(&to) {
                    reached.push(to);
                }
            }
            at += 1;
        }
        reached
    }

    /// Returns the bytes that precede the tables of all functions in device memory: a header, one
    /// entry per function, and the connections between functions.
    pub(crate) fn image(chain: Option<&Self>, programs: &[Arc<dyn Program>]) -> Vec<u8> {
        let chain = chain.filter(|chain| chain.has_table());
        let header = Chain {
            rows: chain.map_or(0, |chain| chain.table_rows) as u32,
            verdicts: chain.map_or(0, |chain| chain.verdicts) as u32,
            instances: programs.len() as u32,
            reserved: [0; 13],
        };
        let stop = |program: &Arc<dyn Program>| ChainStage {
            kernel: program.kernel().into(),
            variant: program.variant().into(),
        };
        let stops = programs.iter().map(stop).flat_map(|ChainStage { kernel, variant }| [kernel, variant]);
        let words = [header.rows, header.verdicts, header.instances].into_iter().chain(header.reserved).chain(stops);
        let mut image: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        if let Some(chain) = chain {
            let hops_bytes = programs.len() * chain.table_rows * chain.verdicts * size_of::<u32>();
            image.resize(image.len() + hops_bytes, u8::MAX);
            for (at, bytes) in chain.parts() {
                image[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        image
    }

    /// Returns this chain's parts of the device table. Each part consists of an offset and bytes.
    pub(crate) fn parts(&self) -> Vec<(usize, Vec<u8>)> {
        let instances = self.unneeded.len();
        let hops_at = size_of::<Chain>() + instances * size_of::<ChainStage>();
        let part = |instance: usize| {
            let first = (instance * self.table_rows + self.own_rows.start) * self.verdicts;
            let used = self.row_hops(instance);
            let unused = std::iter::repeat_n(HOP_NONE, (self.own_rows.len() - self.rows) * self.verdicts);
            (hops_at + first * size_of::<u32>(), used.chain(unused).flat_map(u32::to_le_bytes).collect())
        };
        (0..instances).map(part).collect()
    }

    /// Removes connections between functions until each function needs at most the bytes in
    /// `reserved`. A function also needs the bytes of its successors on the device. Packets return
    /// to the host where a connection was removed.
    ///
    /// # Errors
    /// Returns the index of a function that needs more bytes than `reserved` allows, even without
    /// successors.
    pub(crate) fn within(mut self, reserved: &[AccessNeeds], programs: &[Arc<dyn Program>]) -> Result<Self, usize> {
        let rank_of = |chain: &Self, instance: usize| {
            let to_it = chain.hops.iter().filter(|&&hop| hop != HOP_NONE && hop as usize & 0xffff == instance);
            to_it.map(|&hop| hop >> 16).max().unwrap_or(0)
        };
        loop {
            let needs = Self::needs(Some(&self), programs);
            let beyond = (0..programs.len()).filter(|&instance| !needs[instance].are_within(&reserved[instance]));
            // The last functions of the chain are disconnected first. Earlier functions may then
            // need fewer bytes.
            let Some(instance) = beyond.max_by_key(|&instance| rank_of(&self, instance)) else { return Ok(self) };
            if !self.continues(instance) {
                return Err(instance);
            }
            let of_instance = self.rows * self.verdicts;
            self.hops[instance * of_instance..][..of_instance].fill(HOP_NONE);
        }
    }

    /// Returns which bytes of a packet each function and its successors on the device access.
    pub(crate) fn needs(chain: Option<&Self>, programs: &[Arc<dyn Program>]) -> Vec<AccessNeeds> {
        let all = |head: usize| {
            let mut needs = AccessNeeds::of(&*programs[head]);
            let Some(chain) = chain else { return needs };
            for function in chain.reached(head).into_iter().skip(1) {
                let other = AccessNeeds::of(&*programs[function]);
                assert!(other.writes_bytes != u16::MAX, "a connected function must not move frames");
                needs.reads_bytes = needs.reads_bytes.max(other.reads_bytes);
                needs.writes_bytes = needs.writes_bytes.max(other.writes_bytes);
                // If a function may move the start of the frame, the offsets of later reads are
                // unknown.
                if needs.writes_bytes == u16::MAX {
                    needs.reads_bytes = u16::MAX;
                }
            }
            if chain.unneeded[head] {
                needs.writes_bytes = 0;
            }
            needs
        };
        (0..programs.len()).map(all).collect()
    }
}
