//! Memory for keys. It is locked in RAM, excluded from core dumps and forked processes, and zeroed
//! before it is freed.
#![allow(unsafe_code, reason = "mlock and madvise need the addresses of a mapping")]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zeroize::{DefaultIsZeroes, Zeroize};

use crate::Error;

/// Integer type for [`Locked`] memory. Every bit pattern, including zero, is a valid value.
pub(crate) trait Plain: DefaultIsZeroes + private::Sealed {}
impl Plain for u8 {}
impl Plain for u64 {}

mod private {
    pub(crate) trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u64 {}
}

/// Array in memory pages that are locked in RAM. It is zeroed before the pages are freed.
pub(crate) struct Locked<T: Plain> {
    address: NonNull<T>,
    len: usize,
    mapped_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and `Plain` types have no thread affinity.
unsafe impl<T: Plain + Send> Send for Locked<T> {}
// SAFETY: `&Locked` gives shared reads only.
unsafe impl<T: Plain + Sync> Sync for Locked<T> {}

impl<T: Plain> Locked<T> {
    /// Returns `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mapped_bytes = (len * size_of::<T>()).max(1).next_multiple_of(page);
        let fail = || Error::Memory { bytes: mapped_bytes, source: std::io::Error::last_os_error() };
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address that the kernel chooses.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(fail());
        }
        let Some(start) = NonNull::new(address.cast::<T>()) else { return Err(fail()) };
        let locked = Self { address: start, len, mapped_bytes };
        // SAFETY: both calls stay inside the new mapping.
        let protected = unsafe {
            libc::mlock(address, mapped_bytes) == 0
                && libc::madvise(address, mapped_bytes, libc::MADV_DONTDUMP) == 0
                && libc::madvise(address, mapped_bytes, libc::MADV_WIPEONFORK) == 0
        };
        if protected { Ok(locked) } else { Err(fail()) }
    }

    /// Returns a copy of `values`.
    pub(crate) fn copy_of(values: &[T]) -> Result<Self, Error> {
        let mut locked = Self::zeroed(values.len())?;
        locked.copy_from_slice(values);
        Ok(locked)
    }
}

impl<T: Plain> Deref for Locked<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for `len` values and starts zeroed; page addresses satisfy
        // every alignment.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Locked<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` excludes other access.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Locked<T> {
    fn drop(&mut self) {
        self.zeroize();
        // SAFETY: the mapping belongs to this value, and nothing refers to it any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.mapped_bytes) };
    }
}

impl<T: Plain> std::fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Locked({} values)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the `VmFlags` of the memory mapping that contains `address`.
    fn flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let contains = |line: &str| {
            let (start, rest) = line.split_once('-')?;
            let end = rest.split_once(' ')?.0;
            Some(number(start)? <= address && address < number(end)?)
        };
        let mut lines = maps.lines().skip_while(|line| contains(line) != Some(true));
        lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default().to_owned()
    }

    #[test]
    fn pages_are_locked_and_not_dumped() {
        let memory = Locked::copy_of(&[7u64; 600]).unwrap();
        let flags = flags(memory.as_ptr() as usize);
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        // The flags are `lo` for locked, `dd` for excluded from core dumps, and `wf` for wiped in a
        // forked process.
        assert!(has("lo") && has("dd") && has("wf"), "{flags}");
        assert_eq!(&*memory, &[7; 600]);
        assert!(!format!("{memory:?}").contains('7'));
    }

    /// A child process finds zeros.
    #[test]
    fn a_forked_process_sees_no_key() {
        let memory = Locked::copy_of(&[0x5a_u8; 64]).unwrap();
        // SAFETY: the child calls only async-signal-safe functions before it exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(memory.iter().any(|&byte| byte != 0));
            // SAFETY: ends the child without running destructors of the parent.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `child` is a child of this process, and `status` is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
