//! The arena: its configuration, and how it is split between workers.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::{BUFFER_UNIT_BYTES, Error, Memory, Region};

/// What regions are rounded to where a port prescribes their slots.
const PAGE_BYTES: usize = 4096;

/// How buffers lie in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Buffers of one fixed size; any order of return.
    Slots,
    /// Buffers of the size each packet needs, back to back in a ring; space comes back in order of arrival.
    Dense,
}

/// Which of the free slots a packet gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The one freed last: it is still in the cache of the core.
    #[default]
    Last,
    /// The one that has been free longest. Packets that arrive one after the other get neighbours, as long as they are
    /// returned in about that order: what a copy engine wants, which moves neighbours in one go.
    Oldest,
}

/// What the arena looks like. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct ArenaConfig {
    /// How buffers lie in a region.
    pub layout: Layout,
    /// Which of the free buffers a packet gets (`slots`). A dense ring always uses the oldest.
    pub reuse: Reuse,
    /// Buffers per worker (`slots`), or full-size buffers that a worker's ring has room for (`dense`).
    pub packets: usize,
    /// Longest frame that a port may bring in.
    pub frame_bytes_max: usize,
    /// Free bytes in front of an arriving frame, for functions that prepend headers.
    pub headroom_bytes: usize,
    /// Free bytes behind an arriving frame, for functions that append.
    pub tailroom_bytes: usize,
    /// How many of these a frame does without whose length is the index modulo 16: functions pad to blocks. It makes
    /// buffers of the dense layout smaller, where a device has to copy them.
    pub tailroom_saved: [u8; 16],
    /// Buffers start at multiples of this: 64 or 128 (128 is what a copy engine wants).
    pub align_bytes: usize,
    /// Bytes in front of each buffer that belong to a port's driver, and that nothing else touches: a multiple of `align_bytes`.
    /// Regions are whole pages where there are any.
    pub prefix_bytes: usize,
    /// Distance from one slot to the next where a port outside the program prescribes it: a power of two, no less than a buffer and its prefix.
    /// Regions are whole pages then.
    pub slot_bytes: Option<usize>,
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self {
            layout: Layout::Slots,
            reuse: Reuse::Last,
            packets: 8192,
            frame_bytes_max: 1518,
            headroom_bytes: 128,
            tailroom_bytes: 64,
            tailroom_saved: [0; 16],
            align_bytes: 128,
            prefix_bytes: 0,
            slot_bytes: None,
        }
    }
}

impl ArenaConfig {
    /// Size of the buffer of a full-size frame.
    pub fn buffer_bytes(&self) -> usize {
        let needed = self.headroom_bytes + self.frame_bytes_max + self.tailroom_bytes;
        needed.next_multiple_of(self.align_bytes)
    }

    /// Distance from one slot to the next. Where nobody prescribes it, an odd multiple of the alignment, so that the frames of
    /// a batch spread over all sets of the caches instead of a few.
    pub(crate) fn slot_stride_bytes(&self) -> usize {
        if let Some(bytes) = self.slot_bytes {
            return bytes;
        }
        let units = (self.prefix_bytes + self.buffer_bytes()) / self.align_bytes;
        (units | 1) * self.align_bytes
    }

    fn region_bytes(&self) -> usize {
        let bytes = self.packets * self.slot_stride_bytes();
        if self.slot_bytes.is_some() || self.prefix_bytes > 0 { bytes.next_multiple_of(PAGE_BYTES) } else { bytes }
    }

    fn validate(&self) -> Result<(), Error> {
        let refuse = |key, value: usize, reason: &str| {
            Err(Error::Config { key, value: value as u64, reason: reason.to_owned() })
        };
        if self.packets == 0 || self.packets > 1 << 20 {
            return refuse("packets", self.packets, "must be 1 to 1048576 per worker");
        }
        if !matches!(self.align_bytes, 64 | 128) {
            return refuse("align_bytes", self.align_bytes, "must be 64 or 128");
        }
        if !(60..=16128).contains(&self.frame_bytes_max) {
            return refuse("frame_bytes_max", self.frame_bytes_max, "must be 60 to 16128");
        }
        let buffer_bytes_max = usize::from(u8::MAX) * BUFFER_UNIT_BYTES;
        if self.headroom_bytes > buffer_bytes_max || self.tailroom_bytes > buffer_bytes_max {
            return refuse("headroom_bytes", self.headroom_bytes, "a buffer holds at most 16320 bytes");
        }
        if let Some(&most) = self.tailroom_saved.iter().max().filter(|&&most| usize::from(most) > self.tailroom_bytes) {
            return refuse("tailroom_saved", most.into(), "more than tailroom_bytes");
        }
        if let Some(bytes) = self.slot_bytes {
            if self.layout != Layout::Slots {
                return refuse("slot_bytes", bytes, "a dense ring has no slots");
            }
            if !bytes.is_power_of_two() || bytes < self.prefix_bytes + self.buffer_bytes() {
                return refuse("slot_bytes", bytes, "must be a power of two, and no less than a buffer and its prefix");
            }
        }
        if self.prefix_bytes > 0
            && (self.layout != Layout::Slots || !self.prefix_bytes.is_multiple_of(self.align_bytes))
        {
            return refuse("prefix_bytes", self.prefix_bytes, "needs slots, and must be a multiple of align_bytes");
        }
        if self.buffer_bytes() > buffer_bytes_max {
            return refuse(
                "frame_bytes_max",
                self.frame_bytes_max,
                "frame, headroom_bytes and tailroom_bytes must fit into a buffer of 16320 bytes",
            );
        }
        Ok(())
    }
}

/// The one memory in which all packets live, for NIC, CPU and devices alike.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<Memory>,
    config: ArenaConfig,
    workers: usize,
}

impl Arena {
    /// Allocates the arena for `workers` workers.
    ///
    /// # Errors
    /// [`Error::Config`] for sizes that cannot work, [`Error::Memory`] when the machine has too little.
    pub fn new(config: ArenaConfig, workers: usize) -> Result<Self, Error> {
        let bytes = Self::bytes_for(&config, workers)?;
        Self::over(Memory::new(bytes, "the packet arena")?, config, workers)
    }

    /// Size of the arena for `workers` workers.
    ///
    /// # Errors
    /// [`Error::Config`] for sizes that cannot work.
    pub fn bytes_for(config: &ArenaConfig, workers: usize) -> Result<usize, Error> {
        config.validate()?;
        Ok(config.region_bytes() * workers.max(1))
    }

    /// Makes the arena for `workers` workers of memory of [`Arena::bytes_for`] bytes that is there already: a device's.
    ///
    /// # Errors
    /// [`Error::Config`] for sizes that cannot work.
    ///
    /// # Panics
    /// When the memory is too small.
    pub fn over(memory: Memory, config: ArenaConfig, workers: usize) -> Result<Self, Error> {
        let bytes = Self::bytes_for(&config, workers)?;
        assert!(memory.bytes() >= bytes, "an arena of {bytes} bytes in {} bytes of memory", memory.bytes());
        Ok(Self { memory: Arc::new(memory), config, workers: workers.max(1) })
    }

    /// What a device is given of the arena before it is split.
    pub fn handle(&self) -> ArenaHandle {
        let (padding_bytes, slot_pitch_bytes) = match self.config.layout {
            Layout::Slots => {
                let pitch_bytes = self.config.slot_stride_bytes();
                // What lies between two buffers with prefixes is a driver's, and must not be copied.
                let free_bytes =
                    if self.config.prefix_bytes > 0 { 0 } else { pitch_bytes - self.config.buffer_bytes() };
                (free_bytes, Some(pitch_bytes))
            }
            Layout::Dense => (0, None),
        };
        ArenaHandle { memory: Arc::clone(&self.memory), padding_bytes, slot_pitch_bytes }
    }

    /// Cuts the arena into one region per worker.
    pub fn split(self) -> Vec<Region> {
        let bytes = self.config.region_bytes();
        (0..self.workers)
            .map(|worker| Region::new(Arc::clone(&self.memory), worker * bytes, bytes, &self.config))
            .collect()
    }
}

/// Names the arena's memory to a device, and keeps it mapped for as long as the device may reach it.
///
/// It gives an address and no reference: the bytes belong to the [`Region`]s. What reads or writes through the address
/// may touch only buffers of packets that are in its hands, that is, from the moment a worker submits them until that
/// worker has them back; nothing else of the process reaches those buffers meanwhile.
#[derive(Clone, Debug)]
pub struct ArenaHandle {
    memory: Arc<Memory>,
    padding_bytes: usize,
    slot_pitch_bytes: Option<usize>,
}

impl ArenaHandle {
    /// The arena's base address, which descriptors count from. Aligned to 2 MiB where the memory is the process's own, to
    /// 4096 where it is a device's; valid while this handle lives.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Distance from one slot to the next, where the layout is [`Layout::Slots`].
    pub fn slot_pitch_bytes(&self) -> Option<usize> {
        self.slot_pitch_bytes
    }

    /// Size of the arena: a multiple of 64.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }
    /// What gives the memory back, where it is a device's: see [`Memory::owner`].
    pub fn memory_owner(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        self.memory.owner()
    }

    /// Bytes behind each buffer that belong to no packet.
    pub fn padding_bytes(&self) -> usize {
        self.padding_bytes
    }
}
