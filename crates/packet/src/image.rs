//! Table images: bytes that kernels read, and that may change meanwhile.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use zeroize::Zeroize;

use crate::Memory;

/// A table image that changes while kernels read it: parts that no packet refers to are written in place.
///
/// Kernels read it through raw pointers and know nothing of writers, so who writes answers for this, as for all else in
/// an image:
///
/// * No packet that a device has, or gets, refers to bytes that are written before the write is over: they were never
///   findable, or have been made unfindable and every packet prepared before is back.
/// * What refers to new bytes (an index in a parameter, say) is handed to workers by a release that they acquire, and only
///   after devices with copies of their own have the bytes.
///
/// Within the process bytes are written and read as atomics, so that a mistake here gives wrong bytes and no more.
/// Wiped when dropped: images hold keys.
pub struct Image {
    memory: Memory,
}

impl Image {
    /// An image of these bytes, which are copied nowhere.
    pub fn new(memory: Memory) -> Self {
        Self { memory }
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

impl Drop for Image {
    fn drop(&mut self) {
        self.memory.zeroize();
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
