//! Policies for overlapping TCP segments.
//!
//! If two segments contain the same byte, receivers differ in which copy they keep. The names
//! follow Novak and Sturges, Target-Based TCP Stream Reassembly (2007), and Suricata's
//! `host-os-policy`.

/// Policy that decides which of two overlapping segments provides the common bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlapPolicy {
    /// Keeps the bytes of the first segment. Inline mode uses this policy, and makes sure that the
    /// receiver sees the same bytes.
    First,
    /// Keeps the bytes of the last segment.
    Last,
    /// Keeps the bytes of the first segment, unless the later segment begins earlier in the stream.
    /// This is the default, and also applies to `windows`.
    #[default]
    Bsd,
    /// Like the BSD policy, but also keeps the bytes of a later segment that has the same start and
    /// is longer.
    Linux,
    /// Keeps the bytes of the later segment if it starts no later than the first segment, or if it
    /// extends past its end.
    OldLinux,
    /// Keeps the bytes of the later segment, unless the first segment extends past its end.
    Solaris,
}

impl OverlapPolicy {
    /// List of all policies.
    pub const ALL: [Self; 6] = [Self::First, Self::Last, Self::Bsd, Self::Linux, Self::OldLinux, Self::Solaris];

    /// Returns whether a later segment `new` replaces bytes of an earlier segment `old`. Both are
    /// ranges of stream offsets.
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

    /// Returns the policy for a name from the setting `host-os-policy`.
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
