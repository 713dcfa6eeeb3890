//! Counters that kernels increment in the memory of a device.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::program::Program;

/// Last known counter values of all programs on one device. They stay readable after the device is
/// lost.
pub(crate) struct Counters(Mutex<Vec<Vec<u64>>>);

impl Counters {
    pub(crate) fn new(programs: &[Arc<dyn Program>]) -> Self {
        let zeros = |program: &Arc<dyn Program>| vec![0; program.counter_bytes().len() / 8];
        Self(Mutex::new(programs.iter().map(zeros).collect()))
    }

    /// Returns the counter values of `program`. `read` copies the given bytes of the program's
    /// table image from the device. It returns `None` if the device is lost or the copy fails.
    pub(crate) fn read(
        &self,
        program: (usize, &dyn Program),
        read: impl FnOnce(Range<usize>, &mut [u8]) -> Option<()>,
    ) -> Vec<u64> {
        let (index, program) = program;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = &mut all[index];
        let mut bytes = vec![0; 8 * known.len()];
        if !known.is_empty() && read(program.counter_bytes(), &mut bytes).is_some() {
            for (known, bytes) in known.iter_mut().zip(bytes.as_chunks().0) {
                // A device adds the two halves of a counter separately. A value that is read
                // between the two additions is too small.
                *known = (*known).max(u64::from_le_bytes(*bytes));
            }
        }
        known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_abi::{Descriptor, Outcome};
    use godwit_packet::ImageRef;

    struct Counting;

    impl Program for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn kernel(&self) -> u8 {
            0
        }

        fn image(&self) -> ImageRef<'_> {
            ImageRef::from(&[][..])
        }

        fn counter_bytes(&self) -> Range<usize> {
            64..80
        }

        fn variant(&self) -> u8 {
            0
        }

        fn reads_bytes(&self) -> u16 {
            0
        }

        fn writes_bytes(&self) -> u16 {
            0
        }

        fn headroom_bytes(&self) -> u16 {
            0
        }

        fn tailroom_bytes(&self) -> u16 {
            0
        }

        fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
            Outcome::default()
        }
    }

    #[test]
    fn counters_never_decrease_and_survive_the_device() {
        let counters = Counters::new(&[Arc::new(Counting)]);
        let read = |values: [u64; 2]| {
            counters.read((0, &Counting), |range, bytes| {
                assert_eq!(range, 64..80);
                bytes[..8].copy_from_slice(&values[0].to_le_bytes());
                bytes[8..].copy_from_slice(&values[1].to_le_bytes());
                Some(())
            })
        };
        assert_eq!(read([u64::from(u32::MAX), 7]), [u64::from(u32::MAX), 7]);
        // The lower half has wrapped, and the carry is not added yet.
        assert_eq!(read([2, 9]), [u64::from(u32::MAX), 9]);
        assert_eq!(read([(1 << 32) + 2, 9]), [(1 << 32) + 2, 9]);
        assert_eq!(counters.read((0, &Counting), |_, _| None), [(1 << 32) + 2, 9]);
    }
}
