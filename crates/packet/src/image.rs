//! Table images: bytes that kernels read, and that may change meanwhile.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use zeroize::Zeroize;

use crate::Memory;

/// A table image that changes while kernels read it: parts that no packet refers to are written in place, and words that
/// packets do refer to are stored whole.
///
/// Kernels read it through raw pointers and know nothing of writers, so who writes answers for this, as for all else in
/// an image:
///
/// * No packet that a device has, or gets, refers to bytes that are written ([`Image::write`]) before the write is over:
///   they were never findable, or have been made unfindable and every packet prepared before is back.
/// * What refers to new bytes (an index in a parameter, or in a word of the image) is handed to workers by a release that
///   they acquire or depend on, and only after devices with copies of their own have the bytes.
/// * A word that packets refer to is changed by one of the stores of its size ([`Image::store_u64`]), and kernels read it
///   by one load: they see what was there or what is.
///
/// Within the process bytes are written and read as atomics, so that a mistake here gives wrong bytes and no more.
/// Wiped when dropped, for images hold keys, unless it was said that this one does not.
pub struct Image {
    memory: Memory,
    holds_secrets: bool,
}

impl Image {
    /// An image of these bytes, which are copied nowhere.
    pub fn new(memory: Memory) -> Self {
        Self { memory, holds_secrets: true }
    }

    /// As [`Image::new`], of bytes that need not be wiped.
    pub fn without_secrets(memory: Memory) -> Self {
        Self { memory, holds_secrets: false }
    }

    /// Its first byte, for devices. Valid for `len()` bytes while the image lives, and aligned to 64.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Its size.
    pub fn len(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Overwrites bytes from `offset` on; see the type on when that is allowed.
    ///
    /// # Panics
    /// When they do not lie within the image.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (place, &byte) in self.bytes(offset..offset + bytes.len()).iter().zip(bytes) {
            place.store(byte, Ordering::Relaxed);
        }
    }

    /// Stores 16 bits, little-endian, in each of `count` places from `offset` on: whole, behind everything written before.
    ///
    /// # Panics
    /// When they do not lie within the image, or not at a multiple of their size.
    pub fn fill_u16(&self, offset: usize, count: usize, value: u16) {
        for at in 0..count {
            self.word::<AtomicU16>(offset + 2 * at).store(value.to_le(), Ordering::Release);
        }
    }

    /// Stores 32 bits, as [`Image::fill_u16`].
    ///
    /// # Panics
    /// As there.
    pub fn fill_u32(&self, offset: usize, count: usize, value: u32) {
        for at in 0..count {
            self.word::<AtomicU32>(offset + 4 * at).store(value.to_le(), Ordering::Release);
        }
    }

    /// Stores 64 bits, as [`Image::fill_u16`], in one place.
    ///
    /// # Panics
    /// As there.
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.word::<AtomicU64>(offset).store(value.to_le(), Ordering::Release);
    }

    /// 16 bits at a multiple of 2.
    ///
    /// # Panics
    /// As [`Image::fill_u16`].
    pub fn load_u16(&self, offset: usize) -> u16 {
        u16::from_le(self.word::<AtomicU16>(offset).load(Ordering::Relaxed))
    }

    /// 32 bits at a multiple of 4.
    ///
    /// # Panics
    /// As [`Image::fill_u16`].
    pub fn load_u32(&self, offset: usize) -> u32 {
        u32::from_le(self.word::<AtomicU32>(offset).load(Ordering::Relaxed))
    }

    /// 64 bits at a multiple of 8.
    ///
    /// # Panics
    /// As [`Image::fill_u16`].
    pub fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.word::<AtomicU64>(offset).load(Ordering::Relaxed))
    }

    /// The word of this type, which is one of the atomic integers, at `offset`.
    fn word<T: Word>(&self, offset: usize) -> &T {
        let bytes = size_of::<T>();
        let fits = offset.is_multiple_of(bytes) && offset.checked_add(bytes).is_some_and(|end| end <= self.len());
        assert!(fits, "{bytes} bytes at {offset} of an image of {}", self.len());
        // SAFETY: within the memory, which lives as long as `self`, and aligned, for the memory is to 64. `T` is an atomic
        // integer, for which all bytes are values; nothing makes a plain reference to them but `drop`.
        unsafe { &*self.memory.base().as_ptr().add(offset).cast::<T>() }
    }

    /// Overwrites bytes with zeros, as [`Image::write`].
    ///
    /// # Panics
    /// When they do not lie within the image.
    pub fn wipe(&self, range: Range<usize>) {
        self.bytes(range).iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }

    fn bytes(&self, range: Range<usize>) -> &[AtomicU8] {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of an image of {} bytes", self.len());
        // SAFETY: within the memory, which lives as long as `self`. Nothing makes a plain reference to it but `drop`, which
        // has `&mut self`; an `AtomicU8` is laid out as a `u8`.
        unsafe {
            let first = self.memory.base().as_ptr().add(range.start).cast::<AtomicU8>();
            std::slice::from_raw_parts(first, range.len())
        }
    }
}

/// The atomic integers.
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

/// A function's table image, as devices are given it.
#[derive(Clone, Copy, Debug)]
pub enum ImageRef<'a> {
    /// It stays as it is.
    Fixed(&'a [u8]),
    /// Parts of it change.
    Changing(&'a Image),
}

impl ImageRef<'_> {
    /// Its size.
    pub fn len(&self) -> usize {
        match self {
            Self::Fixed(bytes) => bytes.len(),
            Self::Changing(image) => image.len(),
        }
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first byte, for kernels: null for an empty image.
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            _ if self.is_empty() => std::ptr::null(),
            Self::Fixed(bytes) => bytes.as_ptr(),
            Self::Changing(image) => image.base().as_ptr(),
        }
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Panics
    /// When they do not lie within the image.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        match self {
            Self::Fixed(bytes) => out.copy_from_slice(&bytes[offset..offset + out.len()]),
            Self::Changing(image) => {
                let places = image.bytes(offset..offset + out.len());
                out.iter_mut().zip(places).for_each(|(byte, place)| *byte = place.load(Ordering::Relaxed));
            }
        }
    }

    /// A copy of it, as it is at the moment.
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
        let seen = ImageRef::from(&image);
        let first = seen.as_ptr();
        image.write(3, &[1, 2]);
        image.wipe(199..200);
        assert_eq!(seen.to_vec()[..6], [7, 7, 7, 1, 2, 7]);
        assert_eq!((seen.to_vec()[199], seen.len()), (0, 200));
        assert_eq!(seen.as_ptr(), first);
        let mut part = [0; 2];
        seen.copy_to(4, &mut part);
        assert_eq!(part, [2, 7]);
        image.fill_u16(6, 2, 0x0102);
        image.store_u64(16, 0x0102_0304_0506_0708);
        image.fill_u32(12, 1, 9);
        assert_eq!(seen.to_vec()[5..18], [7, 2, 1, 2, 1, 7, 7, 9, 0, 0, 0, 8, 7]);
        assert_eq!((image.load_u16(6), image.load_u32(12), image.load_u64(16)), (0x0102, 9, 0x0102_0304_0506_0708));
        for wrong in [1, 200, usize::MAX - 1] {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| image.fill_u16(wrong, 1, 0))).is_err());
        }
        for wrong in [199..201, 200..usize::MAX] {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| image.wipe(wrong))).is_err());
        }
    }

    #[test]
    fn an_empty_image_is_nowhere() {
        let empty = ImageRef::from(&[][..]);
        assert!(empty.is_empty() && empty.as_ptr().is_null() && empty.to_vec().is_empty());
    }
}
