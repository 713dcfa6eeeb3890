//! Tests of Godwit in networks with real programs: ping, ARP and neighbour discovery of the kernel,
//! iperf3, curl, tcpreplay and scapy.
//!
//! | file | contents |
//! |---|---|
//! | `net.rs` | namespaces, cables and the programs in them |
//! | `router.rs` | host – router – host |
//! | `follow.rs` | a router with routes and neighbours of the kernel, and ICMP |
//! | `neighbours.rs` | a router with its own ARP and neighbour discovery, and a TAP interface for the machine itself |
//! | `gateway.rs` | host – gateway ═ESP═ gateway – host, also with scapy as the second gateway |
//! | `strongswan.rs` | strongSwan as the other gateway, keys from its IKE |
//! | `switch.rs` | four hosts at two switches that a trunk with two VLANs connects |
//! | `rules.rs` | rules of ports that separate ESP in UDP from IKE |
//! | `inline.rs` | deep packet inspection within a cable |
//! | `restart.rs` | killed processes: no nonce repeats, no packet is accepted twice |
//! | `trouble.rs` | links that go down, interfaces that vanish, processes that are killed |

#[path = "../common/mod.rs"]
mod common;
mod follow;
mod gateway;
mod inline;
mod neighbours;
mod net;
mod restart;
mod router;
mod rules;
mod stations;
mod strongswan;
mod switch;
mod trouble;
