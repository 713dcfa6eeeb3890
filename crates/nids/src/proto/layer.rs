//! Application protocol state of a flow: the detected protocol, its parser, and the inspection
//! progress of transactions.

use super::{Parser, Status};
use crate::app::{App, Direction};
use std::collections::VecDeque;

/// Progress of one rule in one direction of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct RuleState {
    /// Number of the rule.
    pub rule: u32,
    /// Field tests that have matched, as a bit set over the indices of the rule's field tests.
    pub matched: u32,
    /// Whether the rule has matched or can no longer match.
    pub done: bool,
}

/// Inspection progress of a transaction in one direction.
#[derive(Debug, Default)]
pub struct Inspection {
    /// Pattern sets for which the prefilter has already searched, as a bit set.
    pub searched: [u64; 4],
    /// Rules whose evaluation has begun or is complete.
    pub rules: Vec<RuleState>,
    /// Named bits of the transaction.
    pub bits: Vec<u32>,
    /// Whether all rules have inspected this direction completely.
    pub done: bool,
}

impl Inspection {
    /// Returns whether the prefilter has already searched for the pattern set `set`. If `mark` is
    /// true, records the search.
    pub fn searched(&mut self, set: usize, mark: bool) -> bool {
        let Some(word) = self.searched.get_mut(set / 64) else { return false };
        let known = *word >> (set % 64) & 1 == 1;
        *word |= u64::from(mark) << (set % 64);
        known
    }
}

/// Application protocol of a flow.
#[derive(Debug, Default)]
pub struct AppLayer {
    /// Application protocol, or `None` while it is unknown.
    pub app: Option<App>,
    /// Whether the protocol can never be identified.
    pub failed: bool,
    /// Whether the current packet revealed the protocol, for each direction.
    pub fresh: [bool; 2],
    /// Parser of the protocol, or `None` if the flow is not parsed.
    pub parser: Option<Box<dyn Parser>>,
    /// Whether the parser accepts no more data.
    pub stopped: bool,
    /// Whether no more data follows, for each direction.
    pub ended: [bool; 2],
    inspections: VecDeque<[Inspection; 2]>,
    first: u64,
    /// Number of transactions whose log records are written.
    pub recorded: u64,
}

impl AppLayer {
    /// Passes data to the parser.
    pub fn data(&mut self, direction: Direction, data: &[u8], end: bool) {
        self.ended[direction as usize] |= end;
        if self.stopped || self.parser.is_none() {
            return;
        }
        if let Some(parser) = self.parser.as_mut() {
            let status = parser.data(direction, data, end);
            self.apply(status);
        }
    }

    /// Tells the parser that bytes are missing.
    pub fn gap(&mut self, direction: Direction, bytes: usize) {
        if self.stopped {
            return;
        }
        if let Some(parser) = self.parser.as_mut() {
            let status = parser.gap(direction, bytes);
            self.apply(status);
        }
    }

    fn apply(&mut self, status: Status) {
        match status {
            Status::Ok => {}
            Status::Stop => self.stopped = true,
            Status::Become(app) => {
                self.app = Some(app);
                self.stopped = true;
            }
        }
    }

    /// Returns a transaction's inspection progress in one direction.
    pub fn inspection(&mut self, id: u64, direction: Direction) -> &mut Inspection {
        let index = id.saturating_sub(self.first) as usize;
        while self.inspections.len() <= index {
            self.inspections.push_back(Default::default());
        }
        &mut self.inspections[index][direction as usize]
    }

    /// Takes a transaction's inspection progress out, so that rules can change it and put it back.
    pub fn take_inspection(&mut self, id: u64, direction: Direction) -> Inspection {
        std::mem::take(self.inspection(id, direction))
    }

    /// Puts the inspection progress back.
    pub fn put_inspection(&mut self, id: u64, direction: Direction, inspection: Inspection) {
        *self.inspection(id, direction) = inspection;
    }

    /// Restarts the inspection of open transactions after a rule change. Complete transactions are
    /// not inspected again.
    pub fn restart_inspections(&mut self) {
        for inspection in self.inspections.iter_mut().flatten() {
            inspection.searched = [0; 4];
            inspection.rules.clear();
        }
    }

    /// Returns whether all rules have inspected the transaction in both directions.
    pub fn is_done(&mut self, id: u64) -> bool {
        Direction::BOTH.into_iter().all(|direction| {
            let inspects = self.parser.as_ref().is_none_or(|parser| parser.inspects(id, direction));
            !inspects || self.inspection(id, direction).done
        })
    }

    /// Releases the oldest transactions that have been inspected completely.
    pub fn release_done(&mut self) {
        let Some(range) = self.parser.as_ref().map(|parser| parser.transactions()) else { return };
        for id in range {
            if !self.is_done(id) {
                return;
            }
            if let Some(parser) = self.parser.as_mut() {
                parser.release(id);
            }
            self.inspections.pop_front();
            self.first = id + 1;
        }
    }

    /// Returns whether rules have transactions to inspect.
    pub fn has_open_transactions(&mut self) -> bool {
        let Some(range) = self.parser.as_ref().map(|parser| parser.transactions()) else { return false };
        range.into_iter().any(|id| !self.is_done(id))
    }
}
