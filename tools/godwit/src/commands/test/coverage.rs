//! Which verdicts and drop reasons the frames of a test reach.

use godwit_abi::{Outcome, VERDICT_DROP};
use godwit_declare::Contract;

use crate::table::grouped;

/// Number of frames with each verdict and each drop reason.
pub(super) struct Coverage {
    contract: &'static Contract,
    verdicts: Vec<u64>,
    drops: Vec<u64>,
}

impl Coverage {
    pub(super) fn new(contract: &'static Contract) -> Self {
        Self { contract, verdicts: vec![0; contract.verdicts.len()], drops: vec![0; contract.drops.len()] }
    }

    /// Counts the outcome of a frame.
    pub(super) fn count(&mut self, outcome: &Outcome) {
        let count = match outcome.verdict {
            VERDICT_DROP => self.drops.get_mut(usize::from(outcome.reason)),
            verdict => self.verdicts.get_mut(usize::from(verdict)),
        };
        if let Some(count) = count {
            *count += 1;
        }
    }

    /// Returns the number of frames.
    pub(super) fn total(&self) -> u64 {
        self.verdicts.iter().chain(&self.drops).sum()
    }

    fn named(&self) -> impl Iterator<Item = (String, u64)> {
        let verdicts = self.contract.verdicts.iter().map(|verdict| verdict.name.to_owned()).zip(self.verdicts.clone());
        let drops = self.contract.drops.iter().map(|drop| format!("drop {}", drop.name)).zip(self.drops.clone());
        verdicts.chain(drops)
    }

    /// Names the verdicts and drop reasons that no frame reaches, except those in `unreached`.
    /// Returns `None` if all are reached.
    pub(super) fn missing(&self, unreached: &[String]) -> Option<String> {
        let is_known = |name: &str| unreached.iter().any(|known| known == name.trim_start_matches("drop "));
        let missing = self.named().filter(|(name, count)| *count == 0 && !is_known(name));
        let missing: Vec<String> = missing.map(|(name, _)| format!("`{name}`")).collect();
        (!missing.is_empty()).then(|| {
            let names = missing.join(", ");
            format!("no frame reaches {names}: add frames to the capture of `[test]`, or name it in `unreached`")
        })
    }

    /// Returns the counts, one a line.
    pub(super) fn text(&self) -> String {
        self.named().map(|(name, count)| format!("{name}: {}\n", grouped(count))).collect()
    }
}
