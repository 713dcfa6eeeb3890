//! Fills bins; `close` closes chunks.

mod close;

use std::borrow::Borrow;
use std::collections::VecDeque;

use godwit_abi::{BUFFER_UNIT_BYTES, Bin, Descriptor};
use godwit_packet::{Extents, extents};

use crate::chunk::Chunk;
use crate::config::{Error, PackerConfig};
use crate::cost::CostModel;
use crate::label::{Label, Places};
use crate::parameters::Parameters;
use crate::parts::Parts;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// It lies in a bin.
    Binned,
    /// It lies in a bin, and now no other packet fits into the chunk.
    ChunkFull,
    /// It waits for a bin of the next chunk.
    Leftover,
    /// It was not taken, for the leftover queue is full: take a chunk first, then insert it again.
    Refused,
}

/// Sorts packets into bins and bins into chunks (PIPSEA, sections 3.2 and 3.3).
///
/// One per worker and device. Everything is allocated by [`Packer::new`].
/// Times are the caller's, in nanoseconds from wherever it likes, and must not go backwards.
#[derive(Debug)]
pub struct Packer {
    // What every insert touches comes first.
    places: Places,
    /// Of each label: 1 + the bin that takes its packets, or 0.
    table: Box<[u16]>,
    /// Of each bin, at 1 + its number; what lies at 0 has no room, so that a label without a bin needs no test of its own.
    cursors: Box<[Cursor]>,
    /// The set of bins that fills. Its `bins`, `bin_bytes`, `packets` and `closed_ns` are written when it closes.
    filling: Chunk,
    /// How many more packets the filling chunk takes, were they all of the right labels.
    room: u32,
    /// `room`, plus the packets in it.
    budget: u32,
    /// Units of buffers until the filling chunk is full. Wide enough to count all of a chunk without a limit.
    units: u64,

    /// Of each open bin, what the cursor need not know.
    labels: Box<[Label]>,
    /// Bins in use: 0..open.
    open: u32,
    /// Where variants change within bins.
    parts: Parts,
    leftovers: VecDeque<Waiting>,
    free: Vec<Chunk>,
    chunks: usize,
    /// For sorting.
    estimates: Vec<(f64, Bin)>,
    costs: CostModel,
    streams: Box<[Stream]>,
    config: PackerConfig,
}

/// Packets that are never mixed with others in a bin: those of a configured function, or, where a device follows the chain,
/// those of them with one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Which configured function.
    pub instance: u16,
    /// Its number in `kernels/functions.h`.
    pub kernel: u8,
    /// The row of the function in the chain on the device ([`Bin::row`]).
    pub row: u8,
}

/// Where the next packet of an open bin goes.
///
/// Every field has 32 bits: of two neighbours of 16 and 8 bits the compiler makes one load of 32, which has to
/// wait until the store of the packet before has left the store buffer (5.0 against 3.7 ns, `insert_cost`).
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    next: u32,
    end: u32,
    /// Longest frame so far, bytes.
    longest: u32,
    /// Of the last packet.
    variant: u32,
}

/// A packet in the leftover queue.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    arrived_ns: u64,
    parameter: u64,
    descriptor: Descriptor,
    instance: u16,
    variant: u8,
}

impl Packer {
    /// A packer for one function per entry of `kernels` (its number in `kernels/functions.h`), with `chunks`
    /// sets of bins: one fills while the others are on the device. PIPSEA has two, active and wait.
    ///
    /// # Errors
    /// A key of the configuration out of range, no function, fewer than two sets of bins, or length classes
    /// too fine for that many functions.
    pub fn new(config: PackerConfig, kernels: &[u8], chunks: usize) -> Result<Self, Error> {
        let stream = |(instance, &kernel): (u16, &u8)| Stream { instance, kernel, row: 0 };
        Self::with_streams(config, &(0..).zip(kernels).map(stream).collect::<Vec<_>>(), chunks)
    }

    /// All its chunks that are not taken: the one that fills, and those that are free.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::once(&self.filling).chain(&self.free)
    }

    /// The same for given streams: what is said of an `instance` when packets are inserted is the number of a stream.
    ///
    /// # Errors
    /// As [`Packer::new`].
    pub fn with_streams(config: PackerConfig, streams: &[Stream], chunks: usize) -> Result<Self, Error> {
        config.validate()?;
        let Some(last) = streams.iter().map(|stream| usize::from(stream.instance)).max() else {
            return Err(Error::NoFunctions);
        };
        if chunks < 2 {
            return Err(Error::TooFewChunks { chunks });
        }
        let places = Places::new(&config, streams.len())?;
        let bins = config.bins as usize;
        let entries = config.entries_max();
        let chunk = || Chunk::new(entries, bins * config.bin_packets as usize);
        let no_label = Label { instance: 0, variant: 0, length_class: 0 };
        let mut packer = Self {
            table: vec![0; places.count()].into(),
            places,
            cursors: vec![Cursor::default(); bins + 1].into(),
            filling: chunk(),
            room: 0,
            budget: 0,
            units: 0,
            labels: vec![no_label; bins].into(),
            open: 0,
            parts: Parts::new(&config),
            leftovers: VecDeque::with_capacity(config.leftover_packets as usize),
            free: (1..chunks).map(|_| chunk()).collect(),
            chunks,
            estimates: Vec::with_capacity(entries),
            costs: CostModel::new(last + 1, config.bin_packets),
            streams: streams.into(),
            config,
        };
        packer.reopen();
        Ok(packer)
    }

    /// Whether [`Packer::set_streams`] would take these.
    ///
    /// # Errors
    /// As [`Packer::new`].
    pub fn check_streams(config: &PackerConfig, streams: &[Stream]) -> Result<(), Error> {
        Places::new(config, streams.len()).map(|_| ())
    }

    /// Other streams from now on, of the same functions. Chunks that are out are those of the streams before.
    ///
    /// # Errors
    /// Length classes too fine for so many streams; nothing has changed then.
    ///
    /// # Panics
    /// Where a packet waits, or a function is new.
    pub fn set_streams(&mut self, streams: &[Stream]) -> Result<(), Error> {
        assert!(self.waiting() == 0, "{} packets wait in bins", self.waiting());
        let known = |stream: &Stream| self.streams.iter().any(|known| known.instance == stream.instance);
        assert!(streams.iter().all(known), "functions stay the same");
        let places = Places::new(&self.config, streams.len())?;
        // No bin is open, so the table is empty.
        if places.count() != self.places.count() {
            self.table = vec![0; places.count()].into();
        }
        self.places = places;
        self.streams = streams.into();
        self.reopen();
        Ok(())
    }

    /// Puts one packet into a bin with its label, else into an empty bin, else into the leftover queue.
    ///
    /// Takes a descriptor or a reference to one. A reference into a batch is cheaper (2.7 against 3.3 ns,
    /// `insert_cost`): the descriptor is then copied whole instead of field by field.
    ///
    /// Cost: a load from the table, a load and a store of the bin's cursor, two stores of the packet.
    ///
    /// # Panics
    /// Where there is no such function.
    #[inline]
    pub fn insert(
        &mut self,
        now_ns: u64,
        instance: u16,
        variant: u8,
        descriptor: impl Borrow<Descriptor>,
        parameter: u64,
    ) -> Insert {
        let descriptor = descriptor.borrow();
        let place = self.places.of(instance, variant, descriptor.length);
        let cursor = &mut self.cursors[usize::from(self.table[place])];
        if cursor.next >= cursor.end || cursor.variant != u32::from(variant) || self.room == 0 {
            return self.insert_slow(now_ns, instance, variant, descriptor, parameter);
        }
        let slot = cursor.next as usize;
        cursor.next += 1;
        cursor.longest = cursor.longest.max(descriptor.length.into());
        self.filling.descriptors[slot] = *descriptor;
        self.filling.parameters[slot] = parameter;
        self.room -= 1;
        self.count_units(descriptor.room.into());
        if self.room == 0 { Insert::ChunkFull } else { Insert::Binned }
    }

    /// Inserts packets of one function and variant in order, as [`Packer::insert`] would. Packets of one label are
    /// copied in one go (1.3 against 2.9 ns, `insert_cost`).
    ///
    /// Stops after the packet that fills the chunk, so that the caller can take it and come back with the
    /// rest; called while the chunk is full already, goes on into the leftover queue.
    ///
    /// Returns how many were taken, from the first on, and what became of the last one tried: with
    /// [`Insert::Refused`], of the one after those taken; with no packets at all, [`Insert::Binned`].
    ///
    /// # Panics
    /// Where there is no such function, or a packet without a parameter.
    pub fn insert_all(
        &mut self,
        now_ns: u64,
        instance: u16,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: Parameters<'_>,
    ) -> (usize, Insert) {
        let all = extents(descriptors);
        let one_label = self.places.class(all.shortest) == self.places.class(all.longest);
        let mut taken = 0;
        let mut last = Insert::Binned;
        while taken < descriptors.len() && !matches!(last, Insert::ChunkFull | Insert::Refused) {
            let rest = &descriptors[taken..];
            let rest_parameters = parameters.from(taken);
            let run = if one_label {
                let known = (taken == 0).then_some(all);
                self.insert_run(instance, variant, rest, rest_parameters, known)
            } else if all.units < self.units {
                self.insert_open(instance, variant, rest, rest_parameters)
            } else {
                0
            };
            if run > 0 {
                taken += run;
                last = if self.room == 0 { Insert::ChunkFull } else { Insert::Binned };
            } else {
                let first = &rest[0];
                last = self.insert(now_ns, instance, variant, first, parameters.of(taken));
                taken += usize::from(last != Insert::Refused);
            }
        }
        (taken, last)
    }

    /// Whether a chunk should be taken now: it is full, its oldest packet reached the deadline, or the
    /// leftover queue is full so that the next packet could be refused.
    #[inline]
    pub fn ready(&self, now_ns: u64) -> bool {
        match self.next_deadline_ns() {
            None => false,
            Some(deadline_ns) => {
                self.room == 0 || now_ns >= deadline_ns || self.leftovers.len() >= self.config.leftover_packets as usize
            }
        }
    }

    /// When the oldest packet, in a bin or left over, reaches its deadline. None where no packet waits.
    #[inline]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        // The oldest leftover is always binned when its turn comes, into the first bin of an empty chunk;
        // hence no leftover is older than the filling chunk.
        (self.packets() > 0).then(|| self.filling.opened_ns.saturating_add(self.config.deadline_ns))
    }

    /// Packets in the filling bins and in the leftover queue.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.packets() as usize + self.leftovers.len()
    }

    /// Whether no other packet fits into the filling chunk.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room == 0 && self.packets() > 0
    }

    /// Whether [`Packer::take`] would find a set of bins to fill next.
    #[inline]
    pub fn has_free_set(&self) -> bool {
        !self.free.is_empty()
    }

    /// Learns that `bin` took `elapsed_ns` on the device.
    ///
    /// # Panics
    /// Where there is no such function.
    pub fn observe(&mut self, bin: &Bin, elapsed_ns: u64) {
        self.costs.observe(bin, elapsed_ns);
    }

    /// What has been learned of the device.
    pub fn costs(&self) -> &CostModel {
        &self.costs
    }

    /// What it was made with.
    pub fn config(&self) -> &PackerConfig {
        &self.config
    }

    /// Packets in the filling bins.
    #[inline]
    fn packets(&self) -> u32 {
        self.budget - self.room
    }

    /// Copies as many packets of one label as fit into its open bin; 0 where it has none. `all`: what is known of all of them.
    #[inline]
    fn insert_run(
        &mut self,
        instance: u16,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: Parameters<'_>,
        all: Option<Extents>,
    ) -> usize {
        let place = self.places.of(instance, variant, descriptors[0].length);
        let cursor = &mut self.cursors[usize::from(self.table[place])];
        if cursor.variant != u32::from(variant) {
            return 0;
        }
        let fits = (cursor.end - cursor.next).min(self.room);
        let mut run = descriptors.len().min(fits as usize);
        let mut of_run = match all {
            Some(all) if run == descriptors.len() => all,
            _ => extents(&descriptors[..run]),
        };
        if of_run.units >= self.units {
            run = fitting(&descriptors[..run], self.units);
            of_run = extents(&descriptors[..run]);
        }
        let slots = cursor.next as usize..cursor.next as usize + run;
        cursor.longest = cursor.longest.max(of_run.longest.into());
        // `run` is at most `fits`, which has 32 bits.
        cursor.next += run as u32;
        self.room -= run as u32;
        self.filling.descriptors[slots.clone()].copy_from_slice(&descriptors[..run]);
        parameters.write(&mut self.filling.parameters[slots]);
        self.count_units(of_run.units);
        run
    }

    /// Copies packets of several labels into their open bins, up to one that has none; how many. Their buffers are fewer units than
    /// the filling chunk takes, so that nothing has to be asked for each of them but whether its bin has room.
    #[inline]
    fn insert_open(
        &mut self,
        instance: u16,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: Parameters<'_>,
    ) -> usize {
        let Self { places, table, cursors, filling, room, .. } = self;
        let (places_of_variant, variant) = (&table[places.of_class(instance, variant, 0)..], u32::from(variant));
        let (binned, binned_parameters) = (&mut filling.descriptors[..], &mut filling.parameters[..]);
        let mut taken = 0;
        for descriptor in &descriptors[..descriptors.len().min(*room as usize)] {
            let bin = places_of_variant[usize::from(places.class(descriptor.length))];
            let cursor = &mut cursors[usize::from(bin)];
            if cursor.next >= cursor.end || cursor.variant != variant {
                break;
            }
            let slot = cursor.next as usize;
            cursor.next += 1;
            // Seldom, once a bin has a few packets; the next packet of the bin does not wait for it.
            if cursor.longest < descriptor.length.into() {
                cursor.longest = descriptor.length.into();
            }
            binned[slot] = *descriptor;
            binned_parameters[slot] = parameters.of(taken);
            taken += 1;
        }
        // There were no more than `room`, which has 32 bits.
        *room -= taken as u32;
        self.count_units(extents(&descriptors[..taken]).units);
        taken
    }

    /// Packets with so many units of buffers came into the filling chunk.
    #[inline]
    fn count_units(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        if self.units == 0 {
            self.fill_up();
        }
    }

    /// No other packet fits into the filling chunk.
    #[cold]
    fn fill_up(&mut self) {
        (self.budget, self.room) = (self.packets(), 0);
    }

    #[cold]
    #[inline(never)]
    fn insert_slow(
        &mut self,
        now_ns: u64,
        instance: u16,
        variant: u8,
        descriptor: &Descriptor,
        parameter: u64,
    ) -> Insert {
        let packet = Waiting { arrived_ns: now_ns, parameter, descriptor: *descriptor, instance, variant };
        if self.bin(&packet) {
            return if self.room == 0 { Insert::ChunkFull } else { Insert::Binned };
        }
        if self.leftovers.len() >= self.config.leftover_packets as usize {
            return Insert::Refused;
        }
        self.leftovers.push_back(packet);
        Insert::Leftover
    }

    /// Puts a packet into a bin with its label, else into an empty bin; whether there was one.
    fn bin(&mut self, packet: &Waiting) -> bool {
        if self.room == 0 {
            return false;
        }
        let place = self.places.of(packet.instance, packet.variant, packet.descriptor.length);
        let open = usize::from(self.table[place]);
        let cursor = self.cursors[open];
        let number = if cursor.next < cursor.end {
            open
        } else if self.open < self.config.bins {
            self.open_bin(place, packet)
        } else {
            return false;
        };
        let cursor = &mut self.cursors[number];
        let slot = cursor.next as usize;
        // Only where labels say nothing of variants.
        if cursor.variant != u32::from(packet.variant) {
            cursor.variant = packet.variant.into();
            self.parts.begin(number - 1, slot, packet.variant);
        }
        cursor.next += 1;
        cursor.longest = cursor.longest.max(packet.descriptor.length.into());
        self.filling.descriptors[slot] = packet.descriptor;
        self.filling.parameters[slot] = packet.parameter;
        self.room -= 1;
        self.count_units(packet.descriptor.room.into());
        true
    }

    /// Labels the next empty bin with the packet's label; 1 + its number.
    fn open_bin(&mut self, place: usize, packet: &Waiting) -> usize {
        if self.packets() == 0 {
            self.filling.opened_ns = packet.arrived_ns;
        }
        let first = self.open * self.config.bin_packets;
        self.labels[self.open as usize] = Label {
            instance: packet.instance,
            variant: packet.variant,
            length_class: self.places.class(packet.descriptor.length),
        };
        self.open += 1;
        let number = self.open as usize;
        self.cursors[number] =
            Cursor { next: first, end: first + self.config.bin_packets, longest: 0, variant: packet.variant.into() };
        // `validate` lets no more than 65535 bins be configured.
        self.table[place] = number as u16;
        self.set_room(self.packets());
        number
    }

    /// The room that is left for a chunk with `packets` packets in it.
    fn set_room(&mut self, packets: u32) {
        let places = self.config.bins * self.config.bin_packets - packets;
        self.room = places.min(self.config.chunk_packets - packets);
        self.budget = self.room + packets;
    }

    fn reopen(&mut self) {
        self.open = 0;
        self.units =
            self.config.chunk_bytes.map_or(u64::MAX, |bytes| u64::from(bytes).div_ceil(BUFFER_UNIT_BYTES as u64));
        self.set_room(0);
    }
}

/// How many packets it takes to reach so many units of buffers.
#[cold]
fn fitting(descriptors: &[Descriptor], units: u64) -> usize {
    let mut sum = 0;
    let short = |descriptor: &&Descriptor| {
        let before = sum;
        sum += u64::from(descriptor.room);
        before < units
    };
    descriptors.iter().take_while(short).count()
}
