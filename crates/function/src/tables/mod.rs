//! Tables that several functions share. A table is built once, and then changes while kernels look
//! up entries.
//!
//! | module | table | used by |
//! |---|---|---|
//! | `exact` | cuckoo hash table | `l2`, declared tables |
//! | `lpm4` | DIR-24-8 | `ipv4`, declared tables |
//! | `rows` | rows that entries refer to | declared tables |

pub(crate) mod exact;
pub(crate) mod lpm4;
