//! Receive queue and transmit queue of one worker on an AF_XDP socket. Packet buffers circulate
//! between these queues and the kernel.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_packet::{Batch, Outgoing, Region};
use godwit_wire::MacAddress;

use super::port::{Pair, Shared};
use super::socket::{ReceiveRings, Socket, TransmitRings};
use crate::live::Arrivals;
use crate::{Departure, Error, PortCounters, Receive, Received, Transmit};

/// Minimum number of buffers that the kernel gets at once. Each transfer makes the driver's core
/// fetch a cache line, so large transfers cost less.
const POST_BUFFERS: usize = 64;
/// Maximum number of system calls for sending one burst of packets.
const KICKS_MAX: usize = 64;
/// Number of worker loop iterations between two attempts to send while the interface accepts no
/// packets. Each attempt costs a system call.
const LOOPS_BETWEEN_KICKS: u32 = 256;
/// Length in bytes of an Ethernet header with one VLAN tag. The MTU does not count this header.
const HEADER_BYTES: usize = 18;

/// Set of the worker's buffers that the kernel holds.
struct Slots {
    start: usize,
    slot_bytes: usize,
    words: Vec<u64>,
    count: usize,
}

impl Slots {
    fn new(region: &Range<usize>, slot_bytes: usize) -> Self {
        let slots = region.len() / slot_bytes;
        Self { start: region.start, slot_bytes, words: vec![0; slots.div_ceil(64)], count: 0 }
    }

    /// Adds the buffer at `offset`, counted in bytes from the start of the worker's memory.
    #[inline]
    fn insert(&mut self, offset: usize) {
        let slot = offset / self.slot_bytes;
        self.words[slot / 64] |= 1 << (slot % 64);
        self.count += 1;
    }

    /// Removes a buffer. Returns `false` if the set does not contain it.
    #[inline]
    fn remove(&mut self, offset: usize) -> bool {
        let slot = offset / self.slot_bytes;
        let bit = 1 << (slot % 64);
        match self.words.get_mut(slot / 64) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Removes all buffers and returns their numbers.
    fn take_all(&mut self) -> Vec<u32> {
        let mut buffers = Vec::with_capacity(self.count);
        for (index, word) in self.words.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                let slot = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                buffers.push(buffer(self.start + slot * self.slot_bytes));
            }
        }
        self.count = 0;
        buffers
    }
}

/// Returns the number of the buffer at `offset`, counted in bytes from the start of the packet
/// memory.
fn buffer(offset: usize) -> u32 {
    (offset / godwit_packet::BUFFER_UNIT_BYTES) as u32
}

/// Receive queue of one worker, with the fill ring and the RX ring of the worker's AF_XDP socket.
pub(super) struct ReceiveQueue {
    shared: Arc<Shared>,
    pair: Arc<Pair>,
    socket: Arc<Socket>,
    receive_rings: ReceiveRings,
    generation: u32,
    posted: Slots,
    posted_max: usize,
    frame_bytes_max: usize,
    busy_poll: bool,
    arrivals: Arrivals,
    counters: PortCounters,
}

impl ReceiveQueue {
    pub(super) fn new(
        shared: Arc<Shared>,
        pair: Arc<Pair>,
        arrivals: Arrivals,
        region: &mut Region,
    ) -> Result<Self, Error> {
        let (socket, receive_rings, generation) = pair.take_receive_rings()?;
        let settings = &shared.settings;
        let mut queue = Self {
            posted: Slots::new(&pair.region, settings.slot_bytes),
            posted_max: settings.config.rx_packets as usize,
            frame_bytes_max: settings.frame_bytes_max,
            busy_poll: settings.config.busy_poll,
            shared,
            pair,
            socket,
            receive_rings,
            generation,
            arrivals,
            counters: PortCounters::default(),
        };
        queue.post(region, 1);
        Ok(queue)
    }

    /// Gives free buffers to the kernel for received frames, if the kernel needs at least
    /// `buffers_min` buffers.
    fn post(&mut self, region: &mut Region, buffers_min: usize) {
        let room = self.posted_max - self.posted.count;
        if room < buffers_min {
            return;
        }
        let room = room.min(self.receive_rings.fill.free(room as u32) as usize);
        for _ in 0..room {
            let Some(buffer) = region.post() else { break };
            let region_offset = buffer as usize * godwit_packet::BUFFER_UNIT_BYTES - self.pair.region.start;
            self.posted.insert(region_offset);
            self.receive_rings.fill.push(region_offset as u64);
        }
        self.receive_rings.fill.submit();
    }

    /// Switches to the new socket after the interface was replaced. Frees the buffers of the old
    /// socket.
    #[cold]
    fn renew(&mut self, region: &mut Region) {
        let Ok((socket, receive_rings, generation)) = self.pair.take_receive_rings() else { return };
        (self.socket, self.receive_rings, self.generation) = (socket, receive_rings, generation);
        self.posted.take_all().into_iter().for_each(|buffer| region.reclaim(buffer));
        self.post(region, 1);
    }
}

impl Receive for ReceiveQueue {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        if self.generation != self.pair.generation.load(Ordering::Relaxed) {
            self.renew(region);
        }
        if self.busy_poll || self.receive_rings.fill.needs_wakeup() {
            self.socket.kick_receive();
        }
        self.arrivals.read_clock();
        // The stop flag is read before the RX ring. The loop then finds all packets that the kernel
        // wrote before the stop.
        let is_stopped = self.shared.stopped.load(Ordering::Acquire);
        let packets = (self.receive_rings.received.available() as usize).min(packets_max);
        if packets == 0 {
            self.post(region, POST_BUFFERS);
            return Ok(if is_stopped { Received::Ended } else { Received::Open });
        }
        let mut bytes = 0;
        for _ in 0..packets {
            let libc::xdp_desc { addr, len, .. } = self.receive_rings.received.pop();
            let (region_offset, length) = (addr as usize, len as usize);
            let start = region_offset - region_offset % self.posted.slot_bytes;
            if !self.posted.remove(start) {
                return Err(Error::Port(format!(
                    "the kernel returned a buffer that it does not hold: {region_offset:#x}"
                )));
            }
            let offset = self.pair.region.start + region_offset;
            let fits = length <= self.frame_bytes_max;
            match region.arrived(offset, length).filter(|_| fits) {
                Some(descriptor) if length > 0 => {
                    bytes += u64::from(len);
                    self.counters.received_packets += 1;
                    self.arrivals.push(region, descriptor, batch);
                }
                Some(descriptor) => {
                    self.counters.empty += 1;
                    region.release(&descriptor);
                }
                None => {
                    self.counters.oversized += 1;
                    give_back(region, offset, start + self.pair.region.start);
                }
            }
        }
        self.receive_rings.received.release();
        self.counters.received_bytes += bytes;
        self.post(region, POST_BUFFERS);
        self.pair.received.publish(&self.counters);
        Ok(Received::Open)
    }

    fn sequence_next(&self) -> u64 {
        self.arrivals.sequence_next()
    }

    fn counters(&self) -> PortCounters {
        let left_to_kernel = self.shared.left_to_kernel.load(Ordering::Relaxed);
        let left_to_kernel = if self.pair.is_first { left_to_kernel } else { 0 };
        PortCounters { missed: self.pair.missed(), left_to_kernel, ..self.counters }
    }

    fn is_live(&self) -> bool {
        true
    }

    fn station(&self) -> Option<MacAddress> {
        let [_, _, mac @ ..] = self.shared.mac.load(Ordering::Relaxed).to_be_bytes();
        Some(MacAddress(mac))
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }
}

/// Frees the buffer of a frame that was not accepted.
#[cold]
fn give_back(region: &mut Region, offset: usize, start: usize) {
    match region.arrived(offset, 0) {
        Some(descriptor) => region.release(&descriptor),
        None => region.reclaim(buffer(start)),
    }
}

/// Transmit queue of one worker, with the TX ring and the completion ring of the worker's AF_XDP
/// socket.
pub(super) struct TransmitQueue {
    shared: Arc<Shared>,
    pair: Arc<Pair>,
    socket: Arc<Socket>,
    transmit_rings: TransmitRings,
    generation: u32,
    handed_over: Slots,
    slots_max: usize,
    /// Number of loop iterations until the worker asks the kernel to send again.
    kick_in: u32,
    counters: PortCounters,
}

impl TransmitQueue {
    pub(super) fn new(shared: Arc<Shared>, pair: Arc<Pair>) -> Result<Self, Error> {
        let (socket, transmit_rings, generation) = pair.take_transmit_rings()?;
        let settings = &shared.settings;
        Ok(Self {
            handed_over: Slots::new(&pair.region, settings.slot_bytes),
            slots_max: settings.config.tx_packets as usize,
            shared,
            pair,
            socket,
            transmit_rings,
            generation,
            kick_in: 0,
            counters: PortCounters::default(),
        })
    }

    /// Takes back the buffers of packets that the kernel has sent.
    #[inline]
    fn reclaim(&mut self, buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        let count = self.transmit_rings.completed.available();
        if count == 0 {
            return Ok(());
        }
        for _ in 0..count {
            let region_offset = self.transmit_rings.completed.pop() as usize;
            let start = region_offset - region_offset % self.handed_over.slot_bytes;
            if !self.handed_over.remove(start) {
                return Err(Error::Port(format!(
                    "the kernel completed a buffer that it does not hold: {region_offset:#x}"
                )));
            }
            buffers.reclaim(buffer(self.pair.region.start + start));
        }
        self.transmit_rings.completed.release();
        Ok(())
    }

    /// Makes the kernel send the packets in the TX ring. Packets that it cannot send now stay in
    /// the ring.
    fn kick(&mut self) -> Result<(), Error> {
        for _ in 0..KICKS_MAX {
            if !self.transmit_rings.send.is_pending() || !self.transmit_rings.send.needs_wakeup() {
                return Ok(());
            }
            let Err(error) = self.socket.kick_send() else { continue };
            match error.raw_os_error() {
                // The kernel has sent the maximum number of packets per call.
                Some(libc::EAGAIN) => {}
                // The transmit queue of the interface is full.
                Some(libc::EBUSY | libc::ENOBUFS) => return Ok(()),
                // The link is down, or the interface has disappeared. A later call tries again,
                // perhaps on a new socket.
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EINTR) => {
                    self.kick_in = LOOPS_BETWEEN_KICKS;
                    return Ok(());
                }
                _ => return Err(Error::system(format!("send on {}", self.shared.settings.config.interface), error)),
            }
        }
        Ok(())
    }

    #[cold]
    fn renew(&mut self, buffers: &mut Outgoing<'_>) {
        let Ok((socket, transmit_rings, generation)) = self.pair.take_transmit_rings() else { return };
        (self.socket, self.transmit_rings, self.generation) = (socket, transmit_rings, generation);
        self.handed_over.take_all().into_iter().for_each(|buffer| buffers.reclaim(buffer));
    }

    /// Makes the kernel send packets to free entries of the TX ring. Returns whether the ring has
    /// room for one more packet.
    #[cold]
    fn make_room(&mut self, buffers: &mut Outgoing<'_>) -> Result<bool, Error> {
        self.transmit_rings.send.submit();
        self.kick()?;
        self.reclaim(buffers)?;
        Ok(self.handed_over.count < self.slots_max)
    }
}

impl Transmit for TransmitQueue {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let frame_bytes_max = self.shared.mtu.load(Ordering::Relaxed) + HEADER_BYTES;
        let (mut accepted, mut bytes) = (0, 0);
        // An interface whose link is down accepts no packets.
        let mut is_full = !self.shared.is_up.load(Ordering::Relaxed);
        for Departure { descriptor, .. } in packets {
            let is_long = usize::from(descriptor.length) > frame_bytes_max;
            if !is_long && !is_full && self.handed_over.count == self.slots_max {
                is_full = !self.make_room(buffers)?;
            }
            if is_long || is_full {
                self.counters.over_mtu += u64::from(is_long);
                self.counters.refused += 1;
                buffers.release(descriptor);
                continue;
            }
            let region_offset = descriptor.frame_offset() - self.pair.region.start;
            buffers.hand_over(descriptor);
            self.handed_over.insert(descriptor.buffer_offset() - self.pair.region.start);
            // The kernel holds fewer packets than the ring has entries, so at least one entry is
            // free.
            self.transmit_rings.send.free(1);
            self.transmit_rings.send.push(libc::xdp_desc {
                addr: region_offset as u64,
                len: descriptor.length.into(),
                options: 0,
            });
            accepted += 1;
            bytes += u64::from(descriptor.length);
        }
        self.transmit_rings.send.submit();
        if self.kick_in == 0 {
            self.kick()?;
        }
        self.counters.sent_packets += accepted as u64;
        self.counters.sent_bytes += bytes;
        self.pair.sent.publish(&self.counters);
        Ok(accepted)
    }

    fn service(&mut self, buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        if self.generation != self.pair.generation.load(Ordering::Relaxed) {
            self.renew(buffers);
        }
        if self.handed_over.count == 0 {
            return Ok(());
        }
        self.reclaim(buffers)?;
        self.kick_in = self.kick_in.saturating_sub(1);
        if self.kick_in == 0 && self.transmit_rings.send.is_pending() { self.kick() } else { Ok(()) }
    }

    fn settled(&mut self, sequence: u64) -> Result<(), Error> {
        if sequence == u64::MAX {
            // A closed socket sends nothing more, so the loop waits until the kernel has sent the
            // last packets.
            for _ in 0..LOOPS_BETWEEN_KICKS {
                self.kick()?;
                if !self.transmit_rings.send.is_pending() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
