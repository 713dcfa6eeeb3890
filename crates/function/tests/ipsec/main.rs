//! IPsec: every form of the kernel, compared with `ref`, with RustCrypto and with other
//! implementations.
//!
//! | module | packets |
//! |---|---|
//! | `bad_input` | damaged, repeated and forged ones |
//! | `kernel` | valid and invalid ones of AES-128-CBC with HMAC-SHA1-96, built with RustCrypto |
//! | `nat` | UDP encapsulation and transport mode through NAT |
//! | `page` | none: the page of the function lists every suite and key |
//! | `peers` | of and for scapy and tshark |
//! | `primitives`, `transforms` | none: ciphers and hashes alone |
//! | `secgw` | of and for ipsec-secgw of DPDK |
//! | `vectors` | of OpenDataPlane, strongSwan and tcpdump |

mod bad_input;
mod esp;
mod gateway;
mod kernel;
mod nat;
mod page;
mod peers;
mod primitives;
mod program;
mod secgw;
mod transforms;
mod vectors;
