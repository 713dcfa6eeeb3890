//! Table images store a function's tables as bytes. Kernels read these bytes, and the CPU may
//! change them at the same time.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use zeroize::Zeroize;

use crate::Memory;

/// A table image that the CPU changes while kernels read it. It contains the tables of a function
/// as bytes.
///
/// The CPU overwrites only parts that no packet refers to. If packets refer to a word, the CPU
/// replaces the word with a single store.
///
/// Kernels read the image through raw pointers and do not synchronise with writers. Every writer
/// must keep these rules:
///
/// * No packet refers to the bytes of an [`Image::write`] until the write is complete. This
///   includes packets on a device. Either no lookup could find the bytes before, or the writer made
///   them unreachable and waited until all earlier packets returned.
/// * Packets refer to new bytes by an index, which is in a parameter or in a word of the image. The
///   writer passes the index to workers with a release store. Workers read it with an acquire load,
///   or through a data dependency. If a device has its own copy of the image, the new bytes must be
///   there before the index.
/// * If packets refer to a word, one store of the word's size changes it, such as
///   [`Image::store_u64`]. Kernels read the word with one load, so they see either the old or the
///   new value.
///
/// The process accesses the bytes as atomics. A violation of the rules therefore gives wrong bytes,
/// but no undefined behaviour in Rust. Images hold keys, so dropping an image wipes it. The
/// exception is an image from [`Image::without_secrets`].
///
/// ```
/// use godwit_packet::{Image, ImageRef, Memory};
///
/// let image = Image::new(Memory::new(64, "a table image")?);
/// image.write(0, &[1, 2]);
/// image.store_u64(8, 7);
/// assert_eq!(ImageRef::from(&image).to_vec()[..2], [1, 2]);
/// assert_eq!(image.load_u64(8), 7);
/// # Ok::<(), godwit_packet::Error>(())
/// ```
pub struct Image {
    memory: Memory,
    holds_secrets: bool,
}

impl Image {
    /// Creates a table image in `memory` without a copy. The memory is excluded from core dumps. If
    /// the limit for locked memory permits it, the memory is also excluded from swapping.
    pub fn new(memory: Memory) -> Self {
        memory.keep_private();
        Self { memory, holds_secrets: true }
    }

    /// Creates a table image in `memory` for data that is not secret. Dropping the image does not
    /// overwrite the memory.
    pub fn without_secrets(memory: Memory) -> Self {
        Self { memory, holds_secrets: false }
    }

    /// Returns the address of the first byte, for devices. The address is aligned to 64 bytes, and
    /// is valid until the image is dropped.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Returns the size, in bytes.
    pub fn len(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes `bytes` to the image, starting at `offset`. The documentation of [`Image`] lists the
    /// rules for writers.
    ///
    /// # Panics
    /// Panics if the range of bytes does not lie within the image.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (cell, &byte) in self.bytes(offset..offset + bytes.len()).iter().zip(bytes) {
            cell.store(byte, Ordering::Relaxed);
        }
    }

    /// Writes `value` to `count` successive 16-bit words in little-endian byte order, starting at
    /// `offset`. Each store is atomic, and becomes visible after all earlier writes.
    ///
    /// # Panics
    /// Panics if the words do not lie within the image, or if `offset` is not a multiple of the
    /// word size.
    pub fn fill_u16(&self, offset: usize, count: usize, value: u16) {
        for index in 0..count {
            self.word::<AtomicU16>(offset + 2 * index).store(value.to_le(), Ordering::Release);
        }
    }

    /// Writes `value` to `count` successive 32-bit words, as [`Image::fill_u16`] does for 16-bit
    /// words.
    ///
    /// # Panics
    /// Panics in the same cases as [`Image::fill_u16`].
    pub fn fill_u32(&self, offset: usize, count: usize, value: u32) {
        for index in 0..count {
            self.word::<AtomicU32>(offset + 4 * index).store(value.to_le(), Ordering::Release);
        }
    }

    /// Writes one 64-bit word, as [`Image::fill_u16`] does for 16-bit words.
    ///
    /// # Panics
    /// Panics in the same cases as [`Image::fill_u16`].
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.word::<AtomicU64>(offset).store(value.to_le(), Ordering::Release);
    }

    /// Returns the 16-bit word at `offset`, which must be a multiple of 2.
    ///
    /// # Panics
    /// Panics in the same cases as [`Image::fill_u16`].
    pub fn load_u16(&self, offset: usize) -> u16 {
        u16::from_le(self.word::<AtomicU16>(offset).load(Ordering::Relaxed))
    }

    /// Returns the 32-bit word at `offset`, which must be a multiple of 4.
    ///
    /// # Panics
    /// Panics in the same cases as [`Image::fill_u16`].
    pub fn load_u32(&self, offset: usize) -> u32 {
        u32::from_le(self.word::<AtomicU32>(offset).load(Ordering::Relaxed))
    }

    /// Returns the 64-bit word at `offset`, which must be a multiple of 8.
    ///
    /// # Panics
    /// Panics in the same cases as [`Image::fill_u16`].
    pub fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.word::<AtomicU64>(offset).load(Ordering::Relaxed))
    }

    /// Returns a reference to the word at `offset`, as an atomic integer.
    fn word<T: Word>(&self, offset: usize) -> &T {
        let bytes = size_of::<T>();
        let fits = offset.is_multiple_of(bytes) && offset.checked_add(bytes).is_some_and(|end| end <= self.len());
        assert!(fits, "{bytes} bytes at {offset} of an image of {}", self.len());
        // SAFETY: the word lies within the memory, which lives as long as `self`. It is aligned,
        // because the memory is aligned to 64. `T` is an atomic integer, for which every byte
        // pattern is valid. Only `drop` creates a plain reference to the bytes.
        unsafe { &*self.memory.base().as_ptr().add(offset).cast::<T>() }
    }

    /// Overwrites a range of bytes with zeros. The rules for [`Image::write`] also apply here.
    ///
    /// # Panics
    /// Panics if the range of bytes does not lie within the image.
    pub fn wipe(&self, range: Range<usize>) {
        self.bytes(range).iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }

    fn bytes(&self, range: Range<usize>) -> &[AtomicU8] {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of an image of {} bytes", self.len());
        // SAFETY: the bytes lie within the memory, which lives as long as `self`. Only `drop`
        // creates a plain reference to them, through `&mut self`. An `AtomicU8` has the layout
        // of a `u8`.
        unsafe {
            let first = self.memory.base().as_ptr().add(range.start).cast::<AtomicU8>();
            std::slice::from_raw_parts(first, range.len())
        }
    }
}

/// Atomic integer types that can be accessed in a table image.
trait Word {}
impl Word for AtomicU16 {}
impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

impl Drop for Image {
    fn drop(&mut self) {
        if self.holds_secrets {
            self.memory.zeroize();
        }
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("bytes", &self.len()).finish()
    }
}

/// Reference to the table image of a function, for devices.
#[derive(Clone, Copy, Debug)]
pub enum ImageRef<'a> {
    /// A table image that never changes.
    Fixed(&'a [u8]),
    /// A table image that the CPU may change at any time.
    Changing(&'a Image),
}

impl ImageRef<'_> {
    /// Returns the size, in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Fixed(bytes) => bytes.len(),
            Self::Changing(image) => image.len(),
        }
    }

    /// Returns whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the first byte, for kernels. An empty image has a null address.
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            _ if self.is_empty() => std::ptr::null(),
            Self::Fixed(bytes) => bytes.as_ptr(),
            Self::Changing(image) => image.base().as_ptr(),
        }
    }

    /// Fills `out` with bytes of the image, starting at `offset`.
    ///
    /// # Panics
    /// Panics if the range of bytes does not lie within the image.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        match self {
            Self::Fixed(bytes) => out.copy_from_slice(&bytes[offset..offset + out.len()]),
            Self::Changing(image) => {
                let cells = image.bytes(offset..offset + out.len());
                out.iter_mut().zip(cells).for_each(|(byte, cell)| *byte = cell.load(Ordering::Relaxed));
            }
        }
    }

    /// Returns a copy of the current bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }
}

impl<'a> From<&'a [u8]> for ImageRef<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Fixed(bytes)
    }
}

impl<'a> From<&'a Memory> for ImageRef<'a> {
    fn from(memory: &'a Memory) -> Self {
        Self::Fixed(memory)
    }
}

impl<'a> From<&'a Image> for ImageRef<'a> {
    fn from(image: &'a Image) -> Self {
        Self::Changing(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_change_in_place() {
        let mut memory = Memory::new(200, "a test").unwrap();
        memory.fill(7);
        let image = Image::new(memory);
        let current = ImageRef::from(&image);
        let first = current.as_ptr();
        image.write(3, &[1, 2]);
        image.wipe(199..200);
        assert_eq!(current.to_vec()[..6], [7, 7, 7, 1, 2, 7]);
        assert_eq!((current.to_vec()[199], current.len()), (0, 200));
        assert_eq!(current.as_ptr(), first);
        let mut part = [0; 2];
        current.copy_to(4, &mut part);
        assert_eq!(part, [2, 7]);
        image.fill_u16(6, 2, 0x0102);
        image.store_u64(16, 0x0102_0304_0506_0708);
        image.fill_u32(12, 1, 9);
        assert_eq!(current.to_vec()[5..18], [7, 2, 1, 2, 1, 7, 7, 9, 0, 0, 0, 8, 7]);
        assert_eq!((image.load_u16(6), image.load_u32(12), image.load_u64(16)), (0x0102, 9, 0x0102_0304_0506_0708));
        for wrong in [1, 200, usize::MAX - 1] {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| image.fill_u16(wrong, 1, 0))).is_err());
        }
        for wrong in [199..201, 200..usize::MAX] {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| image.wipe(wrong))).is_err());
        }
    }

    #[test]
    fn empty_image_has_a_null_address() {
        let empty = ImageRef::from(&[][..]);
        assert!(empty.is_empty() && empty.as_ptr().is_null() && empty.to_vec().is_empty());
    }
}
