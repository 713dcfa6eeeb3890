//! Empty table of `template`. In a function with tables, the control thread builds them once with
//! the code in this file.
//!
//! The tables are a sequence of bytes in a [`Memory`](godwit_packet::Memory). It begins with a
//! header that contains a magic number. All parts are located by offsets from the start of the
//! memory, because the address differs on every device. The file `ipv4/tables.rs` is a complete
//! example.

/// Empty table of a kernel that uses no tables.
pub(super) const IMAGE: &[u8] = &[];
