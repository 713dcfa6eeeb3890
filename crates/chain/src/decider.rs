//! The route decider: where a packet goes next.

use godwit_abi::VERDICT_DROP;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// No edge takes it: it is dropped and counted.
    None,
    /// To this function (index of the configured function).
    Function(u16),
    /// Out by this port.
    Port(u8),
    /// Out by the port that the function chose (`Outcome::port`).
    Egress,
    /// Nowhere: an edge says that it is to be dropped.
    Drop,
}

/// [`Next`] in 16 bits: the kind in the upper two, the index below.
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
                assert!(function < Self::FUNCTION, "more functions than the decider can name");
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

/// (stage, class, verdict) → next stage: one dense table, two bytes an entry, one load a packet.
///
/// ```text
/// entries   port 0            ...  class 0 .. classes-1, one entry each
///           function 0        ...  class 0: verdict 0 .. verdicts-1 | class 1: ...
/// ```
/// `verdicts` is the most that any function has; entries beyond a function's own verdicts are [`Next::None`].
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
    /// A decider without edges. `classes` counts class 0; `verdicts` is the most that any function has.
    pub(crate) fn new(ports: usize, functions: usize, classes: usize, verdicts: usize) -> Self {
        let functions_start = ports * classes;
        let entries = vec![Code::NONE; functions_start + functions * classes * verdicts].into();
        Self { entries, functions_start, ports, functions, classes, verdicts }
    }

    pub(crate) fn set_entry(&mut self, port: usize, class: usize, next: Next) {
        self.entries[port * self.classes + class] = Code::new(next);
    }

    pub(crate) fn set_next(&mut self, function: usize, class: usize, verdict: usize, next: Next) {
        let at = self.index(function, class, verdict);
        self.entries[at] = Code::new(next);
    }

    /// Where a packet of this class goes that came in by `port`. [`Next::None`] for a port or class that is not there.
    #[inline]
    pub fn entry(&self, port: u8, class: u8) -> Next {
        let (port, class) = (usize::from(port), usize::from(class));
        if port >= self.ports || class >= self.classes {
            return Next::None;
        }
        self.entries[port * self.classes + class].next()
    }

    /// Where a packet of this class goes of which function `instance` said `verdict`.
    /// [`Next::Drop`] for [`VERDICT_DROP`]; [`Next::None`] for a function, class or verdict that is not there.
    #[inline]
    pub fn next(&self, instance: u16, class: u8, verdict: u8) -> Next {
        let (instance, class, index) = (usize::from(instance), usize::from(class), usize::from(verdict));
        if index >= self.verdicts || class >= self.classes || instance >= self.functions {
            return if verdict == VERDICT_DROP { Next::Drop } else { Next::None };
        }
        self.entries[self.index(instance, class, index)].next()
    }

    /// Number of classes, class 0 included.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Size of the table in bytes.
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
    fn every_next_survives_its_code() {
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
    fn entries_do_not_overlap_and_what_is_not_there_is_none() {
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
