//! Accesses the packet arrays of a submission as bytes, in the format that the host and the device
//! share.

use godwit_packet::Plain;

/// Returns the bytes of values.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` values have no uninitialized bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the mutable bytes of values.
pub(crate) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: see above. Any bytes form valid values.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Writes `values` to the array at byte offset `offset`, from element `index` on.
///
/// # Panics
/// Panics if the values exceed `bytes`.
#[inline]
pub(crate) fn put<T: Plain>(bytes: &mut [u8], offset: usize, index: usize, values: &[T]) {
    let start = offset + index * size_of::<T>();
    bytes[start..start + size_of_val(values)].copy_from_slice(bytes_of(values));
}

/// Reads `values` from the array at byte offset `offset`, from element `index` on.
///
/// # Panics
/// Panics if the values exceed `bytes`.
#[inline]
pub(crate) fn get<T: Plain>(bytes: &[u8], offset: usize, index: usize, values: &mut [T]) {
    let start = offset + index * size_of::<T>();
    let source = &bytes[start..start + size_of_val(values)];
    bytes_of_mut(values).copy_from_slice(source);
}
