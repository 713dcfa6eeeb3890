//! A worker's queues of a device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_packet::{Batch, Outgoing, Region, WINDOW_UNIT_BYTES};

use super::device::Port;
use super::ffi::{self, BAD_CHECKSUM, BURST_MAX, HASHED, Packet, TOO_LONG};
use super::{eal, pool::Pool};
use crate::live::Arrivals;
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

    /// A packet that does not enter: its window goes back.
    #[cold]
    fn pass_over(&mut self, region: &mut Region, packet: &Packet) {
        if packet.flags & TOO_LONG != 0 || usize::from(packet.length) > self.port.frame_bytes_max {
            self.counters.oversized += 1;
        } else if packet.length == 0 {
            self.counters.empty += 1;
        } else {
            self.counters.bad_checksum += 1;
        }
        if packet.window != u32::MAX {
            region.reclaim(packet.window);
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
            let unwanted = if self.port.drop_bad_checksums { TOO_LONG | BAD_CHECKSUM } else { TOO_LONG };
            for index in 0..received {
                let packet = self.packets[index];
                let length = usize::from(packet.length);
                if packet.flags & unwanted != 0 || length == 0 || length > self.port.frame_bytes_max {
                    self.pass_over(region, &packet);
                    continue;
                }
                let offset = packet.window as usize * WINDOW_UNIT_BYTES + usize::from(packet.head);
                let Some(mut descriptor) = region.arrived(offset, length) else {
                    let what = format!("its driver has written {length} bytes at {offset}, outside of its windows");
                    return Err(self.port.fault(what));
                };
                self.counters.received_bytes += u64::from(packet.length);
                self.counters.received_packets += 1;
                if packet.flags & HASHED != 0 {
                    descriptor.flow_hash = packet.flow_hash;
                    self.arrivals.push_hashed(descriptor, batch);
                } else {
                    self.arrivals.push(region, descriptor, batch);
                }
            }
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
            // SAFETY: this worker's queue of a device that is started, and its pool; the windows were handed over.
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
    fn transmit(&mut self, windows: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let sent_bytes_max = self.port.sent_bytes_max.load(Ordering::Relaxed);
        let mut accepted = 0;
        for burst in packets.chunks(BURST_MAX) {
            let (mut count, mut bytes) = (0, 0);
            for Departure { descriptor, .. } in burst {
                if usize::from(descriptor.length) > sent_bytes_max {
                    self.counters.over_mtu += 1;
                    windows.release(descriptor);
                    continue;
                }
                windows.hand_over(descriptor);
                bytes += u64::from(descriptor.length);
                self.packets[count] = Packet {
                    window: descriptor.window,
                    head: descriptor.head,
                    length: descriptor.length,
                    ..Packet::default()
                };
                count += 1;
            }
            let sent = self.send(count);
            accepted += sent;
            for packet in &self.packets[sent..count] {
                bytes -= u64::from(packet.length);
                windows.reclaim(packet.window);
            }
            self.counters.sent_packets += sent as u64;
            self.counters.sent_bytes += bytes;
            self.counters.refused += (burst.len() - sent) as u64;
        }
        self.port.counters[self.worker][1].publish(&self.counters);
        Ok(accepted)
    }

    fn service(&mut self, windows: &mut Outgoing<'_>) -> Result<(), Error> {
        if !self.is_known {
            self.is_known = true;
            eal::register_thread();
            if matches!(windows, Outgoing::Own(_)) {
                self.pool.own();
            }
        }
        self.pool.collect(windows);
        Ok(())
    }

    fn settled(&mut self, _sequence: u64) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
