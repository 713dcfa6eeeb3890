//! Packet headers: typed views over `&[u8]` and `&mut [u8]`.
//!
//! Each protocol has one file with the same parts:
//!
//! * A view, such as [`Ipv4<T>`](Ipv4). `new_checked(buffer)` checks the lengths once. Fields are
//!   then read by name, and written by `set_…` if `T: AsMut<[u8]>`.
//! * A plain struct, such as [`Ipv4Header`]. `parse(&view)` reads it. `emit(&mut buffer)` writes
//!   it and returns the number of bytes. Checksums over the payload are written later, by
//!   `fill_checksum` of the view.
//!
//! [`five_tuple::parse`] parses a whole frame in one pass, for the packet path.
//!
//! No input makes this crate panic. A field may lie outside the buffer if a setter or the owner of
//! the buffer changed a length after `new_checked`. The field then reads as zero, and a write to it
//! has no effect.
//!
//! The crate does not allocate, has no I/O and depends on no other crate.
//!
//! The example emits an IPv4 header and parses it:
//!
//! ```
//! use godwit_wire::{Ipv4, Ipv4Header, protocol};
//!
//! let header = Ipv4Header {
//!     traffic_class: 0,
//!     identification: 1,
//!     dont_fragment: true,
//!     more_fragments: false,
//!     fragment_offset_bytes: 0,
//!     ttl: 64,
//!     protocol: protocol::UDP,
//!     source: [192, 0, 2, 1],
//!     destination: [198, 51, 100, 7],
//!     options: &[],
//!     payload_bytes: 4,
//! };
//! let mut packet = [0; 24];
//! assert_eq!(header.emit(&mut packet)?, 20);
//!
//! let mut view = Ipv4::new_checked(&mut packet[..])?;
//! view.verify_checksum()?;
//! assert!(view.decrement_ttl());
//! assert_eq!(Ipv4Header::parse(&view), Ipv4Header { ttl: 63, ..header });
//! # Ok::<(), godwit_wire::Error>(())
//! ```
#![forbid(unsafe_code)]

#[macro_use]
mod view;

pub mod address;
pub mod ah;
pub mod arp;
pub mod checksum;
pub mod esp;
pub mod ethernet;
pub mod five_tuple;
#[doc(hidden)]
pub mod fuzz;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extension;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use address::{IpAddress, MacAddress, NotAMacAddress};
pub use ah::{Ah, AhHeader};
pub use arp::{Arp, ArpHeader};
pub use checksum::Checksum;
pub use esp::{Esp, EspHeader, EspTrailer};
pub use ethernet::{Ethernet, EthernetHeader, ethertype};
pub use five_tuple::{FiveTuple, Parsed, parse};
pub use icmpv4::{Icmpv4, Icmpv4Header};
pub use icmpv6::{Icmpv6, Icmpv6Header};
pub use ipv4::{Ipv4, Ipv4Header, protocol};
pub use ipv6::{Ipv6, Ipv6Header};
pub use ipv6_extension::{Extension, Extensions, FragmentHeader};
pub use tcp::{Tcp, TcpHeader};
pub use udp::{Udp, UdpHeader};
pub use vlan::{Vlan, VlanHeader};

/// Error in a header. Callers count errors by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The buffer ends before the header, or before the length in the header. `emit` returns this
    /// error for a buffer that is too small.
    Truncated,
    /// A field has a value that its standard forbids. `emit` returns this error for a value that
    /// does not fit its field.
    Malformed,
    /// A checksum is wrong.
    Checksum,
    /// The packet has more than [`ipv6_extension::HEADERS_MAX`] IPv6 extension headers.
    TooDeep,
}

impl Error {
    /// Number of error kinds, which is the size of counter tables.
    pub const COUNT: usize = 4;

    /// Returns the index of this error in a counter table. The index is below [`Error::COUNT`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of this error, for the names of counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::Checksum => "checksum",
            Self::TooDeep => "too_deep",
        }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the buffer ends before the header or the length in the header",
            Self::Malformed => "a header field has a value that its standard forbids",
            Self::Checksum => "the checksum does not match",
            Self::TooDeep => "too many IPv6 extension headers",
        })
    }
}

impl core::error::Error for Error {}
