//! Chunk size, bin size and arena size for a device.

use godwit_device::{has_own_memory, is_synchronous};

use crate::error::Error;
use crate::load::size::Size;
use crate::run::options::LaneOptions;

/// Frame bytes per chunk for a discrete GPU. The buffers of such a chunk have about 8 MiB.
const COPY_PACKETS_BYTES: usize = 4 << 20;
/// Chunks per pass, as a multiple of the chunks that a thread keeps in flight. With this factor,
/// the pipeline is full for half of the pass. Several threads are then busy at the same time.
const PIPELINES: usize = 4;
/// Limit for the default arena size that `PIPELINES` implies, in packets.
const PIPELINES_PACKETS_MAX: usize = 1 << 20;
/// Maximum default arena size of brief runs, in packets. A larger arena takes longer to fill than
/// to measure.
const BRIEF_PACKETS: usize = 2048;

/// Chunk size, bin size and arena size for a device.
pub(crate) struct Feed {
    /// Packets of a chunk.
    pub(crate) batch: usize,
    /// Packets of a bin.
    pub(crate) bin_packets: usize,
    /// Chunks in flight.
    pub(crate) in_flight: usize,
    /// Packets in the arena.
    pub(crate) packets: usize,
}

impl Feed {
    /// Returns the sizes for the first device and frames of `size`.
    pub(crate) fn new(options: &LaneOptions, size: Size) -> Self {
        Self::of(options, options.device(), size)
    }

    /// Returns the sizes for `device` and frames of `size`.
    pub(crate) fn of(options: &LaneOptions, device: &str, size: Size) -> Self {
        // A discrete GPU needs copies of 8 MB with four in flight, because each chunk also has
        // small copies. At 60 bytes, an H200 reaches 0.80 of half the duplex copy rate with chunks
        // of 16,384 packets, and 0.94 with 65,536. The CPU runs chunks on submission, and needs
        // chunks that fit into its L2 cache. Arenas exceed the last-level cache.
        let (batch, bin_packets, in_flight, packets) = if is_synchronous(device) {
            (256, 256, 1, 1 << 16)
        } else if has_own_memory(device) {
            ((COPY_PACKETS_BYTES / size.frame_bytes_mean()).clamp(1 << 14, 1 << 16), 64, 4, 1 << 19)
        } else {
            (1024, 64, 4, 1 << 16)
        };
        let batch = options.batch.unwrap_or(batch).max(1);
        let in_flight = options.in_flight.unwrap_or(in_flight).max(1);
        let pipelines = batch.saturating_mul(in_flight).saturating_mul(PIPELINES).min(PIPELINES_PACKETS_MAX);
        let packets = if options.common.brief() { packets.min(BRIEF_PACKETS) } else { packets.max(pipelines) };
        let packets = options.packets.unwrap_or(packets);
        Self {
            batch: batch.min(packets),
            bin_packets: options.bin_packets.unwrap_or(bin_packets).clamp(1, usize::from(u16::MAX)),
            in_flight,
            packets,
        }
    }

    /// Returns the sizes for each of `threads` threads that feed the first device and share the
    /// packets. If there are too few packets, chunks are smaller, unless the request sets the chunk
    /// size.
    ///
    /// # Errors
    /// Returns an error if there are too few packets.
    pub(crate) fn for_threads(options: &LaneOptions, size: Size, threads: usize) -> Result<Self, Error> {
        let mut feed = Self::new(options, size);
        if threads == 1 {
            return Ok(feed);
        }
        feed.packets /= threads;
        let chunks = PIPELINES * feed.in_flight;
        feed.batch = options.batch.unwrap_or_else(|| feed.batch.min(feed.packets / chunks)).max(1);
        if feed.batch * chunks > feed.packets {
            return Err(Error::Setup(format!(
                "{threads} workers with {} chunks of {} packets in flight each need --packets {} or more, or a smaller \
                 --batch",
                feed.in_flight,
                feed.batch,
                feed.batch * chunks * threads
            )));
        }
        Ok(feed)
    }
}
