//! Table image of `template`, which is empty.
//!
//! A function with a table image creates it in this file, once, on the control thread. The image
//! consists of bytes in a [`Memory`](godwit_packet::Memory): a header with a magic number, then
//! tables. Tables are located by offsets from the start of the image, because every device maps the
//! image at another address. `ipv4/tables.rs` is a complete example.

/// Image of a kernel without tables.
pub(super) const IMAGE: &[u8] = &[];
