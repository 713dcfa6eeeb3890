//! The arena is the memory that holds all packets. This file configures and allocates the arena,
//! and gives each worker one region.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::{BUFFER_UNIT_BYTES, Error, Memory, Region};

/// Size of a memory page in bytes.
const PAGE_BYTES: usize = 4096;

/// Arrangement of the packet buffers in the memory of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All buffers have the same size. Packets may be freed in any order.
    Slots,
    /// Each buffer is only as large as its packet needs. Buffers lie one after another in a ring,
    /// and their space becomes free in arrival order.
    Dense,
}

/// Selects which free buffer the next packet gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The next packet gets the buffer that was freed last. This buffer is probably still in the
    /// core's cache.
    #[default]
    Last,
    /// The next packet gets the buffer that was freed first. If packets are freed roughly in
    /// arrival order, successive packets get adjacent buffers, which a device can copy in one
    /// transfer.
    Oldest,
}

/// Configuration of the arena, which is the memory that holds all packets. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct ArenaConfig {
    /// Arrangement of the packet buffers in the memory of a worker.
    pub layout: Layout,
    /// Selects the free buffer for the next packet in the layout `slots`. The layout `dense`
    /// ignores this setting.
    pub reuse: Reuse,
    /// Number of buffers per worker. In the layout `dense`, the memory suffices for this many
    /// buffers of maximum size.
    pub packets: usize,
    /// Maximum length of a frame that a port may receive.
    pub frame_bytes_max: usize,
    /// Number of free bytes before a received frame. Functions that prepend headers use this space.
    pub headroom_bytes: usize,
    /// Number of free bytes after a received frame. Functions that append padding or trailers use
    /// this space.
    pub tailroom_bytes: usize,
    /// Reduction of the tailroom in bytes, indexed by the frame length modulo 16. Functions that
    /// pad frames to whole cipher blocks need less tailroom for some lengths. In the layout
    /// `dense`, less data is then copied to devices.
    pub tailroom_saved: [u8; 16],
    /// Alignment of buffers, which is 64 or 128 bytes. Device copies are fastest with 128.
    pub align_bytes: usize,
    /// Number of bytes before each buffer that are reserved for a port's driver. It must be a
    /// multiple of `align_bytes`. If it is not 0, each worker's memory consists of whole pages.
    pub prefix_bytes: usize,
    /// Distance in bytes between the starts of adjacent buffers, if a port requires a fixed one. It
    /// must be a power of two, with enough space for a buffer and the bytes before it. Each
    /// worker's memory then consists of whole pages.
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
    /// Returns the size of a buffer for a frame of maximum length.
    pub fn buffer_bytes(&self) -> usize {
        let needed = self.headroom_bytes + self.frame_bytes_max + self.tailroom_bytes;
        needed.next_multiple_of(self.align_bytes)
    }

    /// Returns the distance in bytes between the starts of adjacent buffers in the layout `slots`.
    ///
    /// If no port requires a fixed distance, it is an odd multiple of the alignment. This spreads
    /// the frames over all cache sets of the processor.
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

/// Contiguous memory that holds all packets. NICs, the CPU and devices share it.
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
    /// Returns [`Error::Config`] if a size is invalid, and [`Error::Memory`] if the machine has too
    /// little memory.
    pub fn new(config: ArenaConfig, workers: usize) -> Result<Self, Error> {
        let bytes = Self::bytes_for(&config, workers)?;
        Self::over(Memory::new(bytes, "the packet arena")?, config, workers)
    }

    /// Returns the size in bytes of an arena for `workers` workers.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if a size is invalid.
    pub fn bytes_for(config: &ArenaConfig, workers: usize) -> Result<usize, Error> {
        config.validate()?;
        Ok(config.region_bytes() * workers.max(1))
    }

    /// Creates the arena in existing memory, such as memory that a device driver allocated.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if a size is invalid.
    ///
    /// # Panics
    /// Panics if the memory is smaller than [`Arena::bytes_for`].
    pub fn over(memory: Memory, config: ArenaConfig, workers: usize) -> Result<Self, Error> {
        let bytes = Self::bytes_for(&config, workers)?;
        assert!(memory.bytes() >= bytes, "an arena of {bytes} bytes in {} bytes of memory", memory.bytes());
        // The memory must stay private, because packets from a tunnel may contain decrypted data.
        memory.keep_private();
        Ok(Self { memory: Arc::new(memory), config, workers: workers.max(1) })
    }

    /// Returns a handle through which a device can access the arena.
    pub fn handle(&self) -> ArenaHandle {
        let (padding_bytes, slot_pitch_bytes) = match self.config.layout {
            Layout::Slots => {
                let pitch_bytes = self.config.slot_stride_bytes();
                // Bytes between two buffers may belong to a port's driver, and a device must not
                // copy such bytes.
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

/// Handle through which a device accesses the arena. The memory stays mapped until all handles are
/// dropped.
///
/// The handle gives an address and no reference, because the [`Region`]s of the workers own the
/// bytes. A device may access only the buffers of packets that a worker has submitted to it. The
/// worker does not access these buffers until the device returns the packets.
#[derive(Clone, Debug)]
pub struct ArenaHandle {
    memory: Arc<Memory>,
    padding_bytes: usize,
    slot_pitch_bytes: Option<usize>,
}

impl ArenaHandle {
    /// Returns the base address of the arena. Packet descriptors contain offsets from this address.
    ///
    /// Memory that the process mapped is aligned to 2 MiB, and device memory to 4096 bytes. The
    /// address is valid until this handle is dropped.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Returns the distance in bytes between the starts of adjacent buffers. Returns `None` for
    /// [`Layout::Dense`], in which buffers have different sizes.
    pub fn slot_pitch_bytes(&self) -> Option<usize> {
        self.slot_pitch_bytes
    }

    /// Returns the arena size, in bytes. It is a multiple of 64.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns the owner of the memory if a device driver allocated it, as [`Memory::owner`] does.
    pub fn memory_owner(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        self.memory.owner()
    }

    /// Returns the number of unused bytes between the end of one buffer and the start of the next.
    pub fn padding_bytes(&self) -> usize {
        self.padding_bytes
    }
}
