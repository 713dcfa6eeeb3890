//! One worker's part of the arena: allocate, reach and return windows. No locks, no atomics.

use std::sync::Arc;

use crate::{ArenaConfig, Descriptor, Layout, Memory, WINDOW_UNIT_BYTES};

/// One worker's part of the arena.
///
/// Every access checks the descriptor against the region, so a descriptor that is wrong panics
/// instead of reaching another worker's packets: it is a bug, never bad input.
#[derive(Debug)]
pub struct Region {
    memory: Arc<Memory>,
    start: usize,
    bytes: usize,
    headroom_bytes: usize,
    tailroom_bytes: usize,
    frame_bytes_max: usize,
    windows: Windows,
    allocated: usize,
}

#[derive(Debug)]
enum Windows {
    Slots(Slots),
    Dense(Dense),
}

/// A stack of free slots: the slot freed last is still in the cache.
#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    room: u8,
}

/// A ring of windows, in units of 64 bytes from the region's start.
///
/// ```text
/// 0        tail            head          end
/// |  free  | windows in use |    free    |
/// ```
#[derive(Debug)]
struct Dense {
    /// For the first unit of a returned window (or of a gap at the end): its units. 0: in use.
    returned: Vec<u32>,
    align_units: usize,
    head: usize,
    tail: usize,
    used: usize,
}

impl Region {
    pub(crate) fn new(memory: Arc<Memory>, start: usize, bytes: usize, config: &ArenaConfig) -> Self {
        let windows = match config.layout {
            Layout::Slots => Windows::Slots(Slots {
                free: (0..config.packets)
                    .rev()
                    .map(|slot| ((start + slot * config.slot_stride_bytes()) / WINDOW_UNIT_BYTES) as u32)
                    .collect(),
                room: (config.window_bytes() / WINDOW_UNIT_BYTES) as u8,
            }),
            Layout::Dense => Windows::Dense(Dense {
                returned: vec![0; bytes / WINDOW_UNIT_BYTES],
                align_units: config.align_bytes / WINDOW_UNIT_BYTES,
                head: 0,
                tail: 0,
                used: 0,
            }),
        };
        Self {
            memory,
            start,
            bytes,
            headroom_bytes: config.headroom_bytes,
            tailroom_bytes: config.tailroom_bytes,
            frame_bytes_max: config.frame_bytes_max,
            windows,
            allocated: 0,
        }
    }

    /// A window for a frame of `length` bytes, its head set behind the headroom.
    /// The content is whatever was there before. `None` when the region is full or the frame is longer than `frame_bytes_max`.
    #[inline(always)]
    pub fn allocate(&mut self, length: usize) -> Option<Descriptor> {
        if length > self.frame_bytes_max {
            return None;
        }
        let (window, room) = match &mut self.windows {
            Windows::Slots(slots) => (slots.free.pop()?, slots.room),
            Windows::Dense(dense) => {
                let bytes = self.headroom_bytes + length + self.tailroom_bytes;
                let (unit, units) = dense.allocate(bytes.div_ceil(WINDOW_UNIT_BYTES))?;
                ((self.start / WINDOW_UNIT_BYTES + unit) as u32, units)
            }
        };
        self.allocated += 1;
        let (head, length) = (self.headroom_bytes as u16, length as u16);
        Some(Descriptor { window, head, length, room, ..Descriptor::default() })
    }

    /// Returns a window. Each allocated window is returned exactly once.
    #[inline]
    pub fn release(&mut self, descriptor: &Descriptor) {
        debug_assert!(self.contains(descriptor));
        debug_assert!(self.allocated > 0, "a window was returned twice");
        self.allocated -= 1;
        match &mut self.windows {
            Windows::Slots(slots) => slots.free.push(descriptor.window),
            Windows::Dense(dense) => {
                let unit = descriptor.window as usize - self.start / WINDOW_UNIT_BYTES;
                dense.release(unit, u32::from(descriptor.room));
            }
        }
    }

    /// Windows allocated and not yet returned.
    pub fn allocated(&self) -> usize {
        self.allocated
    }

    /// Longest frame that [`Region::allocate`] accepts, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Whether the descriptor names a window of this region and its frame lies within the window.
    #[inline]
    pub fn contains(&self, descriptor: &Descriptor) -> bool {
        let offset = descriptor.window_offset().wrapping_sub(self.start);
        offset < self.bytes
            && descriptor.room_bytes() <= self.bytes - offset
            && usize::from(descriptor.head) + usize::from(descriptor.length) <= descriptor.room_bytes()
    }

    /// The frame.
    ///
    /// # Panics
    /// When the descriptor is not of this region.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: checked to lie inside this region, which only this Region reaches, and `&self` forbids writers. A device
        // reaches only packets that were submitted to it; a worker does not look at those until it has them back.
        unsafe {
            let frame = self.memory.base().as_ptr().add(descriptor.frame_offset());
            std::slice::from_raw_parts(frame, usize::from(descriptor.length))
        }
    }

    /// The frame, to be written.
    ///
    /// # Panics
    /// When the descriptor is not of this region.
    #[inline]
    pub fn frame_mut(&mut self, descriptor: &Descriptor) -> &mut [u8] {
        let (head, length) = (usize::from(descriptor.head), usize::from(descriptor.length));
        &mut self.window_mut(descriptor)[head..head + length]
    }

    /// The whole window: headroom, frame and tailroom.
    ///
    /// # Panics
    /// When the descriptor is not of this region.
    #[inline]
    pub fn window_mut(&mut self, descriptor: &Descriptor) -> &mut [u8] {
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: checked to lie inside this region; only this Region reaches it, and `&mut self` makes this the only reference.
        unsafe {
            let window = self.memory.base().as_ptr().add(descriptor.window_offset());
            std::slice::from_raw_parts_mut(window, descriptor.room_bytes())
        }
    }

    /// The arena's base address, which descriptors count from. A device may touch only windows that this region contains,
    /// and only while it has `&mut Region` or the packets are in its hands.
    pub fn arena_base(&mut self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    /// This region's place in the arena: offset and size in bytes.
    pub fn extent(&self) -> (usize, usize) {
        (self.start, self.bytes)
    }
}

/// Out of line and by value: a reference would force every descriptor into memory before it is read back whole,
/// which costs a stalled load a packet.
#[cold]
#[inline(never)]
fn outside(descriptor: Descriptor) -> ! {
    panic!("descriptor outside its region: {descriptor:?}");
}

impl Dense {
    /// First unit and size of a new window of at least `units`.
    fn allocate(&mut self, units: usize) -> Option<(usize, u8)> {
        let units = units.next_multiple_of(self.align_units);
        let end = self.returned.len();
        let free = end - self.used;
        let to_end = end - self.head;
        if self.head >= self.tail && to_end < units {
            // The window does not fit before the end: the rest becomes a gap that is free once the tail gets there.
            if free < to_end + units {
                return None;
            }
            if to_end > 0 {
                self.returned[self.head] = to_end as u32;
                self.used += to_end;
            }
            self.head = 0;
        } else if free < units {
            return None;
        }
        let unit = self.head;
        self.returned[unit] = 0;
        self.head = if unit + units == end { 0 } else { unit + units };
        self.used += units;
        Some((unit, units as u8))
    }

    fn release(&mut self, unit: usize, units: u32) {
        debug_assert_eq!(self.returned[unit], 0, "a window was returned twice");
        self.returned[unit] = units;
        while self.used > 0 && self.returned[self.tail] != 0 {
            let units = std::mem::take(&mut self.returned[self.tail]) as usize;
            self.used -= units;
            self.tail += units;
            if self.tail == self.returned.len() {
                self.tail = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Arena;

    fn regions(layout: Layout, packets: usize, workers: usize) -> Vec<Region> {
        let config = ArenaConfig { layout, packets, ..ArenaConfig::default() };
        Arena::new(config, workers).unwrap().split()
    }

    #[test]
    fn slots_hold_exactly_what_was_configured() {
        let mut region = regions(Layout::Slots, 5, 1).remove(0);
        let taken: Vec<_> = (0..5).map(|_| region.allocate(64).unwrap()).collect();
        assert!(region.allocate(64).is_none());
        taken.iter().for_each(|descriptor| region.release(descriptor));
        assert_eq!(region.allocated(), 0);
        assert!(region.allocate(1518).is_some());
    }

    #[test]
    fn a_frame_longer_than_the_maximum_gets_no_window() {
        for layout in [Layout::Slots, Layout::Dense] {
            let mut region = regions(layout, 5, 1).remove(0);
            assert!(region.allocate(1519).is_none());
            assert!(region.allocate(0).is_some());
        }
    }

    #[test]
    #[should_panic(expected = "outside its region")]
    fn a_descriptor_of_another_worker_is_refused() {
        let mut regions = regions(Layout::Slots, 5, 2);
        let foreign = regions[0].allocate(64).unwrap();
        regions[1].frame(&foreign);
    }

    proptest! {
        /// Windows in use never overlap, keep their content, and all space comes back.
        #[test]
        fn windows_are_exclusive(
            dense: bool,
            steps in prop::collection::vec((0usize..1519, any::<bool>(), any::<prop::sample::Index>()), 1..400),
        ) {
            let layout = if dense { Layout::Dense } else { Layout::Slots };
            let mut region = regions(layout, 16, 2).remove(1);
            let mut live: Vec<(Descriptor, u8)> = Vec::new();
            for (step, (length, allocate, index)) in steps.into_iter().enumerate() {
                if allocate {
                    if let Some(descriptor) = region.allocate(length) {
                        prop_assert!(region.contains(&descriptor));
                        prop_assert_eq!(usize::from(descriptor.length), length);
                        prop_assert!(descriptor.tailroom_bytes() >= 64);
                        let mark = step as u8;
                        region.window_mut(&descriptor).fill(mark);
                        live.push((descriptor, mark));
                    }
                } else if !live.is_empty() {
                    let (descriptor, mark) = live.swap_remove(index.index(live.len()));
                    prop_assert!(region.window_mut(&descriptor).iter().all(|&byte| byte == mark));
                    region.release(&descriptor);
                }
                prop_assert_eq!(region.allocated(), live.len());
            }
            for (descriptor, mark) in live.drain(..) {
                prop_assert!(region.window_mut(&descriptor).iter().all(|&byte| byte == mark));
                region.release(&descriptor);
            }
            let full: Vec<_> = std::iter::from_fn(|| region.allocate(1518)).collect();
            prop_assert!(full.len() >= 15, "only {} of 16 windows came back", full.len());
        }
    }
}
