//! Puts packets into batches for a device. The module `close` prepares full batches for submission.

mod close;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::VecDeque;

use godwit_abi::{BUFFER_UNIT_BYTES, Bin, Descriptor};
use godwit_packet::{Extents, extents};

use crate::chunk::Chunk;
use crate::config::{Error, PackerConfig};
use crate::cost::CostModel;
use crate::label::{Label, LabelIndex};
use crate::parameters::Parameters;
use crate::parts::Parts;

/// Result of inserting a packet into the packer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// The packet is in a batch, and the submission has room for more packets.
    Binned,
    /// The packet is in a batch, and the submission is now full.
    ChunkFull,
    /// The packet does not fit in the current submission. It waits in the leftover queue for the
    /// next submission.
    Leftover,
    /// The packer did not accept the packet, because the leftover queue is full. The caller must
    /// submit the waiting packets and insert the packet again.
    Refused,
}

/// Packer of one worker and one device. It puts packets into batches and batches into submissions
/// for the device (PIPSEA, sections 3.2 and 3.3).
///
/// [`Packer::new`] allocates all memory. The caller passes times in nanoseconds. The times may have
/// any origin, and must not decrease.
///
/// ```
/// use godwit_sched::{Descriptor, Packer, PackerConfig, Parameters};
///
/// let mut packer = Packer::new(PackerConfig::default(), &[0], 2)?;
/// let packets = [60, 1500, 60].map(|length| Descriptor { length, ..Descriptor::default() });
/// packer.insert_all(0, 0, 0, &packets, Parameters::Alike(0));
/// assert_eq!(packer.waiting(), 3);
///
/// // The chunk is ready when its oldest packet reaches the deadline.
/// let deadline_ns = packer.next_deadline_ns().expect("packets wait");
/// assert!(packer.ready(deadline_ns));
/// let chunk = packer.take(deadline_ns).expect("a set of bins is free");
/// assert_eq!(chunk.packets, 3);
/// # Ok::<(), godwit_sched::Error>(())
/// ```
#[derive(Debug)]
pub struct Packer {
    // Every insertion of a packet accesses the following fields, so they come first.
    label_index: LabelIndex,
    /// Number of the open batch of each label, plus 1. The value 0 means that the label has no open
    /// batch. Packets with the same label share a batch.
    table: Box<[u16]>,
    /// Position of the next packet in each batch. The index is the batch number plus 1. The entry
    /// at index 0 never has room, and all labels without an open batch use it.
    cursors: Box<[Cursor]>,
    /// Submission that is being filled. Some of its fields are set only when it closes.
    filling: Chunk,
    /// Number of packets that still fit in the current submission.
    room: u32,
    /// Packet limit of the current submission.
    budget: u32,
    /// Buffer memory that the current submission may still use, in units of `BUFFER_UNIT_BYTES`.
    units: u64,

    /// Label of each open batch.
    labels: Box<[Label]>,
    /// Number of open batches. Their indices are `0..open`.
    open: u32,
    /// Positions in the batches where another kind of processing begins.
    parts: Parts,
    leftovers: VecDeque<Waiting>,
    free: Vec<Chunk>,
    chunks: usize,
    /// Scratch memory for sorting batches by estimated time.
    estimates: Vec<(f64, Bin)>,
    costs: CostModel,
    streams: Box<[Stream]>,
    config: PackerConfig,
    /// Packet limit of a submission for which memory is allocated.
    chunk_packets_max: u32,
}

/// Input of the packer. Packets of different inputs never share a batch.
///
/// An input receives the packets of one configured function. If a device passes packets from
/// function to function by itself, an input receives only packets of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Index of the configured function.
    pub instance: u16,
    /// Number of the kernel that implements the function.
    pub kernel: u8,
    /// Row in the device's next-function table ([`Bin::row`]). Each packet class of a function has
    /// a separate row.
    pub row: u8,
}

/// Position of the next packet in an open batch. All fields have 32 bits for speed.
///
/// With smaller fields, the compiler would load the last two with one wide load, which must wait
/// for the stores of the previous packet. An insertion would then take 5.0 ns instead of 3.7 ns
/// (`insert_cost`).
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    next: u32,
    end: u32,
    /// Length of the longest frame in the batch so far, in bytes.
    longest: u32,
    /// Kind of processing of the last packet in the batch.
    variant: u32,
}

/// A packet in the leftover queue, which holds packets that do not fit in the current submission.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    arrived_ns: u64,
    parameter: u64,
    descriptor: Descriptor,
    stream: u16,
    variant: u8,
}

impl Packer {
    /// Creates a packer with memory for `chunks` submissions. One submission fills while a device
    /// processes the other submissions.
    ///
    /// `kernels` contains the kernel number of each function.
    ///
    /// # Errors
    /// Returns an error if a number in `config` is out of range, if `kernels` is empty, or if
    /// `chunks` is below 2. Also returns an error if the length classes are too narrow for the
    /// number of functions.
    pub fn new(config: PackerConfig, kernels: &[u8], chunks: usize) -> Result<Self, Error> {
        let stream = |(instance, &kernel): (u16, &u8)| Stream { instance, kernel, row: 0 };
        Self::with_streams(config, &(0..).zip(kernels).map(stream).collect::<Vec<_>>(), chunks)
    }

    /// Returns all submissions that the caller has not taken, including the current submission.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::once(&self.filling).chain(&self.free)
    }

    /// Creates a packer with the inputs `streams`, each of which receives packets of one function.
    /// Insertions refer to an input by its index.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Packer::new`].
    pub fn with_streams(config: PackerConfig, streams: &[Stream], chunks: usize) -> Result<Self, Error> {
        config.validate()?;
        let Some(last) = streams.iter().map(|stream| usize::from(stream.instance)).max() else {
            return Err(Error::NoFunctions);
        };
        if chunks < 2 {
            return Err(Error::TooFewChunks { chunks });
        }
        let label_index = LabelIndex::new(&config, streams.len())?;
        let bins = config.bins as usize;
        let entries = config.entries_max();
        let chunk = || Chunk::new(entries, bins * config.bin_packets as usize);
        let no_label = Label { stream: 0, variant: 0, length_class: 0 };
        let mut packer = Self {
            table: vec![0; label_index.count()].into(),
            label_index,
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
            chunk_packets_max: config.chunk_packets,
            config,
        };
        packer.reopen();
        Ok(packer)
    }

    /// Checks whether [`Packer::set_streams`] would accept these inputs.
    ///
    /// # Errors
    /// Returns an error if the length classes are too narrow for the number of inputs.
    pub fn check_streams(config: &PackerConfig, streams: &[Stream]) -> Result<(), Error> {
        LabelIndex::new(config, streams.len()).map(|_| ())
    }

    /// Replaces the inputs of the packer. The functions must stay the same. Packets on the device
    /// still belong to the earlier inputs.
    ///
    /// # Errors
    /// Returns an error if the length classes are too narrow for the number of inputs. The packer
    /// is then unchanged.
    ///
    /// # Panics
    /// Panics if packets wait in the packer, or if an input refers to a new function.
    pub fn set_streams(&mut self, streams: &[Stream]) -> Result<(), Error> {
        assert!(self.waiting() == 0, "{} packets wait in bins", self.waiting());
        let known = |stream: &Stream| self.streams.iter().any(|known| known.instance == stream.instance);
        assert!(streams.iter().all(known), "a stream refers to an unknown function");
        let label_index = LabelIndex::new(&self.config, streams.len())?;
        // No batch is open, so the table contains only zeros.
        if label_index.count() != self.label_index.count() {
            self.table = vec![0; label_index.count()].into();
        }
        self.label_index = label_index;
        self.streams = streams.into();
        self.reopen();
        Ok(())
    }

    /// Changes the packet limit and the deadline of submissions, including the current one. The
    /// packet limit is at most the one that the packer was created with. If the current submission
    /// contains more packets, it is full.
    pub fn set_limits(&mut self, chunk_packets: u32, deadline_ns: u64) {
        self.config.chunk_packets = chunk_packets.clamp(1, self.chunk_packets_max);
        self.config.deadline_ns = deadline_ns;
        let packets = self.packets();
        if packets >= self.config.chunk_packets {
            self.fill_up();
        } else if !self.is_full() {
            self.set_room(packets);
        }
    }

    /// Inserts a packet into the open batch of its label. If that batch has no room, the packet
    /// goes into an empty batch or, without an empty batch, into the leftover queue.
    ///
    /// `descriptor` is a descriptor or a reference to a descriptor. A reference into a batch is
    /// cheaper, because the descriptor is copied whole instead of field by field. An insertion then
    /// takes 2.7 ns instead of 3.3 ns (`insert_cost`).
    ///
    /// An insertion needs a load from the table, a load and a store of the batch's cursor, and two
    /// stores of the packet.
    ///
    /// # Panics
    /// Panics if the stream does not exist.
    #[inline]
    pub fn insert(
        &mut self,
        now_ns: u64,
        stream: u16,
        variant: u8,
        descriptor: impl Borrow<Descriptor>,
        parameter: u64,
    ) -> Insert {
        let descriptor = descriptor.borrow();
        let index = self.label_index.of(stream, variant, descriptor.length);
        let cursor = &mut self.cursors[usize::from(self.table[index])];
        if cursor.next >= cursor.end || cursor.variant != u32::from(variant) || self.room == 0 {
            return self.insert_slow(now_ns, stream, variant, descriptor, parameter);
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

    /// Inserts packets of one stream and one kind of processing in order. Each packet goes to the
    /// same batch or queue as with [`Packer::insert`]. Packets with the same label are copied
    /// together, which takes 1.3 ns instead of 2.9 ns per packet (`insert_cost`).
    ///
    /// The function stops after the packet that fills the submission. The caller can then take the
    /// submission and insert the remaining packets. If the submission is already full, packets go
    /// to the leftover queue.
    ///
    /// Returns the number of inserted packets and the result of the last attempt. For
    /// [`Insert::Refused`], the attempt concerned the packet after the inserted ones. Without
    /// packets, the result is [`Insert::Binned`].
    ///
    /// # Panics
    /// Panics if the stream does not exist, or if a packet has no parameter.
    pub fn insert_all(
        &mut self,
        now_ns: u64,
        stream: u16,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: Parameters<'_>,
    ) -> (usize, Insert) {
        let all = extents(descriptors);
        let one_label = self.label_index.class(all.shortest) == self.label_index.class(all.longest);
        let mut taken = 0;
        let mut last = Insert::Binned;
        while taken < descriptors.len() && !matches!(last, Insert::ChunkFull | Insert::Refused) {
            let rest = &descriptors[taken..];
            let rest_parameters = parameters.from(taken);
            let run = if one_label {
                let known = (taken == 0).then_some(all);
                self.insert_run(stream, variant, rest, rest_parameters, known)
            } else if all.units < self.units {
                self.insert_open(stream, variant, rest, rest_parameters)
            } else {
                0
            };
            if run > 0 {
                taken += run;
                last = if self.room == 0 { Insert::ChunkFull } else { Insert::Binned };
            } else {
                let first = &rest[0];
                last = self.insert(now_ns, stream, variant, first, parameters.of(taken));
                taken += usize::from(last != Insert::Refused);
            }
        }
        (taken, last)
    }

    /// Returns whether the caller should take the current submission now. A submission is ready if
    /// it is full, if its oldest packet has reached the deadline, or if the leftover queue is full.
    #[inline]
    pub fn ready(&self, now_ns: u64) -> bool {
        match self.next_deadline_ns() {
            None => false,
            Some(deadline_ns) => {
                self.room == 0 || now_ns >= deadline_ns || self.leftovers.len() >= self.config.leftover_packets as usize
            }
        }
    }

    /// Returns the time at which the oldest waiting packet reaches its deadline, in nanoseconds.
    /// Returns `None` if no packet waits.
    #[inline]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        // The leftover queue holds no packet that is older than the oldest packet of the current
        // submission.
        (self.packets() > 0).then(|| self.filling.opened_ns.saturating_add(self.config.deadline_ns))
    }

    /// Returns the number of packets that wait in batches or in the leftover queue.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.packets() as usize + self.leftovers.len()
    }

    /// Returns whether the current submission has no room for another packet.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room == 0 && self.packets() > 0
    }

    /// Returns whether [`Packer::take`] can start to fill an empty submission.
    #[inline]
    pub fn has_free_set(&self) -> bool {
        !self.free.is_empty()
    }

    /// Tells the cost model that the device needed `elapsed_ns` nanoseconds for `bin`.
    ///
    /// # Panics
    /// Panics if the function of the batch does not exist.
    pub fn observe(&mut self, bin: &Bin, elapsed_ns: u64) {
        self.costs.observe(bin, elapsed_ns);
    }

    /// Returns the cost model of the device.
    pub fn costs(&self) -> &CostModel {
        &self.costs
    }

    /// Returns the configuration.
    pub fn config(&self) -> &PackerConfig {
        &self.config
    }

    /// Returns the number of packets in the batches of the current submission.
    #[inline]
    fn packets(&self) -> u32 {
        self.budget - self.room
    }

    /// Copies packets with the same label into the open batch of this label until it is full.
    /// Returns the number of copied packets. `all` holds the lengths and the buffer sizes of all
    /// packets, if they are known.
    #[inline]
    fn insert_run(
        &mut self,
        stream: u16,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: Parameters<'_>,
        all: Option<Extents>,
    ) -> usize {
        let index = self.label_index.of(stream, variant, descriptors[0].length);
        let cursor = &mut self.cursors[usize::from(self.table[index])];
        if cursor.variant != u32::from(variant) {
            return 0;
        }
        let fits = (cursor.end - cursor.next).min(self.room);
        let mut run = descriptors.len().min(fits as usize);
        let mut run_extents = match all {
            Some(all) if run == descriptors.len() => all,
            _ => extents(&descriptors[..run]),
        };
        if run_extents.units >= self.units {
            run = fitting(&descriptors[..run], self.units);
            run_extents = extents(&descriptors[..run]);
        }
        let slots = cursor.next as usize..cursor.next as usize + run;
        cursor.longest = cursor.longest.max(run_extents.longest.into());
        cursor.next += run as u32;
        self.room -= run as u32;
        self.filling.descriptors[slots.clone()].copy_from_slice(&descriptors[..run]);
        parameters.write(&mut self.filling.parameters[slots]);
        self.count_units(run_extents.units);
        run
    }

    /// Copies packets into the open batches of their labels. Packets with the same label share a
    /// batch. Stops at the first packet that does not fit, and returns the number of copied
    /// packets.
    ///
    /// The caller ensures that the current submission has enough buffer memory left for all
    /// packets.
    #[inline]
    fn insert_open(
        &mut self,
        stream: u16,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: Parameters<'_>,
    ) -> usize {
        let Self { label_index, table, cursors, filling, room, .. } = self;
        let (bins_of_variant, variant) = (&table[label_index.of_class(stream, variant, 0)..], u32::from(variant));
        let (binned, binned_parameters) = (&mut filling.descriptors[..], &mut filling.parameters[..]);
        let mut taken = 0;
        for descriptor in &descriptors[..descriptors.len().min(*room as usize)] {
            let bin = bins_of_variant[usize::from(label_index.class(descriptor.length))];
            let cursor = &mut cursors[usize::from(bin)];
            if cursor.next >= cursor.end || cursor.variant != variant {
                break;
            }
            let slot = cursor.next as usize;
            cursor.next += 1;
            // Most packets are not longer than an earlier one, so the check avoids most writes.
            if cursor.longest < descriptor.length.into() {
                cursor.longest = descriptor.length.into();
            }
            binned[slot] = *descriptor;
            binned_parameters[slot] = parameters.of(taken);
            taken += 1;
        }
        *room -= taken as u32;
        self.count_units(extents(&descriptors[..taken]).units);
        taken
    }

    /// Subtracts the memory of inserted packets from the memory that the current submission may
    /// still use. Marks the submission as full if no memory remains.
    #[inline]
    fn count_units(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        if self.units == 0 {
            self.fill_up();
        }
    }

    /// Marks the current submission as full.
    #[cold]
    fn fill_up(&mut self) {
        (self.budget, self.room) = (self.packets(), 0);
    }

    #[cold]
    #[inline(never)]
    fn insert_slow(
        &mut self,
        now_ns: u64,
        stream: u16,
        variant: u8,
        descriptor: &Descriptor,
        parameter: u64,
    ) -> Insert {
        let packet = Waiting { arrived_ns: now_ns, parameter, descriptor: *descriptor, stream, variant };
        if self.bin(&packet) {
            return if self.room == 0 { Insert::ChunkFull } else { Insert::Binned };
        }
        if self.leftovers.len() >= self.config.leftover_packets as usize {
            return Insert::Refused;
        }
        self.leftovers.push_back(packet);
        Insert::Leftover
    }

    /// Puts a packet into the open batch of packets with the same label. If this batch has no room,
    /// uses an empty batch. Returns false if the packet fits in neither.
    fn bin(&mut self, packet: &Waiting) -> bool {
        if self.room == 0 {
            return false;
        }
        let index = self.label_index.of(packet.stream, packet.variant, packet.descriptor.length);
        let open = usize::from(self.table[index]);
        let cursor = self.cursors[open];
        let number = if cursor.next < cursor.end {
            open
        } else if self.open < self.config.bins {
            self.open_bin(index, packet)
        } else {
            return false;
        };
        let cursor = &mut self.cursors[number];
        let slot = cursor.next as usize;
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

    /// Opens an empty batch for packets with the same label as `packet`. Returns the number of the
    /// batch plus 1.
    fn open_bin(&mut self, index: usize, packet: &Waiting) -> usize {
        if self.packets() == 0 {
            self.filling.opened_ns = packet.arrived_ns;
        }
        let first = self.open * self.config.bin_packets;
        self.labels[self.open as usize] = Label {
            stream: packet.stream,
            variant: packet.variant,
            length_class: self.label_index.class(packet.descriptor.length),
        };
        self.open += 1;
        let number = self.open as usize;
        self.cursors[number] =
            Cursor { next: first, end: first + self.config.bin_packets, longest: 0, variant: packet.variant.into() };
        self.table[index] = number as u16;
        self.set_room(self.packets());
        number
    }

    /// Sets the number of packets that still fit in the current submission, which contains
    /// `packets` packets.
    fn set_room(&mut self, packets: u32) {
        let slots = self.config.bins * self.config.bin_packets - packets;
        self.room = slots.min(self.config.chunk_packets - packets);
        self.budget = self.room + packets;
    }

    fn reopen(&mut self) {
        self.open = 0;
        self.units =
            self.config.chunk_bytes.map_or(u64::MAX, |bytes| u64::from(bytes).div_ceil(BUFFER_UNIT_BYTES as u64));
        self.set_room(0);
    }
}

/// Returns how many packets at the start of the list fill `units` units of buffer memory.
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
