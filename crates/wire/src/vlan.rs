//! VLAN tags (IEEE 802.1Q, clause 9). A tag starts after the ethertype that announces it, so double
//! tags nest:
//!
//! ```text
//! Ethernet (ethertype 88a8) -> Vlan (ethertype 8100) -> Vlan (ethertype 0800) -> IPv4
//!
//! 0                            2           4
//! | priority:3 dei:1 id:12     | ethertype | payload
//! ```

use crate::Error;
use crate::view::range;

/// Length in bytes of a tag without the ethertype that announces it.
pub const HEADER_BYTES: usize = 4;

/// Maximum value of the VLAN identifier field. IEEE 802.1Q reserves the value 4095 itself.
pub const ID_MAX: u16 = 0x0fff;

view! {
    /// A VLAN tag, which starts with its tag control information.
    Vlan, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES { Err(Error::Truncated) } else { Ok(()) }
}

fields! { Vlan;
    /// Tag control information: the priority, the drop eligible indicator and the VLAN identifier.
    0 => control / set_control: u16,
    /// Type of the payload.
    2 => ethertype / set_ethertype: u16,
}

impl<T: AsRef<[u8]>> Vlan<T> {
    /// Returns the VLAN identifier, 0 to 4095. The value 0 marks a tag that only sets the priority.
    #[inline]
    pub fn id(&self) -> u16 {
        self.control() & ID_MAX
    }

    /// Returns the priority code point, 0 to 7.
    #[inline]
    pub fn priority(&self) -> u8 {
        (self.control() >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    #[inline]
    pub fn drop_eligible(&self) -> bool {
        self.control() & 0x1000 != 0
    }

    /// Returns all bytes after the tag.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Vlan<T> {
    /// Writes the VLAN identifier. Ignores all but the lower 12 bits of the value.
    pub fn set_id(&mut self, id: u16) {
        self.set_control(self.control() & !ID_MAX | id & ID_MAX);
    }
}

/// Representation of a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanHeader {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0 to 4095.
    pub id: u16,
    /// Type of the payload.
    pub ethertype: u16,
}

impl VlanHeader {
    /// Parses the tag.
    pub fn parse<T: AsRef<[u8]>>(view: &Vlan<T>) -> Self {
        Self {
            priority: view.priority(),
            drop_eligible: view.drop_eligible(),
            id: view.id(),
            ethertype: view.ethertype(),
        }
    }

    /// Writes the tag to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.priority > 7 || self.id > ID_MAX {
            return Err(Error::Malformed);
        }
        let mut view = Vlan::new_checked(buffer)?;
        view.set_control(u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.id);
        view.set_ethertype(self.ethertype);
        Ok(HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_a_known_tag() {
        let view = Vlan::new_checked([0xb0, 0x64, 0x08, 0x00, 0x45]).unwrap();
        assert_eq!((view.priority(), view.drop_eligible(), view.id()), (5, true, 100));
        assert_eq!(view.ethertype(), 0x0800);
        assert_eq!(view.payload(), [0x45]);
        assert_eq!(Vlan::new_checked([0u8; 3]), Err(Error::Truncated));
    }

    proptest! {
        #[test]
        fn emit_then_parse(priority in 0u8..10, drop_eligible: bool, id in 0u16..5000, ethertype: u16, other: u16) {
            let header = VlanHeader { priority, drop_eligible, id, ethertype };
            let mut buffer = [0; 4];
            let result = header.emit(&mut buffer);
            if priority > 7 || id > ID_MAX {
                prop_assert_eq!(result, Err(Error::Malformed));
            } else {
                prop_assert_eq!(result, Ok(4));
                let mut view = Vlan::new_checked(&mut buffer).unwrap();
                prop_assert_eq!(VlanHeader::parse(&view), header);
                view.set_id(other);
                prop_assert_eq!(VlanHeader::parse(&view), VlanHeader { id: other & ID_MAX, ..header });
            }
        }
    }
}
