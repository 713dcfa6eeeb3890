//! Selects the next function or port of each packet in the function chain.

use godwit_abi::VERDICT_DROP;

/// The next function or port of a packet, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// No edge of the chain matches the packet, so the packet is dropped and counted.
    None,
    /// The function with this index.
    Function(u16),
    /// The port with this index, which sends the packet.
    Port(u8),
    /// The port that the function chose for the packet (`Outcome::port`).
    Egress,
    /// The function or an edge of the chain drops the packet.
    Drop,
}

/// A [`Next`] in 16 bits. The upper two bits contain the variant, and the lower 14 bits contain the
/// index.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Code(u16);

impl Code {
    const KIND: u16 = 0xc000;
    const FUNCTION: u16 = 0x4000;
    const PORT: u16 = 0x8000;
    const NONE: Self = Self(0);
    const EGRESS: Self = Self(1);
    const DROP: Self = Self(2);

    fn new(next: Next) -> Self {
        match next {
            Next::None => Self::NONE,
            Next::Egress => Self::EGRESS,
            Next::Drop => Self::DROP,
            Next::Port(port) => Self(Self::PORT | u16::from(port)),
            Next::Function(function) => {
                assert!(function < Self::FUNCTION, "function {function} exceeds the 14 bits of a decider entry");
                Self(Self::FUNCTION | function)
            }
        }
    }

    #[inline]
    fn next(self) -> Next {
        match self.0 & Self::KIND {
            Self::FUNCTION => Next::Function(self.0 & !Self::KIND),
            Self::PORT => Next::Port(self.0 as u8),
            _ => match self {
                Self::EGRESS => Next::Egress,
                Self::DROP => Next::Drop,
                _ => Next::None,
            },
        }
    }
}

/// Table of the next functions and ports. It has one entry for each class and port, and for each
/// class, function and verdict. An entry has two bytes, and a lookup is one load.
///
/// ```text
/// entries   port 0            ...  class 0 .. classes-1, one entry each
///           function 0        ...  class 0: verdict 0 .. verdicts-1 | class 1: ...
/// ```
///
/// `verdicts` is the largest number of verdicts of any function. For a function with fewer
/// verdicts, the remaining entries are [`Next::None`].
#[derive(Clone, PartialEq, Eq)]
pub struct Decider {
    entries: Box<[Code]>,
    functions_start: usize,
    ports: usize,
    functions: usize,
    classes: usize,
    verdicts: usize,
}

impl Decider {
    /// Creates a decider for a function chain without edges. `classes` is the number of packet
    /// classes, including class 0. `verdicts` is the largest number of verdicts that a function can
    /// return.
    pub(crate) fn new(ports: usize, functions: usize, classes: usize, verdicts: usize) -> Self {
        let functions_start = ports * classes;
        let entries = vec![Code::NONE; functions_start + functions * classes * verdicts].into();
        Self { entries, functions_start, ports, functions, classes, verdicts }
    }

    pub(crate) fn set_entry(&mut self, port: usize, class: usize, next: Next) {
        self.entries[port * self.classes + class] = Code::new(next);
    }

    pub(crate) fn set_next(&mut self, function: usize, class: usize, verdict: usize, next: Next) {
        let index = self.index(function, class, verdict);
        self.entries[index] = Code::new(next);
    }

    /// Returns the next function or port for a packet of `class` that arrived at `port`. The result
    /// is [`Next::None`] if the port or class does not exist.
    #[inline]
    pub fn entry(&self, port: u8, class: u8) -> Next {
        let (port, class) = (usize::from(port), usize::from(class));
        if port >= self.ports || class >= self.classes {
            return Next::None;
        }
        self.entries[port * self.classes + class].next()
    }

    /// Returns the next function or port for a packet of `class` with the `verdict` of `function`.
    ///
    /// The result is [`Next::Drop`] for [`VERDICT_DROP`], and [`Next::None`] if the function, class
    /// or verdict does not exist.
    #[inline]
    pub fn next(&self, function: u16, class: u8, verdict: u8) -> Next {
        let (function, class, index) = (usize::from(function), usize::from(class), usize::from(verdict));
        if index >= self.verdicts || class >= self.classes || function >= self.functions {
            return if verdict == VERDICT_DROP { Next::Drop } else { Next::None };
        }
        self.entries[self.index(function, class, index)].next()
    }

    /// Returns the number of classes, including class 0.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the size of the table, in bytes.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    #[inline]
    fn index(&self, function: usize, class: usize, verdict: usize) -> usize {
        self.functions_start + (function * self.classes + class) * self.verdicts + verdict
    }
}

impl std::fmt::Debug for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decider")
            .field("ports", &self.ports)
            .field("functions", &self.functions)
            .field("classes", &self.classes)
            .field("verdicts", &self.verdicts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_preserves_every_next_stage() {
        for next in [Next::None, Next::Egress, Next::Drop] {
            assert_eq!(Code::new(next).next(), next);
        }
        for port in 0..=u8::MAX {
            assert_eq!(Code::new(Next::Port(port)).next(), Next::Port(port));
        }
        for function in 0..Code::FUNCTION {
            assert_eq!(Code::new(Next::Function(function)).next(), Next::Function(function));
        }
    }

    #[test]
    fn entries_are_separate_and_unknown_ones_are_none() {
        let (ports, functions, classes, verdicts) = (3, 4, 5, 2);
        let mut decider = Decider::new(ports, functions, classes, verdicts);
        let mut number = 0u16;
        let mut expected = Vec::new();
        for class in 0..classes {
            for port in 0..ports {
                decider.set_entry(port, class, Next::Function(number));
                expected.push((true, port, class, 0, number));
                number += 1;
            }
            for function in 0..functions {
                for verdict in 0..verdicts {
                    decider.set_next(function, class, verdict, Next::Function(number));
                    expected.push((false, function, class, verdict, number));
                    number += 1;
                }
            }
        }
        assert_eq!(decider.table_bytes(), usize::from(number) * 2);
        for (port, stage, class, verdict, number) in expected {
            let next = match port {
                true => decider.entry(stage as u8, class as u8),
                false => decider.next(stage as u16, class as u8, verdict as u8),
            };
            assert_eq!(next, Next::Function(number));
        }
        assert_eq!(decider.entry(3, 0), Next::None);
        assert_eq!(decider.entry(0, 5), Next::None);
        assert_eq!(decider.next(4, 0, 0), Next::None);
        assert_eq!(decider.next(0, 5, 0), Next::None);
        assert_eq!(decider.next(0, 0, 2), Next::None);
        assert_eq!(decider.next(0, 0, VERDICT_DROP), Next::Drop);
    }
}
