//! The table image: none. A function that has one builds it here, once, on the control thread, as bytes in a
//! [`Memory`](godwit_packet::Memory): a header with a magic number, then tables that are named by offsets from the
//! image's start, because every device maps the image at another address. `ipv4/tables.rs` is a full example.

/// The image of a kernel that needs none.
pub(super) const IMAGE: &[u8] = &[];
