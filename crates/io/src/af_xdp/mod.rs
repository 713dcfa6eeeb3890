//! Packet port `af_xdp`, which uses a Linux network interface through AF_XDP sockets.
//!
//! ```text
//! NIC queue i -> XDP program -- taken --> socket i: RX ring -> worker i -> TX ring -> NIC queue i
//!                    '-- others --> the kernel        fill and completion rings circulate buffers
//! ```
//!
//! The packet memory of a worker is the UMEM of the worker's socket, so the port never copies
//! frames. If the driver supports zero-copy, the NIC writes into the packet memory directly.
//! Otherwise, the kernel copies each frame once.
//!
//! XDP links and sockets are file descriptors. When the process ends for any reason, the kernel
//! detaches the program.
//!
//! | file | contents |
//! |---|---|
//! | `config` | configuration |
//! | `filter.bpf.c` | XDP program, which selects the frames for the workers |
//! | `filter.bpf.o` | object file of the program, compiled by `scripts/bpf.sh` |
//! | `filter` | rules of the program; loads and attaches it |
//! | `interface` | state of an interface, from the kernel |
//! | `ring`, `socket` | one AF_XDP socket with its four rings |
//! | `port` | the port: sockets of all workers, and links that go down and come back |
//! | `queue` | receive and transmit queue of a worker |

mod config;
mod filter;
pub(crate) mod interface;
mod port;
mod queue;
mod ring;
mod socket;

pub use config::{Action, Attach, Config, Copy, Rule, Take};
