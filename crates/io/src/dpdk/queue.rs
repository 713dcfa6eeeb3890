//! Receive queue and transmit queue of one worker on a DPDK device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_packet::{Batch, Descriptor, Outgoing, Region};
use godwit_wire::MacAddress;

use super::device::Port;
use super::ffi::{self, BAD_CHECKSUM, BURST_MAX, HASHED, Packet, TOO_LONG};
use super::{eal, pool::Pool};
use crate::live::{Arrivals, Arrived};
use crate::{Departure, Error, PortCounters, QueueContext, Receive, Received, Transmit};

/// Number of attempts to send packets while the transmit ring is full. After the last attempt, the
/// queue refuses the remaining packets.
const TRIES: u32 = 64;
/// Maximum number of calls that return packets after the port was stopped. The limit ends the queue
/// even if packets keep arriving.
const LAST_CALLS: u32 = 64;

pub(super) struct ReceiveQueue {
    port: Arc<Port>,
    pool: Arc<Pool>,
    worker: usize,
    arrivals: Arrivals,
    packets: Box<[Packet; BURST_MAX]>,
    counters: PortCounters,
    is_owned: bool,
    /// Number of calls of `receive` since the port was stopped.
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

    /// Appends the first `count` received packets to the batch, except rejected ones.
    #[inline]
    fn take(&mut self, region: &mut Region, batch: &mut Batch, count: usize) -> Result<(), Error> {
        let rejected_flags = if self.port.drop_bad_checksums { TOO_LONG | BAD_CHECKSUM } else { TOO_LONG };
        let frame_bytes_max = self.port.frame_bytes_max;
        // For an empty packet, the subtraction wraps around to the largest integer, so the
        // comparison rejects it.
        let is_rejected = |packet: &Packet| {
            (packet.flags & rejected_flags != 0) | (usize::from(packet.length).wrapping_sub(1) >= frame_bytes_max)
        };
        // Packets are rarely rejected, so one fast check covers all packets.
        let is_any_rejected = self.packets[..count].iter().fold(false, |any, packet| any | is_rejected(packet));
        let count = if is_any_rejected { self.remove_rejected(region, count, is_rejected) } else { count };
        let packets = &self.packets[..count];
        let arrived = |packet: &Packet| Arrived {
            buffer: packet.buffer,
            head: packet.head,
            length: packet.length,
            flow_hash: (packet.flags & HASHED != 0).then_some(packet.flow_hash),
        };
        let taken = self.arrivals.push_arrived(region, packets, arrived, batch);
        if let Some(Packet { buffer, head, length, .. }) = packets.get(taken) {
            let reason =
                format!("the driver wrote {length} bytes at offset {head} of buffer {buffer}, which it does not hold");
            return Err(self.port.fault(reason));
        }
        self.counters.received_bytes += packets.iter().map(|packet| u64::from(packet.length)).sum::<u64>();
        self.counters.received_packets += taken as u64;
        Ok(())
    }

    /// Rejects invalid packets and moves the accepted packets to the front of the array. Returns
    /// the number of accepted packets.
    #[cold]
    fn remove_rejected(&mut self, region: &mut Region, count: usize, is_rejected: impl Fn(&Packet) -> bool) -> usize {
        let mut accepted = 0;
        for index in 0..count {
            let packet = self.packets[index];
            if is_rejected(&packet) {
                self.reject(region, &packet);
            } else {
                self.packets[accepted] = packet;
                accepted += 1;
            }
        }
        accepted
    }

    /// Counts a rejected packet by its reason, and frees its buffer.
    #[cold]
    fn reject(&mut self, region: &mut Region, packet: &Packet) {
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
        let count = packets_max.min(BURST_MAX) as u16;
        // SAFETY: the device is started, and queue and pool belong to this worker. `packets` has
        // room for BURST_MAX packets.
        let received = unsafe {
            ffi::gw_dpdk_receive(
                self.pool.raw(),
                self.port.number(),
                self.worker as u16,
                self.packets.as_mut_ptr(),
                count,
            )
        } as usize;
        if received > 0 {
            self.arrivals.read_clock();
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

    fn station(&self) -> Option<MacAddress> {
        Some(self.port.mac)
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

    /// Sends up to `count` packets. Returns the number of packets that entered the transmit ring.
    fn send(&self, count: usize) -> usize {
        let (number, queue) = (self.port.number(), self.worker as u16);
        let mut sent = 0;
        for _ in 0..TRIES {
            // SAFETY: the device is started, and queue and pool belong to this worker. The buffers
            // were handed over.
            let taken = unsafe {
                let rest = self.packets[sent..].as_ptr();
                ffi::gw_dpdk_transmit(self.pool.raw(), number, queue, rest, (count - sent) as u32)
            };
            sent += taken as usize;
            if sent == count {
                break;
            }
            // SAFETY: the queue belongs to this worker.
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
