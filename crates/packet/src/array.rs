//! Arrays that a device can access directly. An array starts at a page boundary, and stays
//! allocated while a device may access it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use godwit_abi::Bin;

use crate::{Descriptor, Outcome};

const PAGE_BYTES: usize = 4096;
/// Alignment of arrays that share pages, in bytes.
const ALIGN_BYTES: usize = 64;

/// Allocates four arrays of `len` values each. The arrays lie together in the same pages, because a
/// device can then copy or map them at once.
///
/// # Panics
/// Panics if the arrays exceed the address space.
pub fn arrays<A: Plain, B: Plain, C: Plain, D: Plain>(len: usize) -> (Array<A>, Array<B>, Array<C>, Array<D>) {
    let end_of = |offset: usize, size: usize| {
        let bytes = len.checked_mul(size).and_then(|bytes| bytes.checked_next_multiple_of(ALIGN_BYTES));
        let end = bytes.and_then(|bytes| bytes.checked_add(offset));
        end.unwrap_or_else(|| panic!("arrays of {len} values"))
    };
    let second = end_of(0, size_of::<A>());
    let third = end_of(second, size_of::<B>());
    let fourth = end_of(third, size_of::<C>());
    let pages = Pages(Arc::new(Block::new(end_of(fourth, size_of::<D>()))));
    (
        Array::at(&pages, 0, len),
        Array::at(&pages, second, len),
        Array::at(&pages, third, len),
        Array::at(&pages, fourth, len),
    )
}

/// Data that has the same byte representation on the CPU and on devices.
///
/// # Safety
/// Every byte pattern must be a valid value, and the type must not have padding bytes.
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: a struct of integers in C layout. Their sizes add up to its size,
// as `godwit_abi` asserts.
unsafe impl Plain for Bin {}
// SAFETY: as above.
unsafe impl Plain for Descriptor {}
// SAFETY: as above.
unsafe impl Plain for Outcome {}

/// Array with a fixed number of values, which are initially zero.
///
/// It behaves like a boxed slice. An array starts at a page boundary, or shares pages with related
/// arrays. A device holds a handle of type [`Pages`], which keeps the memory allocated.
pub struct Array<T> {
    pages: Pages,
    /// Offset of the first value in the pages, in bytes.
    offset: usize,
    len: usize,
    values: PhantomData<T>,
}

/// Handle to the memory of an [`Array`]. The memory stays allocated until all handles are dropped.
///
/// The handle gives an address and no reference, because the arrays own the bytes. A device may use
/// the address only while no other code accesses the arrays.
#[derive(Clone)]
pub struct Pages(Arc<Block>);

struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and only the array's `&` and `&mut` give access to it.
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
        // SAFETY: allocated once with this layout, and no reference to it remains.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Pages {
    /// Returns the address of the first byte. The address is the start of a page.
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Returns the size in bytes, a multiple of the page size.
    pub fn bytes(&self) -> usize {
        self.0.layout.size()
    }
}

impl<T: Plain> Array<T> {
    /// Allocates an array of `len` values, which are initially zero.
    ///
    /// # Panics
    /// Panics if the array exceeds the address space.
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

    /// Returns the offset of the first value from the start of the [`Pages`], in bytes. The offset
    /// is a multiple of 64.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns a copy of the array. A device may write to the memory during the copy, so each value
    /// is read with a volatile load.
    pub fn volatile_copy(&self) -> Self {
        let mut copy = Self::new(self.len);
        for (index, value) in copy.iter_mut().enumerate() {
            // SAFETY: within the array. Every byte pattern is a valid value, including one that is
            // only partly written.
            *value = unsafe { self.base().add(index).read_volatile() };
        }
        copy
    }

    /// Returns a handle to the memory of the array.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }
}

impl<T: Plain> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` values are allocated, aligned and initialised. Zero bytes are
        // a valid `Plain`.
        unsafe { std::slice::from_raw_parts(self.base(), self.len) }
    }
}

impl<T: Plain> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`. Only this array gives references to its part of the pages, and
        // `&mut self` makes this the only one.
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
    fn rejects_lengths_beyond_the_address_space() {
        let wrapping = usize::MAX / size_of::<Descriptor>() + 2;
        for len in [wrapping, usize::MAX, usize::MAX / size_of::<Descriptor>()] {
            assert!(std::panic::catch_unwind(|| Array::<Descriptor>::new(len)).is_err());
            assert!(std::panic::catch_unwind(|| arrays::<u64, Descriptor, Outcome, u32>(len)).is_err());
        }
    }

    #[test]
    fn arrays_share_pages_without_overlap() {
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
            // SAFETY: the pages are alive, and the array that used them is dropped.
            assert_eq!(unsafe { pages.base().cast::<u32>().read() }, if len > 0 { 7 } else { 0 });
        }
    }
}
