//! The `af_xdp` port: an interface of Linux, accessed through AF_XDP sockets. The UMEM of the
//! sockets is the arena.
//!
//! ```text
//! NIC queue i -> XDP program -- taken --> socket i: RX ring -> worker i -> TX ring -> NIC queue i
//!                    '-- others --> the kernel        fill and completion rings circulate buffers
//! ```
//!
//! A buffer is a chunk of the UMEM, and the region of a worker is the UMEM of its socket. The port
//! therefore never copies frames. If the driver supports zero-copy, the NIC writes into the arena
//! directly. Otherwise the kernel copies each frame once.
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
