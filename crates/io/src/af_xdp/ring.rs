//! Rings that a process and the kernel share. Each ring has one producer and one consumer.
//!
//! ```text
//!          consumer        producer
//! |  free      | entries       |   free    |
//! ```
//!
//! Indices grow without end. Index `i` refers to entry `i` modulo the size of the ring. The
//! producer writes entries, and then writes the producer index with release order. The consumer
//! reads the producer index with acquire order, and then reads the entries. Afterwards, the
//! consumer writes the consumer index with release order.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Location of a ring in the memory that the kernel and the process share.
pub(super) struct RingLayout {
    pub(super) offsets: libc::xdp_ring_offset,
    /// Offset of the ring for mmap, as defined by the kernel.
    pub(super) page_offset: i64,
    pub(super) entries: u32,
}

/// A ring that is mapped into the memory of the process.
struct Ring<T> {
    map: NonNull<u8>,
    map_bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: the ring owns the mapping, and only one thread at a time uses this end of it. The words
// that the kernel also writes are atomic.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(socket: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<Self> {
        let offsets = &layout.offsets;
        let map_bytes = offsets.desc as usize + layout.entries as usize * size_of::<T>();
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                layout.page_offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(address.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel defined these offsets for this mapping. The indices and the flags are
        // aligned words in it, and the entries extend to its end.
        unsafe {
            Ok(Self {
                map,
                map_bytes,
                producer: map.add(offsets.producer as usize).cast(),
                consumer: map.add(offsets.consumer as usize).cast(),
                flags: map.add(offsets.flags as usize).cast(),
                entries: map.add(offsets.desc as usize).cast(),
                size: layout.entries,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the pointer is in the mapping, which lives as long as self.
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
        // SAFETY: the size is a power of two, so the masked index is below the number of entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping that `map` created, and nothing refers to it any
        // more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

/// Producer side of a ring that the kernel empties, such as the fill ring or the TX ring.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Index of the next entry to write. The kernel may not see all earlier entries yet.
    head: u32,
    /// Last consumer index read from the kernel.
    tail: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, layout)?, head: 0, tail: 0 })
    }

    /// Returns the number of free entries in the ring. Reads the kernel's index only if fewer than
    /// `requested` entries are known to be free.
    #[inline]
    pub(super) fn free(&mut self, requested: u32) -> u32 {
        if self.ring.size - self.head.wrapping_sub(self.tail) < requested {
            self.tail = self.ring.consumer().load(Ordering::Acquire);
        }
        self.ring.size - self.head.wrapping_sub(self.tail)
    }

    /// Writes an entry. At least one entry must be free.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.head.wrapping_sub(self.tail) < self.ring.size);
        // SAFETY: the entry is free. The kernel does not read it until the producer index has
        // passed it.
        unsafe { self.ring.entry(self.head).write(entry) };
        self.head = self.head.wrapping_add(1);
    }

    /// Makes all written entries visible to the kernel.
    #[inline]
    pub(super) fn submit(&self) {
        self.ring.producer().store(self.head, Ordering::Release);
    }

    /// Returns whether the ring holds entries that the kernel has not consumed.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.ring.consumer().load(Ordering::Acquire) != self.head
    }

    /// Returns whether the kernel waits for a system call.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Consumer side of a ring that the kernel fills, such as the RX ring or the completion ring.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    head: u32,
    /// Last producer index read from the kernel.
    tail: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, layout)?, head: 0, tail: 0 })
    }

    /// Returns the number of readable entries.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.tail = self.ring.producer().load(Ordering::Acquire);
        }
        self.tail.wrapping_sub(self.head)
    }

    /// Reads an entry. At least one entry must be available.
    #[inline]
    pub(super) fn pop(&mut self) -> T {
        debug_assert!(self.head != self.tail);
        // SAFETY: the kernel wrote the entry before the producer index, which `available` acquired.
        // It does not overwrite the entry before `release`.
        let entry = unsafe { self.ring.entry(self.head).read() };
        self.head = self.head.wrapping_add(1);
        entry
    }

    #[inline]
    pub(super) fn release(&self) {
        self.ring.consumer().store(self.head, Ordering::Release);
    }
}
