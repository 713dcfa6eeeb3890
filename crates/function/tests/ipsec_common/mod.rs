//! Shared code of the `ipsec` tests: SAs and packets, functions from stanzas, and running packets
//! through every form.
#![allow(dead_code, reason = "each test uses a part of this module")]

pub(crate) mod association;
pub(crate) mod batch;
pub(crate) mod bytes;
pub(crate) mod esp;
pub(crate) mod gateway;
pub(crate) mod hostile;
pub(crate) mod program;
pub(crate) mod vectors;

#[allow(unused_imports, reason = "each test uses a part of this module")]
pub(crate) use batch::*;
#[allow(unused_imports, reason = "each test uses a part of this module")]
pub(crate) use bytes::{Random, hex, repository, set_checksum, unhex};
