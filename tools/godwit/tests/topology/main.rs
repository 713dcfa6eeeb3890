//! Godwit in networks, with real programs around it: the kernel's ping, ARP and neighbour discovery, iperf3, curl, tcpreplay, scapy.
//!
//! | file | holds |
//! |---|---|
//! | `net.rs` | namespaces, cables, programs in them |
//! | `router.rs` | host – router – host |
//! | `follow.rs` | the same, with routes and neighbours of the kernel, and ICMP |
//! | `neighbours.rs` | without a kernel beside it: own ARP and neighbour discovery, and a TAP interface for the machine itself |
//! | `gateway.rs` | host – gateway ═ESP═ gateway – host; scapy as the other gateway |
//! | `strongswan.rs` | strongSwan as the other gateway, keys from its IKE |
//! | `switch.rs` | four hosts at two switches, a trunk with two VLANs between them |
//! | `inline.rs` | deep packet inspection in the middle of a cable |
//! | `trouble.rs` | links that go down, interfaces that vanish, processes that are killed |

#[path = "../common/mod.rs"]
mod common;
mod follow;
mod gateway;
mod inline;
mod neighbours;
mod net;
mod router;
mod strongswan;
mod switch;
mod trouble;
