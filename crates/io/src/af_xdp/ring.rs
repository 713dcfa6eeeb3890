//! The rings that a program and the kernel share: each has one producer and one consumer.
//!
//! ```text
//!            consumer        producer
//! |  free      | entries       |   free    |     indices count on for ever; an entry is at index modulo size
//! ```
//! Who produces writes entries, then the producer's index (release); who consumes reads that index (acquire), then entries, then writes its own.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the kernel put the parts of a ring.
pub(super) struct Place {
    pub(super) offsets: libc::xdp_ring_offset,
    /// What to map.
    pub(super) page_offset: i64,
    pub(super) entries: u32,
}

/// A ring, mapped.
struct Ring<T> {
    map: NonNull<u8>,
    map_bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: the mapping is the ring's own, one thread at a time has this end of it, and what the kernel also writes is atomic.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(socket: BorrowedFd<'_>, place: &Place) -> io::Result<Self> {
        let offsets = &place.offsets;
        let map_bytes = offsets.desc as usize + place.entries as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                place.page_offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(address.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel gave these offsets for this mapping: indices and flags are aligned words of it, entries fill its end.
        unsafe {
            Ok(Self {
                map,
                map_bytes,
                producer: map.add(offsets.producer as usize).cast(),
                consumer: map.add(offsets.consumer as usize).cast(),
                flags: map.add(offsets.flags as usize).cast(),
                entries: map.add(offsets.desc as usize).cast(),
                size: place.entries,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: lies in the mapping, which lives as long as self.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the size is a power of two, so the place lies among the entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; nothing refers to it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

/// The end of a ring that this program writes: fill, TX.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Written, and not all told to the kernel.
    head: u32,
    /// What the kernel had consumed when it was looked at.
    tail: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, place: &Place) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, place)?, head: 0, tail: 0 })
    }

    /// Entries that can be written; looks at what the kernel has consumed only where fewer than `wanted` are known to be free.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        if self.ring.size - self.head.wrapping_sub(self.tail) < wanted {
            self.tail = self.ring.consumer().load(Ordering::Acquire);
        }
        self.ring.size - self.head.wrapping_sub(self.tail)
    }

    /// Writes an entry. One must be free.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.head.wrapping_sub(self.tail) < self.ring.size);
        // SAFETY: the entry is free: the kernel does not read it before the producer's index is behind it.
        unsafe { self.ring.entry(self.head).write(entry) };
        self.head = self.head.wrapping_add(1);
    }

    /// Tells the kernel of what was written.
    #[inline]
    pub(super) fn submit(&self) {
        self.ring.producer().store(self.head, Ordering::Release);
    }

    /// Whether the kernel has not consumed all yet.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.ring.consumer().load(Ordering::Acquire) != self.head
    }

    /// Whether the kernel wants a system call to go on.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The end of a ring that this program reads: RX, completion.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    head: u32,
    /// What the kernel had produced when it was looked at.
    tail: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, place: &Place) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, place)?, head: 0, tail: 0 })
    }

    /// Entries to be read.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.tail = self.ring.producer().load(Ordering::Acquire);
        }
        self.tail.wrapping_sub(self.head)
    }

    /// Reads an entry. One must be available.
    #[inline]
    pub(super) fn pop(&mut self) -> T {
        debug_assert!(self.head != self.tail);
        // SAFETY: the kernel wrote the entry before its index (acquired in `available`), and does not write it again before `release`.
        let entry = unsafe { self.ring.entry(self.head).read() };
        self.head = self.head.wrapping_add(1);
        entry
    }

    /// Gives entries that were read back to the kernel.
    #[inline]
    pub(super) fn release(&self) {
        self.ring.consumer().store(self.head, Ordering::Release);
    }
}
