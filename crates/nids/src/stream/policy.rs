//! Policies for overlapping TCP segments. Receivers differ in which of the two copies of a byte
//! they keep.
//!
//! The names follow Novak and Sturges, Target-Based TCP Stream Reassembly (2007), and Suricata's
//! `host-os-policy`.

/// Policy that decides which of two overlapping segments provides the bytes that both contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlapPolicy {
    /// The first segment wins. Inline mode uses this policy and ensures that the receiver sees the
    /// same bytes.
    First,
    /// The last segment wins.
    Last,
    /// The first segment wins, unless the later segment begins before it. This is the default
    /// policy, and the policy for `windows`.
    #[default]
    Bsd,
    /// Like the BSD policy, but a later segment with the same start also wins if it ends later.
    Linux,
    /// The later segment wins, unless it begins after the first segment and does not end after it.
    OldLinux,
    /// The later segment wins, unless the first one ends after it.
    Solaris,
}

impl OverlapPolicy {
    /// List of all policies.
    pub const ALL: [Self; 6] = [Self::First, Self::Last, Self::Bsd, Self::Linux, Self::OldLinux, Self::Solaris];

    /// Returns whether a later segment `new` replaces bytes of an earlier segment `old`. Both
    /// arguments are ranges of stream offsets.
    pub fn new_wins(self, old: (u64, u64), new: (u64, u64)) -> bool {
        match self {
            Self::First => false,
            Self::Last => true,
            Self::Bsd => new.0 < old.0,
            Self::Linux => new.0 < old.0 || (new.0 == old.0 && new.1 > old.1),
            Self::OldLinux => new.0 <= old.0 || new.1 > old.1,
            Self::Solaris => new.1 >= old.1,
        }
    }

    /// Returns the policy for a name in the setting `host-os-policy`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "first" => Self::First,
            "last" => Self::Last,
            "bsd" | "windows" | "windows2k3" | "vista" | "irix" | "macos" | "hpux10" | "bsd-right" => Self::Bsd,
            "linux" => Self::Linux,
            "old-linux" => Self::OldLinux,
            "solaris" | "old-solaris" | "hpux11" => Self::Solaris,
            _ => return None,
        })
    }
}
