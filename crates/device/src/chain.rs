//! The part of a chain that a device follows by itself: packets go from function to function there and come back once.
//!
//! The engine says which verdicts lead from a function of the device to another; kernels look them up (`gw_chain` in
//! `kernels/abi/abi.h`), and write down which way each packet has gone.

use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Chain, ChainStage, HOP_NONE};

use crate::Program;

/// Where verdicts lead on a device, and what becomes of packets that come back from it.
///
/// Functions that are led to run with parameter 0 and leave frames where they are: they have no host half, and
/// [`Program::writes_bytes`] of them is bounded.
///
/// The table on the device may have more rows than a chain: those of another chain, which takes the place of this one
/// while packets are on the device ([`Device::update_chain`](crate::Device::update_chain)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChain {
    /// Rows of the table, and of those the ones that are this chain's; it uses the first `rows` of them.
    table_rows: usize,
    own_rows: Range<usize>,
    rows: usize,
    verdicts: usize,
    /// By instance, row and verdict.
    hops: Vec<u32>,
    /// By instance: nobody looks at packets any more that come back from it, or from functions that it leads to.
    unneeded: Vec<bool>,
    /// The device has the table even where nothing leads on: another chain may.
    stands_by: bool,
}

/// What the functions of a bin need of its packets, all that the device leads on to taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// See [`Program::reads_bytes`].
    pub(crate) reads_bytes: u16,
    /// See [`Program::writes_bytes`]; 0 also where nobody looks at what is written.
    pub(crate) writes_bytes: u16,
    /// See [`Program::headroom_bytes`].
    pub(crate) headroom_bytes: u16,
    /// See [`Program::tailroom_bytes`].
    pub(crate) tailroom_bytes: u16,
}

impl Needs {
    /// Of a device that brings nothing anywhere.
    pub(crate) const ALL: Self =
        Self { reads_bytes: u16::MAX, writes_bytes: u16::MAX, headroom_bytes: u16::MAX, tailroom_bytes: u16::MAX };

    /// Whether a device that does for `others` does for these.
    fn are_within(&self, others: &Self) -> bool {
        self.reads_bytes <= others.reads_bytes
            && self.writes_bytes <= others.writes_bytes
            && self.headroom_bytes <= others.headroom_bytes
            && self.tailroom_bytes <= others.tailroom_bytes
    }
}

impl DeviceChain {
    /// For so many configured functions, classes of packets and verdicts: nothing leads on, and everything is needed.
    pub fn new(instances: usize, rows: usize, verdicts: usize) -> Self {
        assert!(rows <= 256 && verdicts < 255 && instances <= 1 << 14, "{instances} functions, {rows} rows");
        let hops = vec![HOP_NONE; instances * rows * verdicts];
        let unneeded = vec![false; instances];
        Self { table_rows: rows, own_rows: 0..rows, rows, verdicts, hops, unneeded, stands_by: false }
    }

    /// The chain in a part of a larger table: `own_rows` of `table_rows`. [`Bin::row`](godwit_abi::Bin::row) is a row of the
    /// table.
    ///
    /// # Panics
    /// When the chain has more rows than that, or the table more than 256.
    #[must_use]
    pub fn in_table(self, own_rows: Range<usize>, table_rows: usize) -> Self {
        assert!(self.rows <= own_rows.len() && own_rows.end <= table_rows && table_rows <= 256);
        Self { own_rows, table_rows, ..self }
    }

    /// The device is to have the table even where nothing leads on, for chains that come later.
    pub fn reserve_table(&mut self) {
        self.stands_by = true;
    }

    /// Packets of the `row`th of this chain's rows of which `from` says `verdict` go on to `to` on the device. `rank` of `to` is smaller than that of
    /// every function behind it.
    ///
    /// # Panics
    /// When there is no such function, row or verdict, or the rank is 0 or more than 65534.
    pub fn connect(&mut self, from: usize, row: usize, verdict: usize, to: usize, rank: u16) {
        assert!(rank > 0 && rank < u16::MAX && row < self.rows && verdict < self.verdicts && to < self.unneeded.len());
        self.hops[(from * self.rows + row) * self.verdicts + verdict] = u32::from(rank) << 16 | to as u32;
    }

    /// Nobody looks at packets any more that come back from `instance`, or from functions that it leads to: their frames
    /// may stay on the device.
    pub fn skip_copy_back(&mut self, instance: usize) {
        self.unneeded[instance] = true;
    }

    /// Where the device leads packets of a row of the table of which `from` says `verdict`.
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

    /// Whether the device leads any packet from this function to another.
    pub fn continues(&self, from: usize) -> bool {
        self.row_hops(from).any(|hop| hop != HOP_NONE)
    }

    /// Whether the device leads any packet on.
    pub fn continues_any(&self) -> bool {
        self.hops.iter().any(|&hop| hop != HOP_NONE)
    }

    /// Whether a device is to know it: it leads packets on, or chains that come later may, or packets need not come back.
    pub fn is_needed(&self) -> bool {
        self.has_table() || self.unneeded.contains(&true)
    }

    /// Whether the device has a table for it.
    pub(crate) fn has_table(&self) -> bool {
        self.stands_by || self.continues_any()
    }

    /// Whether packets of this function go different ways by their row.
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

    /// The function itself, and those that it leads to.
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

    /// What table images begin with on a device that follows this chain; see `gw_chain`.
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

    /// What of the image is this chain's, rows that it does not use included: bytes from its start, and what is there. Nothing
    /// else of the image is touched.
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

    /// The chain as far as a device can follow it that brings there and back what `reserved` says, for each program: packets
    /// of functions that would lead further come back in between.
    ///
    /// # Errors
    /// The instance whose own packets do not all come back.
    pub(crate) fn within(mut self, reserved: &[Needs], programs: &[Arc<dyn Program>]) -> Result<Self, usize> {
        let rank_of = |chain: &Self, instance: usize| {
            let to_it = chain.hops.iter().filter(|&&hop| hop != HOP_NONE && hop as usize & 0xffff == instance);
            to_it.map(|&hop| hop >> 16).max().unwrap_or(0)
        };
        loop {
            let needs = Self::needs(Some(&self), programs);
            let beyond = (0..programs.len()).filter(|&instance| !needs[instance].are_within(&reserved[instance]));
            // Those behind come first: then the ones before them may do with what is left.
            let Some(instance) = beyond.max_by_key(|&instance| rank_of(&self, instance)) else { return Ok(self) };
            if !self.continues(instance) {
                return Err(instance);
            }
            let of_instance = self.rows * self.verdicts;
            self.hops[instance * of_instance..][..of_instance].fill(HOP_NONE);
        }
    }

    /// For each program.
    pub(crate) fn needs(chain: Option<&Self>, programs: &[Arc<dyn Program>]) -> Vec<Needs> {
        let of = |program: &dyn Program| Needs {
            reads_bytes: program.reads_bytes(),
            writes_bytes: program.writes_bytes(),
            headroom_bytes: program.headroom_bytes(),
            tailroom_bytes: program.tailroom_bytes(),
        };
        let all = |head: usize| {
            let mut needs = of(&*programs[head]);
            let Some(chain) = chain else { return needs };
            for function in chain.reached(head).into_iter().skip(1) {
                let other = of(&*programs[function]);
                assert!(other.writes_bytes != u16::MAX, "a function that moves frames is led to on a device");
                needs.reads_bytes = needs.reads_bytes.max(other.reads_bytes);
                needs.writes_bytes = needs.writes_bytes.max(other.writes_bytes);
                // Where the frame begins for it is not known before the first function has moved it.
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
