//! A worker's queues: buffers that go to the kernel and come back.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_packet::{Batch, Outgoing, Region};

use super::port::{Pair, Shared};
use super::socket::{Inbound, Outbound, Socket};
use crate::live::Arrivals;
use crate::{Departure, Error, PortCounters, Receive, Received, Transmit};

/// Buffers are posted so many at a time: each time costs a write that the driver's core has to fetch.
const POST_BUFFERS: usize = 64;
/// System calls with which one burst is sent at most.
const KICKS_MAX: usize = 64;
/// Turns between system calls while the interface takes nothing.
const TURNS_BETWEEN_KICKS: u32 = 256;
/// Ethernet header and one VLAN tag: what a frame has beside what the MTU counts.
const HEADER_BYTES: usize = 18;

/// Which slots of a region are in the kernel's hands.
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

    /// A buffer is given as the distance of its start from the region's.
    #[inline]
    fn insert(&mut self, place: usize) {
        let slot = place / self.slot_bytes;
        self.words[slot / 64] |= 1 << (slot % 64);
        self.count += 1;
    }

    /// False where it is not there.
    #[inline]
    fn remove(&mut self, place: usize) -> bool {
        let slot = place / self.slot_bytes;
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

    /// All of them, as buffers of the arena; none is left.
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

/// The buffer at this offset from the arena's base.
fn buffer(offset: usize) -> u32 {
    (offset / godwit_packet::BUFFER_UNIT_BYTES) as u32
}

/// The socket's half that receives.
pub(super) struct ReceiveQueue {
    shared: Arc<Shared>,
    pair: Arc<Pair>,
    socket: Arc<Socket>,
    inbound: Inbound,
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
        let (socket, inbound, generation) = pair.take_inbound()?;
        let settings = &shared.settings;
        let mut queue = Self {
            posted: Slots::new(&pair.region, settings.slot_bytes),
            posted_max: settings.config.rx_packets as usize,
            frame_bytes_max: settings.frame_bytes_max,
            busy_poll: settings.config.busy_poll,
            shared,
            pair,
            socket,
            inbound,
            generation,
            arrivals,
            counters: PortCounters::default(),
        };
        queue.post(region, 1);
        Ok(queue)
    }

    /// Gives the kernel buffers to write into, as soon as there is room for `least`.
    fn post(&mut self, region: &mut Region, least: usize) {
        let room = self.posted_max - self.posted.count;
        if room < least {
            return;
        }
        let room = room.min(self.inbound.fill.free(room as u32) as usize);
        for _ in 0..room {
            let Some(buffer) = region.post() else { break };
            let place = buffer as usize * godwit_packet::BUFFER_UNIT_BYTES - self.pair.region.start;
            self.posted.insert(place);
            self.inbound.fill.push(place as u64);
        }
        self.inbound.fill.submit();
    }

    /// The interface was gone and is back: another socket, and the buffers that the old one had are free.
    #[cold]
    fn renew(&mut self, region: &mut Region) {
        let Ok((socket, inbound, generation)) = self.pair.take_inbound() else { return };
        (self.socket, self.inbound, self.generation) = (socket, inbound, generation);
        self.posted.take_all().into_iter().for_each(|buffer| region.reclaim(buffer));
        self.post(region, 1);
    }
}

impl Receive for ReceiveQueue {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        if self.generation != self.pair.generation.load(Ordering::Relaxed) {
            self.renew(region);
        }
        if self.busy_poll || self.inbound.fill.needs_wakeup() {
            self.socket.kick_receive();
        }
        self.arrivals.turn();
        // Read before the ring is looked at: what the kernel put there before the port was stopped is seen.
        let is_stopped = self.shared.stopped.load(Ordering::Acquire);
        let packets = (self.inbound.received.available() as usize).min(packets_max);
        if packets == 0 {
            self.post(region, POST_BUFFERS);
            return Ok(if is_stopped { Received::Ended } else { Received::Open });
        }
        let mut bytes = 0;
        for _ in 0..packets {
            let libc::xdp_desc { addr, len, .. } = self.inbound.received.pop();
            let (place, length) = (addr as usize, len as usize);
            let start = place - place % self.posted.slot_bytes;
            if !self.posted.remove(start) {
                return Err(Error::Port(format!("the kernel names a buffer that it does not have: {place:#x}")));
            }
            let offset = self.pair.region.start + place;
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
        self.inbound.received.release();
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

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }
}

/// Frees the buffer of a frame that is not taken.
#[cold]
fn give_back(region: &mut Region, offset: usize, start: usize) {
    // A frame that fits its buffer has become a packet of it by now.
    match region.arrived(offset, 0) {
        Some(descriptor) => region.release(&descriptor),
        None => region.reclaim(buffer(start)),
    }
}

/// The socket's half that sends.
pub(super) struct TransmitQueue {
    shared: Arc<Shared>,
    pair: Arc<Pair>,
    socket: Arc<Socket>,
    outbound: Outbound,
    generation: u32,
    handed_over: Slots,
    slots_max: usize,
    /// Turns until the kernel is asked again to send what it did not.
    kick_in: u32,
    counters: PortCounters,
}

impl TransmitQueue {
    pub(super) fn new(shared: Arc<Shared>, pair: Arc<Pair>) -> Result<Self, Error> {
        let (socket, outbound, generation) = pair.take_outbound()?;
        let settings = &shared.settings;
        Ok(Self {
            handed_over: Slots::new(&pair.region, settings.slot_bytes),
            slots_max: settings.config.tx_packets as usize,
            shared,
            pair,
            socket,
            outbound,
            generation,
            kick_in: 0,
            counters: PortCounters::default(),
        })
    }

    /// Takes buffers back that the kernel has read.
    #[inline]
    fn reclaim(&mut self, buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        let count = self.outbound.completed.available();
        if count == 0 {
            return Ok(());
        }
        for _ in 0..count {
            let place = self.outbound.completed.pop() as usize;
            let start = place - place % self.handed_over.slot_bytes;
            if !self.handed_over.remove(start) {
                return Err(Error::Port(format!("the kernel gives back a buffer that it does not have: {place:#x}")));
            }
            buffers.reclaim(buffer(self.pair.region.start + start));
        }
        self.outbound.completed.release();
        Ok(())
    }

    /// Has the kernel send. What it cannot send now stays in the ring.
    fn kick(&mut self) -> Result<(), Error> {
        for _ in 0..KICKS_MAX {
            if !self.outbound.send.is_pending() || !self.outbound.send.needs_wakeup() {
                return Ok(());
            }
            let Err(error) = self.socket.kick_send() else { continue };
            match error.raw_os_error() {
                // More than it sends in one call.
                Some(libc::EAGAIN) => {}
                // The queue of the interface is full.
                Some(libc::EBUSY | libc::ENOBUFS) => return Ok(()),
                // The link is down, or the interface gone: later, perhaps with another socket.
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EINTR) => {
                    self.kick_in = TURNS_BETWEEN_KICKS;
                    return Ok(());
                }
                _ => return Err(Error::system(format!("send by {}", self.shared.settings.config.interface), error)),
            }
        }
        Ok(())
    }

    #[cold]
    fn renew(&mut self, buffers: &mut Outgoing<'_>) {
        let Ok((socket, outbound, generation)) = self.pair.take_outbound() else { return };
        (self.socket, self.outbound, self.generation) = (socket, outbound, generation);
        self.handed_over.take_all().into_iter().for_each(|buffer| buffers.reclaim(buffer));
    }

    /// Room for one more, after asking the kernel for it.
    #[cold]
    fn make_room(&mut self, buffers: &mut Outgoing<'_>) -> Result<bool, Error> {
        self.outbound.send.submit();
        self.kick()?;
        self.reclaim(buffers)?;
        Ok(self.handed_over.count < self.slots_max)
    }
}

impl Transmit for TransmitQueue {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let frame_bytes_max = self.shared.mtu.load(Ordering::Relaxed) + HEADER_BYTES;
        let (mut accepted, mut bytes) = (0, 0);
        let mut is_full = false;
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
            let place = descriptor.frame_offset() - self.pair.region.start;
            buffers.hand_over(descriptor);
            self.handed_over.insert(descriptor.buffer_offset() - self.pair.region.start);
            // As many completions are outstanding at most as the ring has entries, so one is free.
            self.outbound.send.free(1);
            self.outbound.send.push(libc::xdp_desc { addr: place as u64, len: descriptor.length.into(), options: 0 });
            accepted += 1;
            bytes += u64::from(descriptor.length);
        }
        self.outbound.send.submit();
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
        if self.kick_in == 0 && self.outbound.send.is_pending() { self.kick() } else { Ok(()) }
    }

    fn settled(&mut self, sequence: u64) -> Result<(), Error> {
        if sequence == u64::MAX {
            // The last packets: a socket that is closed sends nothing more.
            for _ in 0..TURNS_BETWEEN_KICKS {
                self.kick()?;
                if !self.outbound.send.is_pending() {
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
