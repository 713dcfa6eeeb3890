//! Entry counts of tables, which threads can read while another thread changes a table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Counts of entries in a function's tables. A reader never waits for the lock of the tables. While
/// another thread holds the lock, the reader gets the last known counts.
#[derive(Debug)]
pub(crate) struct Sizes<const N: usize> {
    names: [&'static str; N],
    last: [AtomicU64; N],
}

impl<const N: usize> Sizes<N> {
    pub(crate) const fn new(names: [&'static str; N]) -> Self {
        Self { names, last: [const { AtomicU64::new(0) }; N] }
    }

    /// Returns the name and entry count of each table. `count` computes the counts.
    pub(crate) fn read<T>(&self, tables: &Mutex<T>, count: impl FnOnce(&T) -> [usize; N]) -> Vec<(String, u64)> {
        let guard = match tables.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(guard) = guard {
            self.last.iter().zip(count(&guard)).for_each(|(last, now)| last.store(now as u64, Ordering::Relaxed));
        }
        let values = self.last.iter().map(|last| last.load(Ordering::Relaxed));
        self.names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_table_has_its_last_known_size() {
        let (sizes, table) = (Sizes::new(["routes"]), Mutex::new(vec![1, 2]));
        let read = || sizes.read(&table, |table| [table.len()]);
        assert_eq!(read(), [("routes".to_owned(), 2)]);
        let mut changing = table.lock().unwrap();
        changing.push(3);
        assert_eq!(read(), [("routes".to_owned(), 2)]);
        drop(changing);
        assert_eq!(read(), [("routes".to_owned(), 3)]);
    }
}
