//! Table image of `template`, which is empty.
//!
//! If a function has a table image, the control thread creates it once, by the code in this file.
//! The image is a sequence of bytes in a [`Memory`](godwit_packet::Memory). It begins with a header
//! that contains a magic number, and tables follow. The tables are located by offsets from the
//! start of the image, because every device maps the image at another address. The file
//! `ipv4/tables.rs` is a complete example.

/// Table image of a kernel that uses no tables.
pub(super) const IMAGE: &[u8] = &[];
