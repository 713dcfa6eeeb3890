//! Arrays that a device may be given as they are: on pages of their own, and there for as long as the device needs them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use godwit_abi::Bin;

use crate::{Descriptor, Outcome};

const PAGE_BYTES: usize = 4096;
/// Arrays that share pages begin at multiples of this.
const ALIGN_BYTES: usize = 64;

/// Four arrays of as many values each, one behind the other on the same pages, so that a device can be given neighbours
/// in one go.
///
/// # Panics
/// Where the machine cannot address so many.
pub fn arrays<A: Plain, B: Plain, C: Plain, D: Plain>(len: usize) -> (Array<A>, Array<B>, Array<C>, Array<D>) {
    let behind = |offset: usize, size: usize| {
        let bytes = len.checked_mul(size).and_then(|bytes| bytes.checked_next_multiple_of(ALIGN_BYTES));
        let end = bytes.and_then(|bytes| bytes.checked_add(offset));
        end.unwrap_or_else(|| panic!("arrays of {len} values"))
    };
    let second = behind(0, size_of::<A>());
    let third = behind(second, size_of::<B>());
    let fourth = behind(third, size_of::<C>());
    let pages = Pages(Arc::new(Block::new(behind(fourth, size_of::<D>()))));
    (
        Array::at(&pages, 0, len),
        Array::at(&pages, second, len),
        Array::at(&pages, third, len),
        Array::at(&pages, fourth, len),
    )
}

/// Data that is the same bytes here and on a device.
///
/// # Safety
/// Any bytes must be a value, and no byte of a value may be padding.
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: integers in C's layout, whose sizes add up to that of the struct, as `godwit_abi` asserts.
unsafe impl Plain for Bin {}
// SAFETY: as above.
unsafe impl Plain for Descriptor {}
// SAFETY: as above.
unsafe impl Plain for Outcome {}

/// A fixed number of values, all zero at first. Like a boxed slice, but on pages of its own or of a few arrays together,
/// and its [`Pages`] can be kept.
pub struct Array<T> {
    pages: Pages,
    /// Bytes from the pages' start.
    offset: usize,
    len: usize,
    values: PhantomData<T>,
}

/// The memory of an [`Array`], which stays allocated while this lives. It gives an address and no reference: the bytes
/// are the array's, and those of the arrays beside it. Whoever reaches them through the address does so only while nobody uses the array.
#[derive(Clone)]
pub struct Pages(Arc<Block>);

struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: owned memory, reached through the array's `&` and `&mut` only.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> Self {
        let whole = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
        let layout = whole.and_then(|whole| Layout::from_size_align(whole, PAGE_BYTES).ok());
        let layout = layout.unwrap_or_else(|| panic!("an array of {bytes} bytes"));
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, once; nothing refers to it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Pages {
    /// Address of the first byte, at the beginning of a page.
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Whole pages.
    pub fn bytes(&self) -> usize {
        self.0.layout.size()
    }
}

impl<T: Plain> Array<T> {
    /// `len` values of zero bytes.
    ///
    /// # Panics
    /// Where the machine cannot address so many.
    pub fn new(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).unwrap_or_else(|| panic!("an array of {len} values"));
        Self::at(&Pages(Arc::new(Block::new(bytes))), 0, len)
    }

    fn at(pages: &Pages, offset: usize, len: usize) -> Self {
        const { assert!(align_of::<T>() <= ALIGN_BYTES) };
        Self { pages: pages.clone(), offset, len, values: PhantomData }
    }

    fn base(&self) -> *mut T {
        self.pages.base().as_ptr().wrapping_add(self.offset).cast()
    }

    /// Bytes from the beginning of its [`Pages`] to its first value, a multiple of 64.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its values in another array, read one by one from memory that something else may be writing.
    pub fn volatile_copy(&self) -> Self {
        let mut copy = Self::new(self.len);
        for (index, value) in copy.iter_mut().enumerate() {
            // SAFETY: within the array; any bytes are a value, also those of a write that is only half there.
            *value = unsafe { self.base().add(index).read_volatile() };
        }
        copy
    }

    /// Its memory.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }
}

impl<T: Plain> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many values are allocated, aligned, and initialised: zeros are a `Plain` value.
        unsafe { std::slice::from_raw_parts(self.base(), self.len) }
    }
}

impl<T: Plain> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the array is the only one that gives references to this part of its pages, and `&mut self`
        // makes this the only one.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.len) }
    }
}

impl<T: Plain> Clone for Array<T> {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.len);
        clone.copy_from_slice(self);
        clone
    }
}

impl<T: Plain + std::fmt::Debug> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Plain + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_addressed_is_not_allocated() {
        let wrapping = usize::MAX / size_of::<Descriptor>() + 2;
        for len in [wrapping, usize::MAX, usize::MAX / size_of::<Descriptor>()] {
            assert!(std::panic::catch_unwind(|| Array::<Descriptor>::new(len)).is_err());
            assert!(std::panic::catch_unwind(|| arrays::<u64, Descriptor, Outcome, u32>(len)).is_err());
        }
    }

    #[test]
    fn neighbours_share_pages_and_nothing_else() {
        for len in [0, 1, 7, 1000] {
            let (mut a, mut b, mut c, mut d) = arrays::<u64, Descriptor, Outcome, u32>(len);
            a.fill(u64::MAX);
            d.fill(5);
            c.fill(Outcome::drop(3));
            assert!(b.iter().all(|value| *value == Descriptor::default()));
            b.fill(Descriptor { buffer: 1, ..Descriptor::default() });
            assert!(a.iter().all(|value| *value == u64::MAX) && c.iter().all(|value| *value == Outcome::drop(3)));
            assert_eq!((a.len(), b.len(), c.len()), (len, len, len));
            assert_eq!(a.pages().base(), c.pages().base());
            assert!(a.offset() + 8 * len <= b.offset() && b.offset() + 16 * len <= c.offset());
            assert!(d.iter().all(|value| *value == 5) && c.offset() + 8 * len <= d.offset());
            assert!(d.offset() + 4 * len <= a.pages().bytes());
        }
    }

    #[test]
    fn values_are_zero_page_aligned_and_writable() {
        for len in [0, 1, 255, 10_000] {
            let mut array = Array::<Descriptor>::new(len);
            assert!(array.iter().all(|value| *value == Descriptor::default()) && array.len() == len);
            assert_eq!(array.pages().base().as_ptr().align_offset(PAGE_BYTES), 0);
            assert!(array.pages().bytes() >= len * 16 && array.pages().bytes().is_multiple_of(PAGE_BYTES));
            array.fill(Descriptor { buffer: 7, ..Descriptor::default() });
            let clone = array.clone();
            let pages = array.pages().clone();
            drop(array);
            assert!(clone.iter().all(|value| value.buffer == 7));
            // SAFETY: the pages live, and the array that used them is gone.
            assert_eq!(unsafe { pages.base().cast::<u32>().read() }, if len > 0 { 7 } else { 0 });
        }
    }
}
