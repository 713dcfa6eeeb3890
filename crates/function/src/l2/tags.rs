//! Adds and removes 802.1Q tags when a frame leaves the switch. A frame that arrives and leaves
//! with a tag keeps its priority. A new tag has priority 0. A frame that loses its tag may become
//! shorter than 60 bytes, and the port then pads the frame.

use godwit_abi::Descriptor;
use godwit_wire::ethertype;

use super::{POP, PUSH, SET};

/// Length of a tag, in bytes.
pub(super) const TAG_BYTES: usize = 4;
/// Offset of the tag, which follows both MAC addresses.
const TAG_OFFSET: usize = 12;

/// Returns the tag change that a frame needs: [`POP`], [`PUSH`], [`SET`] or 0. `tag` is the VLAN
/// identifier on arrival.
pub(super) fn edit(tag: Option<u16>, leaves_tagged: bool) -> u32 {
    match (tag, leaves_tagged) {
        (None, true) => PUSH,
        (Some(0), true) => SET,
        (Some(_), false) => POP,
        (None, false) | (Some(_), true) => 0,
    }
}

/// Applies the change returned by [`edit`].
pub(super) fn apply(buffer: &mut [u8], descriptor: &mut Descriptor, edit: u32, vid: u16) {
    let head = usize::from(descriptor.head);
    match edit {
        POP => {
            buffer.copy_within(head..head + TAG_OFFSET, head + TAG_BYTES);
            descriptor.head += TAG_BYTES as u16;
            descriptor.length -= TAG_BYTES as u16;
        }
        PUSH => {
            let new = head - TAG_BYTES;
            buffer.copy_within(head..head + TAG_OFFSET, new);
            let tag = &mut buffer[new + TAG_OFFSET..][..TAG_BYTES];
            tag[..2].copy_from_slice(&ethertype::VLAN.to_be_bytes());
            tag[2..].copy_from_slice(&vid.to_be_bytes());
            descriptor.head -= TAG_BYTES as u16;
            descriptor.length += TAG_BYTES as u16;
        }
        SET => {
            let [high, low] = vid.to_be_bytes();
            let tci = &mut buffer[head + TAG_OFFSET + 2..][..2];
            tci[0] = tci[0] & 0xf0 | high;
            tci[1] = low;
        }
        _ => {}
    }
}

/// Adds or removes the tag of a frame. The result has a tag with the VLAN identifier `vid` if
/// `leaves_tagged` is set, and no tag otherwise.
pub(super) fn retag(buffer: &mut [u8], descriptor: &mut Descriptor, vid: u16, leaves_tagged: bool) {
    let head = usize::from(descriptor.head);
    let frame = &buffer[head..head + usize::from(descriptor.length)];
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let is_tagged = word(TAG_OFFSET) == ethertype::VLAN;
    let tag = is_tagged.then(|| word(TAG_OFFSET + 2) & 0xfff);
    apply(buffer, descriptor, edit(tag, leaves_tagged), vid);
}
