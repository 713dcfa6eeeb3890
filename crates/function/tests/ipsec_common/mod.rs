//! What the tests of `ipsec` share: SAs and packets for them, functions from stanzas, packets through every form of the kernel.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod association;
pub(crate) mod batch;
pub(crate) mod bytes;
pub(crate) mod esp;
pub(crate) mod gateway;
pub(crate) mod hostile;
pub(crate) mod program;
pub(crate) mod vectors;

#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use batch::*;
#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use bytes::{Random, hex, repository, set_checksum, unhex};
