//! The `af_xdp` port: an interface of Linux, by AF_XDP sockets whose UMEM is the arena.
//!
//! ```text
//! NIC queue i -> XDP program -- chosen --> socket i: RX ring -> worker i -> TX ring -> NIC queue i
//!                    '--------- all else --> the kernel                  fill and completion rings: buffers go and come back
//! ```
//! A buffer is a chunk of the UMEM, and a worker's region the UMEM of its sockets, so frames are never copied here: with a driver that does zero
//! copy the NIC writes where workers and devices read, else the kernel copies once. Links and sockets are file descriptors: when the process ends,
//! however it does, the program is detached.
//!
//! | file | holds |
//! |---|---|
//! | `config` | what the operator writes |
//! | `filter.bpf.c` | the XDP program: what is taken, what stays with the kernel; `filter.bpf.o` is made of it by `scripts/bpf.sh` |
//! | `filter` | its rules, and attaching it |
//! | `interface` | what the kernel says of an interface |
//! | `ring`, `socket` | one AF_XDP socket with its four rings |
//! | `port` | the port: sockets of all workers, links that go down and come back |
//! | `queue` | a worker's receive and transmit queue |

mod config;
mod filter;
pub(crate) mod interface;
mod port;
mod queue;
mod ring;
mod socket;

pub use config::{Attach, Base, Config, Copy, Rule, Verdict};
