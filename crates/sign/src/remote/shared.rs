//! Memory that two processes share. All accesses are atomic, because the other process may write at
//! any time.
#![allow(unsafe_code, reason = "maps a memory file")]

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// Mapped memory file.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to this value, and all access to it is atomic.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates a memory file of `words` zero words. The file has a fixed size, so accesses to the
    /// mapping cannot fail.
    pub(super) fn create(words: usize) -> Result<(Self, OwnedFd), Errno> {
        let file = memfd_create("godwit-signer", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&file, (words * size_of::<u64>()) as i64)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok((Self::map(&file, words)?, file))
    }

    /// Maps a memory file from another process. Refuses files of a different size than `words`, or
    /// without a fixed size.
    pub(super) fn open(file: &OwnedFd, words: usize) -> Result<Self, Errno> {
        let seals = SealFlag::from_bits_retain(fcntl(file, FcntlArg::F_GET_SEALS)?);
        let size = fstat(file)?.st_size;
        if !seals.contains(SealFlag::F_SEAL_SHRINK) || usize::try_from(size) != Ok(words * size_of::<u64>()) {
            return Err(Errno::EINVAL);
        }
        Self::map(file, words)
    }

    fn map(file: impl AsFd, words: usize) -> Result<Self, Errno> {
        let bytes = NonZeroUsize::new(words * size_of::<u64>()).ok_or(Errno::EINVAL)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, file, 0)? };
        Ok(Self { start: start.cast(), words })
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words and lives as long as `self`. A page is aligned
        // for any word, and every bit pattern is a valid word.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more. The call fails only for wrong arguments.
        let _ = unsafe { munmap(self.start.cast(), self.words * size_of::<u64>()) };
    }
}
