//! Policies for overlapping TCP segments. Receivers differ in which of the two copies of a byte
//! they keep.
//!
//! The names follow Novak and Sturges, Target-Based TCP Stream Reassembly (2007), and Suricata's
//! `host-os-policy`.

/// Policy that decides which of two overlapping segments provides the bytes that both contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlapPolicy {
    /// The bytes of the first segment are kept. Inline mode uses this policy and ensures that the
    /// receiver sees the same bytes.
    First,
    /// The bytes of the last segment are kept.
    Last,
    /// The bytes of the first segment are kept, unless the later segment begins earlier in the
    /// stream. This is the default policy, and the policy for `windows`.
    #[default]
    Bsd,
    /// Like the BSD policy, but the later segment also replaces the bytes if both segments have the
    /// same start and the later segment is longer.
    Linux,
    /// The bytes of the later segment are kept, unless it begins after the start of the first
    /// segment and does not extend past its end.
    OldLinux,
    /// The bytes of the later segment are kept, unless the first segment extends past its end.
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
