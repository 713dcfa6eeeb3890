//! A worker's queues of a device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_packet::{Batch, Descriptor, Outgoing, Region};

use super::device::Port;
use super::ffi::{self, BAD_CHECKSUM, BURST_MAX, HASHED, Packet, TOO_LONG};
use super::{eal, pool::Pool};
use crate::live::{Arrivals, Arrived};
use crate::{Departure, Error, PortCounters, QueueContext, Receive, Received, Transmit};

/// How often a full transmit ring is tried again before what is left is refused.
const TRIES: u32 = 64;
/// Calls after the port was told to stop in which the queue gives what it still holds.
const LAST_CALLS: u32 = 64;

pub(super) struct ReceiveQueue {
    port: Arc<Port>,
    pool: Arc<Pool>,
    worker: usize,
    arrivals: Arrivals,
    packets: Box<[Packet; BURST_MAX]>,
    counters: PortCounters,
    /// Whether the thread that uses it is known.
    is_owned: bool,
    /// Calls since it was told to stop.
    last_calls: u32,
    ended: bool,
}

impl ReceiveQueue {
    pub(super) fn new(port: Arc<Port>, context: QueueContext) -> Self {
        let worker = context.worker;
        Self {
            pool: Arc::clone(&port.pools[worker]),
            port,
            worker,
            arrivals: Arrivals::new(context),
            packets: Box::new([Packet::default(); BURST_MAX]),
            counters: PortCounters::default(),
            is_owned: false,
            last_calls: 0,
            ended: false,
        }
    }

    /// Takes what the device has received: the first `count` packets.
    #[inline]
    fn take(&mut self, region: &mut Region, batch: &mut Batch, count: usize) -> Result<(), Error> {
        let unwanted = if self.port.drop_bad_checksums { TOO_LONG | BAD_CHECKSUM } else { TOO_LONG };
        let frame_bytes_max = self.port.frame_bytes_max;
        // Length 0 wraps to a number beyond all lengths.
        let is_unwanted = |packet: &Packet| {
            (packet.flags & unwanted != 0) | (usize::from(packet.length).wrapping_sub(1) >= frame_bytes_max)
        };
        // Nearly always there is none.
        let is_any_unwanted = self.packets[..count].iter().fold(false, |any, packet| any | is_unwanted(packet));
        let count = if is_any_unwanted { self.sort_out(region, count, is_unwanted) } else { count };
        let packets = &self.packets[..count];
        let arrived = |packet: &Packet| Arrived {
            buffer: packet.buffer,
            head: packet.head,
            length: packet.length,
            flow_hash: (packet.flags & HASHED != 0).then_some(packet.flow_hash),
        };
        let taken = self.arrivals.push_arrived(region, packets, arrived, batch);
        if let Some(Packet { buffer, head, length, .. }) = packets.get(taken) {
            let what =
                format!("its driver has written {length} bytes at {head} of {buffer}, which is no buffer that it has");
            return Err(self.port.fault(what));
        }
        self.counters.received_bytes += packets.iter().map(|packet| u64::from(packet.length)).sum::<u64>();
        self.counters.received_packets += taken as u64;
        Ok(())
    }

    /// Moves packets that enter to the front, and passes over the others; returns how many enter.
    #[cold]
    fn sort_out(&mut self, region: &mut Region, count: usize, is_unwanted: impl Fn(&Packet) -> bool) -> usize {
        let mut wanted = 0;
        for index in 0..count {
            let packet = self.packets[index];
            if is_unwanted(&packet) {
                self.pass_over(region, &packet);
            } else {
                self.packets[wanted] = packet;
                wanted += 1;
            }
        }
        wanted
    }

    /// A packet that does not enter: its buffer goes back.
    #[cold]
    fn pass_over(&mut self, region: &mut Region, packet: &Packet) {
        if packet.flags & TOO_LONG != 0 || usize::from(packet.length) > self.port.frame_bytes_max {
            self.counters.oversized += 1;
        } else if packet.length == 0 {
            self.counters.empty += 1;
        } else {
            self.counters.bad_checksum += 1;
        }
        if packet.buffer != u32::MAX {
            region.reclaim(packet.buffer);
        }
    }
}

impl Receive for ReceiveQueue {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        if !self.is_owned {
            self.is_owned = true;
            eal::register_thread();
            self.pool.own();
        }
        if self.ended {
            return Ok(Received::Ended);
        }
        self.pool.balance(region);
        let wanted = packets_max.min(BURST_MAX) as u16;
        // SAFETY: this worker's queue of a device that is started, and its pool; room for BURST_MAX packets.
        let received = unsafe {
            ffi::gw_dpdk_receive(
                self.pool.raw(),
                self.port.number(),
                self.worker as u16,
                self.packets.as_mut_ptr(),
                wanted,
            )
        } as usize;
        if received > 0 {
            self.arrivals.turn();
            self.take(region, batch, received)?;
            self.port.counters[self.worker][0].publish(&self.counters);
        }
        if self.port.stopped.load(Ordering::Relaxed) {
            self.last_calls += 1;
            self.ended = received == 0 || self.last_calls == LAST_CALLS;
        }
        Ok(if self.ended { Received::Ended } else { Received::Open })
    }

    fn sequence_next(&self) -> u64 {
        if self.ended { u64::MAX } else { self.arrivals.sequence_next() }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_live(&self) -> bool {
        true
    }
}

pub(super) struct TransmitQueue {
    port: Arc<Port>,
    pool: Arc<Pool>,
    worker: usize,
    packets: Box<[Packet; BURST_MAX]>,
    counters: PortCounters,
    is_known: bool,
}

impl TransmitQueue {
    pub(super) fn new(port: Arc<Port>, worker: usize) -> Self {
        Self {
            pool: Arc::clone(&port.pools[worker]),
            port,
            worker,
            packets: Box::new([Packet::default(); BURST_MAX]),
            counters: PortCounters::default(),
            is_known: false,
        }
    }

    /// Sends `count` packets; what does not find room in a while comes back.
    fn send(&self, count: usize) -> usize {
        let (number, queue) = (self.port.number(), self.worker as u16);
        let mut sent = 0;
        for _ in 0..TRIES {
            // SAFETY: this worker's queue of a device that is started, and its pool; the buffers were handed over.
            let taken = unsafe {
                let rest = self.packets[sent..].as_ptr();
                ffi::gw_dpdk_transmit(self.pool.raw(), number, queue, rest, (count - sent) as u32)
            };
            sent += taken as usize;
            if sent == count {
                break;
            }
            // SAFETY: this worker's queue.
            unsafe { ffi::gw_dpdk_clean(number, queue) };
        }
        sent
    }
}

impl Transmit for TransmitQueue {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let sent_bytes_max = self.port.sent_bytes_max.load(Ordering::Relaxed);
        let mut accepted = 0;
        for burst in packets.chunks(BURST_MAX) {
            let (mut count, mut bytes) = (0, 0);
            let fits = |descriptor: &&Descriptor| usize::from(descriptor.length) <= sent_bytes_max;
            let descriptors = burst.iter().map(|departure| &departure.descriptor);
            buffers.hand_over_all(descriptors.clone().filter(fits).inspect(|descriptor| {
                let Descriptor { buffer, head, length, .. } = **descriptor;
                self.packets[count] = Packet { buffer, head, length, ..Packet::default() };
                bytes += u64::from(length);
                count += 1;
            }));
            if count < burst.len() {
                self.counters.over_mtu += (burst.len() - count) as u64;
                descriptors.filter(|descriptor| !fits(descriptor)).for_each(|descriptor| buffers.release(descriptor));
            }
            let sent = self.send(count);
            accepted += sent;
            for packet in &self.packets[sent..count] {
                bytes -= u64::from(packet.length);
                buffers.reclaim(packet.buffer);
            }
            self.counters.sent_packets += sent as u64;
            self.counters.sent_bytes += bytes;
            self.counters.refused += (burst.len() - sent) as u64;
        }
        self.port.counters[self.worker][1].publish(&self.counters);
        Ok(accepted)
    }

    fn service(&mut self, buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        if !self.is_known {
            self.is_known = true;
            eal::register_thread();
            if matches!(buffers, Outgoing::Own(_)) {
                self.pool.own();
            }
        }
        self.pool.collect(buffers);
        Ok(())
    }

    fn settled(&mut self, _sequence: u64) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
