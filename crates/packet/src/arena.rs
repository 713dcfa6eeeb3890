//! The arena: configuration, allocation, and division between workers.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::{BUFFER_UNIT_BYTES, Error, Memory, Region};

/// Rounding unit of regions whose slot layout a port prescribes, in bytes.
const PAGE_BYTES: usize = 4096;

/// Arrangement of the buffers in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Buffers of one fixed size. Packets may return in any order.
    Slots,
    /// A ring of adjacent buffers, each as large as its packet needs. Space becomes free in order
    /// of arrival.
    Dense,
}

/// Choice of the free slot for the next packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The slot that was freed last, which is still in the core's cache.
    #[default]
    Last,
    /// The slot that was freed first. Packets that arrive in sequence get adjacent slots, if they
    /// return in about the same order. A copy engine can then copy adjacent slots in one transfer.
    Oldest,
}

/// Arena configuration. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct ArenaConfig {
    /// Arrangement of the buffers in a region.
    pub layout: Layout,
    /// Choice of the free slot, for layout `slots`. A dense ring always uses the oldest space.
    pub reuse: Reuse,
    /// Buffers per worker. For layout `dense`, the number of full-size buffers that fit
    /// in the ring.
    pub packets: usize,
    /// Length of the longest frame that a port may receive.
    pub frame_bytes_max: usize,
    /// Free bytes before a received frame, for functions that prepend headers.
    pub headroom_bytes: usize,
    /// Free bytes after a received frame, for functions that append padding or trailers.
    pub tailroom_bytes: usize,
    /// Tailroom bytes that a frame does not need, indexed by frame length modulo 16. Functions that
    /// pad to blocks need less tailroom for some lengths. The saving makes dense buffers smaller,
    /// which reduces the copies to devices.
    pub tailroom_saved: [u8; 16],
    /// Alignment of buffers: 64 or 128. Copy engines are fastest with 128.
    pub align_bytes: usize,
    /// Bytes before each buffer that belong to a port's driver. Only the driver accesses them. Must
    /// be a multiple of `align_bytes`. A nonzero value makes each region a whole number of pages.
    pub prefix_bytes: usize,
    /// Distance between slots, if an external port prescribes it. Must be a power of two and at
    /// least the size of a buffer with its prefix. Makes each region a whole number of pages.
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
    /// Returns the buffer size for a frame of full length.
    pub fn buffer_bytes(&self) -> usize {
        let needed = self.headroom_bytes + self.frame_bytes_max + self.tailroom_bytes;
        needed.next_multiple_of(self.align_bytes)
    }

    /// Returns the distance between slots.
    ///
    /// Without a prescribed distance, it is an odd multiple of the alignment. The frames of a batch
    /// then use all sets of the caches instead of a few.
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
        if let Some(&saved) =
            self.tailroom_saved.iter().max().filter(|&&saved| usize::from(saved) > self.tailroom_bytes)
        {
            return refuse("tailroom_saved", saved.into(), "must not exceed tailroom_bytes");
        }
        if let Some(bytes) = self.slot_bytes {
            if self.layout != Layout::Slots {
                return refuse("slot_bytes", bytes, "a dense ring has no slots");
            }
            if !bytes.is_power_of_two() || bytes < self.prefix_bytes + self.buffer_bytes() {
                return refuse(
                    "slot_bytes",
                    bytes,
                    "must be a power of two, and at least the size of a buffer with its prefix",
                );
            }
        }
        if self.prefix_bytes > 0
            && (self.layout != Layout::Slots || !self.prefix_bytes.is_multiple_of(self.align_bytes))
        {
            return refuse(
                "prefix_bytes",
                self.prefix_bytes,
                "requires the layout slots, and a multiple of align_bytes",
            );
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

/// The contiguous memory of all packets, shared by NICs, CPU and devices.
///
/// ```
/// use godwit_packet::{Arena, ArenaConfig};
///
/// let config = ArenaConfig { packets: 64, ..ArenaConfig::default() };
/// let mut regions = Arena::new(config, 2)?.split();
/// assert_eq!(regions.len(), 2);
///
/// let packet = regions[0].allocate(60).expect("the region is empty");
/// assert!(regions[0].contains(&packet));
/// assert!(!regions[1].contains(&packet));
/// # Ok::<(), godwit_packet::Error>(())
/// ```
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
    /// [`Error::Config`] for invalid sizes, [`Error::Memory`] if the machine has too little memory.
    pub fn new(config: ArenaConfig, workers: usize) -> Result<Self, Error> {
        let bytes = Self::bytes_for(&config, workers)?;
        Self::over(Memory::new(bytes, "the packet arena")?, config, workers)
    }

    /// Returns the arena size for `workers` workers, in bytes.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid sizes.
    pub fn bytes_for(config: &ArenaConfig, workers: usize) -> Result<usize, Error> {
        config.validate()?;
        Ok(config.region_bytes() * workers.max(1))
    }

    /// Creates the arena in existing memory, such as memory that a device driver allocated.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid sizes.
    ///
    /// # Panics
    /// If the memory has less than [`Arena::bytes_for`] bytes.
    pub fn over(memory: Memory, config: ArenaConfig, workers: usize) -> Result<Self, Error> {
        let bytes = Self::bytes_for(&config, workers)?;
        assert!(memory.bytes() >= bytes, "an arena of {bytes} bytes in {} bytes of memory", memory.bytes());
        // Packets may be plaintext of a tunnel.
        memory.keep_private();
        Ok(Self { memory: Arc::new(memory), config, workers: workers.max(1) })
    }

    /// Returns the handle through which a device accesses the arena.
    pub fn handle(&self) -> ArenaHandle {
        let (padding_bytes, slot_pitch_bytes) = match self.config.layout {
            Layout::Slots => {
                let pitch_bytes = self.config.slot_stride_bytes();
                // A device must not copy the prefixes between buffers: they belong to a driver.
                let free_bytes =
                    if self.config.prefix_bytes > 0 { 0 } else { pitch_bytes - self.config.buffer_bytes() };
                (free_bytes, Some(pitch_bytes))
            }
            Layout::Dense => (0, None),
        };
        ArenaHandle { memory: Arc::clone(&self.memory), padding_bytes, slot_pitch_bytes }
    }

    /// Divides the arena into one region per worker.
    pub fn split(self) -> Vec<Region> {
        let bytes = self.config.region_bytes();
        (0..self.workers)
            .map(|worker| Region::new(Arc::clone(&self.memory), worker * bytes, bytes, &self.config))
            .collect()
    }
}

/// A device's access to the arena. Keeps the memory mapped while the device may use it.
///
/// The handle gives an address and no reference, because the bytes belong to the [`Region`]s.
/// A device may access only buffers of packets that are submitted to it. The worker that submitted
/// a packet does not access its buffer until the device returns it.
#[derive(Clone, Debug)]
pub struct ArenaHandle {
    memory: Arc<Memory>,
    padding_bytes: usize,
    slot_pitch_bytes: Option<usize>,
}

impl ArenaHandle {
    /// Returns the base address of the arena. Descriptor offsets are relative to it.
    ///
    /// The address is aligned to 2 MiB in process memory and to 4096 in device memory. It is valid
    /// while this handle lives.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Returns the distance between slots, or `None` for [`Layout::Dense`].
    pub fn slot_pitch_bytes(&self) -> Option<usize> {
        self.slot_pitch_bytes
    }

    /// Returns the arena size, in bytes. It is a multiple of 64.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns the owner of the memory, if a device driver allocated it. See [`Memory::owner`].
    pub fn memory_owner(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        self.memory.owner()
    }

    /// Returns the number of unused bytes between the end of a buffer and the next buffer.
    pub fn padding_bytes(&self) -> usize {
        self.padding_bytes
    }
}
