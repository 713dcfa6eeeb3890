//! Receive queue and transmit queue of one worker on a TAP interface.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_packet::{Batch, Outgoing, Region};

use super::Queue;
use crate::live::Arrivals;
use crate::{Departure, Error, PortCounters, QueueContext, Receive, Received, Transmit};

/// Maximum length in bytes of a frame from a TAP interface.
const FRAME_BYTES_MAX: usize = 1 << 16;

pub(super) struct Receiver {
    queue: Arc<Queue>,
    arrivals: Arrivals,
    counters: PortCounters,
    stopped: Arc<AtomicBool>,
    frame_bytes_max: usize,
    frame: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(
        queue: Arc<Queue>,
        context: QueueContext,
        stopped: Arc<AtomicBool>,
        frame_bytes_max: usize,
    ) -> Self {
        let frame = vec![0; FRAME_BYTES_MAX];
        let counters = PortCounters::default();
        Self { queue, arrivals: Arrivals::new(context), counters, stopped, frame_bytes_max, frame }
    }
}

impl Receive for Receiver {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        if self.stopped.load(Ordering::Acquire) {
            return Ok(Received::Ended);
        }
        self.arrivals.read_clock();
        for _ in 0..packets_max {
            let bytes = match (&self.queue.file).read(&mut self.frame) {
                Ok(bytes) => bytes,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                // A read fails with EIO while the interface is down. This is not an error, because
                // the interface may come up again.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EBADFD)) => break,
                Err(source) => return Err(Error::system("read from a tap interface", source)),
            };
            if bytes == 0 {
                break;
            }
            if bytes > self.frame_bytes_max {
                self.counters.oversized += 1;
                continue;
            }
            let Some(descriptor) = region.allocate(bytes) else {
                self.counters.missed += 1;
                continue;
            };
            region.frame_mut(&descriptor).copy_from_slice(&self.frame[..bytes]);
            self.counters.received_packets += 1;
            self.counters.received_bytes += bytes as u64;
            self.arrivals.push(region, descriptor, batch);
        }
        self.queue.received.publish(&self.counters);
        Ok(Received::Open)
    }

    fn sequence_next(&self) -> u64 {
        self.arrivals.sequence_next()
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_live(&self) -> bool {
        true
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.file.as_fd())
    }
}

pub(super) struct Transmitter {
    queue: Arc<Queue>,
    counters: PortCounters,
}

impl Transmitter {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, counters: PortCounters::default() }
    }
}

impl Transmit for Transmitter {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let mut accepted = 0;
        for Departure { descriptor, .. } in packets {
            // A write fails if the queue of the interface is full or the interface is down. The
            // packet is then lost.
            if let Ok(bytes) = (&self.queue.file).write(buffers.frame(descriptor)) {
                accepted += 1;
                self.counters.sent_bytes += bytes as u64;
            }
        }
        buffers.release_all(packets);
        self.counters.sent_packets += accepted as u64;
        self.queue.sent.publish(&self.counters);
        Ok(accepted)
    }

    fn settled(&mut self, _sequence: u64) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
