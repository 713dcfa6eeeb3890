//! Allocates contiguous memory, with huge pages if possible.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::Error;

const HUGEPAGE_BYTES: usize = 2 << 20;

/// Kind of pages that hold a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Huge pages that the system administrator has reserved (`vm.nr_hugepages`).
    Hugetlb,
    /// Ordinary pages, which the kernel may combine into transparent huge pages.
    Transparent,
    /// The memory was allocated by a device driver.
    Device,
}

/// Zero-initialised memory that starts at a page boundary. It is freed when this value is dropped.
///
/// Memory that the process has mapped is aligned to 2 MiB.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    backing: Backing,
    owner: Owner,
}

/// Owner of the bytes, which determines how they are freed.
enum Owner {
    /// A mapping of the process, which `Memory` unmaps.
    Mapping { base: NonNull<u8>, bytes: usize },
    /// An owner that frees the memory when it is dropped.
    Other(Box<dyn Any + Send + Sync>),
}

// SAFETY: `Memory` owns its mapping. Access to the bytes follows Rust's borrow rules through Deref
// and DerefMut.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` gives shared reads only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` bytes of memory, which are initially zero. Error messages contain `what`, the
    /// purpose of the memory.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if the machine has too little memory.
    pub fn new(bytes: usize, what: &'static str) -> Result<Self, Error> {
        let bytes = bytes.max(1);
        let refuse = |source| Error::Memory { what, bytes, source };
        let too_large = || refuse(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        let rounded = bytes.checked_next_multiple_of(HUGEPAGE_BYTES).ok_or_else(too_large)?;
        if rounded > memory_available_bytes() {
            return Err(too_large());
        }
        if let Ok(base) = map(rounded, libc::MAP_HUGETLB | libc::MAP_POPULATE) {
            let backing = Backing::Hugetlb;
            return Ok(Self { base, bytes, backing, owner: Owner::Mapping { base, bytes: rounded } });
        }
        // The start moves up to a huge-page boundary, so the mapping needs one more huge page.
        let mapped_bytes = rounded + HUGEPAGE_BYTES;
        let mapped_base = map(mapped_bytes, 0).map_err(refuse)?;
        let skip = mapped_base.as_ptr().align_offset(HUGEPAGE_BYTES);
        // SAFETY: skip < HUGEPAGE_BYTES, so base .. base + rounded lies in the mapping above.
        let base = unsafe { mapped_base.add(skip) };
        // SAFETY: the range lies in this mapping. The advice changes no content, and a failure only
        // costs speed.
        unsafe { libc::madvise(base.as_ptr().cast(), rounded, libc::MADV_HUGEPAGE) };
        let owner = Owner::Mapping { base: mapped_base, bytes: mapped_bytes };
        Ok(Self { base, bytes, backing: Backing::Transparent, owner })
    }

    /// Wraps memory that a device driver allocated. Dropping `owner` frees it.
    ///
    /// # Safety
    /// `base` must be aligned to 64, and the `bytes` bytes from `base` must be initialised. Until
    /// `owner` is dropped, they must be valid for reads and writes. Apart from this value, only the
    /// device may access them, under the rules of [`ArenaHandle`](crate::ArenaHandle).
    pub unsafe fn from_owner(base: NonNull<u8>, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        debug_assert!(base.as_ptr().cast::<u64>().is_aligned() && base.as_ptr().align_offset(64) == 0);
        Self { base, bytes, backing: Backing::Device, owner: Owner::Other(owner) }
    }

    /// Excludes the memory from core dumps and from swapping. Memory from a device driver is not
    /// changed, because the driver controls its mapping.
    ///
    /// Returns whether the pages are locked in memory. The limit on locked memory (RLIMIT_MEMLOCK)
    /// may prevent this.
    pub fn keep_private(&self) -> bool {
        let Owner::Mapping { base, bytes } = self.owner else { return false };
        let base = base.as_ptr().cast();
        // SAFETY: the range is the mapping that `new` made. The call changes no content.
        let is_excluded = unsafe { libc::madvise(base, bytes, libc::MADV_DONTDUMP) } == 0;
        // SAFETY: as above. Pages are locked when they are first used, so the call populates none.
        is_excluded && unsafe { libc::mlock2(base, bytes, libc::MLOCK_ONFAULT as _) } == 0
    }

    /// Returns the owner of memory that a device driver allocated. Returns `None` for memory that
    /// the process mapped itself. A driver uses the returned value to recognise memory that it has
    /// allocated.
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        match &self.owner {
            Owner::Mapping { .. } => None,
            Owner::Other(owner) => Some(&**owner),
        }
    }

    /// Returns the address of the first byte. The address is valid until this value is dropped.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the size of the memory in bytes. Unlike `len()`, this method creates no reference to
    /// the bytes, which workers may be changing.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the kind of pages that hold the memory.
    pub fn backing(&self) -> Backing {
        self.backing
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: base .. base + bytes is mapped, initialised to zero and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Mapping { base, bytes } = self.owner {
            // SAFETY: this is exactly the mapping that `new` made, and no reference to it remains.
            unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).field("backing", &self.backing).finish()
    }
}

fn map(bytes: usize, flags: libc::c_int) -> std::io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous private mapping, at an address that the kernel chooses, touches no
    // existing memory.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(std::io::Error::last_os_error)
}

/// Returns the number of memory bytes that the kernel reports as available.
///
/// The program checks this number before an allocation. Otherwise, the kernel might grant too much
/// memory, and its OOM killer might end the program later.
fn memory_available_bytes() -> usize {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return usize::MAX;
    };
    let kilobytes = |key: &str| -> Option<usize> {
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().trim_end_matches("kB").trim().parse().ok())
    };
    match kilobytes("MemAvailable:") {
        Some(available) => {
            let reserved = kilobytes("HugePages_Free:").unwrap_or(0) * kilobytes("Hugepagesize:").unwrap_or(0);
            (available + reserved) << 10
        }
        None => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_aligned_and_writable() {
        let mut memory = Memory::new(5 << 20, "a test").unwrap();
        assert_eq!(memory.len(), 5 << 20);
        assert_eq!(memory.base().as_ptr().align_offset(HUGEPAGE_BYTES), 0);
        assert!(memory.iter().all(|&byte| byte == 0));
        memory[(5 << 20) - 1] = 7;
        assert_eq!(memory[(5 << 20) - 1], 7);
    }

    #[test]
    fn private_memory_is_not_dumped_and_not_swapped() {
        let memory = Memory::new(3 << 20, "a test").unwrap();
        let flags = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = memory.base().as_ptr() as usize;
            let mut holds = false;
            for line in maps.lines() {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                if let Some((first, last)) = range.filter(|_| !line.starts_with("VmFlags")) {
                    let parse = |text| usize::from_str_radix(text, 16);
                    holds =
                        matches!((parse(first), parse(last)), (Ok(first), Ok(last)) if (first..last).contains(&start));
                }
                if holds && let Some(flags) = line.strip_prefix("VmFlags:") {
                    return flags.to_owned();
                }
            }
            panic!("the mapping is listed");
        };
        assert!(!flags().contains(" dd"), "{}", flags());
        let is_locked = memory.keep_private();
        let after = flags();
        assert!(after.contains(" dd"), "{after}");
        assert_eq!(after.contains(" lo"), is_locked, "{after}");
    }

    #[test]
    fn owner_frees_foreign_memory() {
        struct Flag(std::sync::Arc<std::sync::atomic::AtomicBool>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let dropped = std::sync::Arc::default();
        let foreign = Memory::new(4096, "a test").unwrap();
        let base = foreign.base();
        let owner = Box::new((foreign, Flag(std::sync::Arc::clone(&dropped))));
        // SAFETY: the memory is valid until its owner is dropped, and has no other user.
        let mut memory = unsafe { Memory::from_owner(base, 4096, owner) };
        memory[4095] = 7;
        assert!(memory.owner().is_some_and(|owner| owner.is::<(Memory, Flag)>()));
        assert_eq!((memory.len(), memory.backing(), memory[4095]), (4096, Backing::Device, 7));
        assert!(!dropped.load(std::sync::atomic::Ordering::Relaxed));
        drop(memory);
        assert!(dropped.load(std::sync::atomic::Ordering::Relaxed));
    }

    #[test]
    fn rejects_more_memory_than_the_machine_has() {
        for bytes in [1 << 50, usize::MAX] {
            let error = Memory::new(bytes, "a test").unwrap_err().to_string();
            assert!(error.contains("for a test"), "{error}");
        }
    }
}
