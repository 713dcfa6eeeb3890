//! Kinds of log records, and the set of kinds that are written.

/// Kind of record: `event_type` in EVE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A rule matched.
    Alert,
    /// A packet was dropped.
    Drop,
    /// A flow ended.
    Flow,
    /// A file was transferred.
    FileInfo,
    /// An HTTP transaction is complete.
    Http,
    /// A DNS message.
    Dns,
    /// A TLS handshake is complete.
    Tls,
    /// An SSH handshake.
    Ssh,
    /// Counters.
    Stats,
}

/// Set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u16);

impl Default for Kinds {
    /// Returns all kinds.
    fn default() -> Self {
        Self(u16::MAX)
    }
}

impl Kinds {
    /// Names of all kinds, in the order of [`Kind`].
    pub const NAMES: [&str; 9] = ["alert", "drop", "flow", "fileinfo", "http", "dns", "tls", "ssh", "stats"];

    /// Returns the empty set.
    pub fn none() -> Self {
        Self(0)
    }

    /// Returns the set of record kinds with these names, or the first unknown name as an error.
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, &'n str> {
        let mut set = 0;
        for name in names {
            set |= 1 << Self::NAMES.iter().position(|known| *known == name).ok_or(name)?;
        }
        Ok(Self(set))
    }

    /// Returns whether records of this kind are written.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// Returns whether the set contains the transaction records with this `event_type`.
    pub fn contains_name(self, name: &str) -> bool {
        Self::NAMES.iter().position(|known| *known == name).is_none_or(|bit| self.0 >> bit & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_kinds() {
        let kinds = Kinds::from_names(["alert", "tls"]).unwrap();
        assert!(kinds.contains(Kind::Alert) && kinds.contains(Kind::Tls) && kinds.contains_name("tls"));
        assert!(!kinds.contains(Kind::Drop) && !kinds.contains(Kind::Stats) && !kinds.contains_name("http"));
        assert_eq!(Kinds::from_names(["alert", "alarm"]), Err("alarm"));
        assert!(Kinds::NAMES.iter().all(|name| Kinds::default().contains_name(name)));
    }
}
