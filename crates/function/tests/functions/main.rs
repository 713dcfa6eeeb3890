//! Functions: every form of every kernel compared with `ref`, and changes of tables while packets
//! flow.
//!
//! | module | subject |
//! |---|---|
//! | `matrix` | all functions, implementations and batch sizes |
//! | `built_in` | functions that consist of their folder in `kernels/` |
//! | `declared` | functions of users, and the shapes of declared tables |
//! | `flows` | flows of functions of users, compared with a model |
//! | `follow`, `neighbours` | routes and neighbours of the kernel and of FRR |
//! | `l2_concurrent` | a switch that learns while it forwards |
//! | `route_changes`, `route_changes_ipv6`, `ndn_changes` | lookups while tables change |
//! | `ndn_large` | a table of 200,000 names |
//! | `ipv6_vectors`, `ndn_vectors` | packets and results of other implementations |
//! | `whole_vectors` | `hash` and `aes` with the vectors of their standards |
//! | `pages` | the page of each function lists its contract |

mod built_in;
mod declared;
mod flows;
mod follow;
mod implementations;
mod ipv6_vectors;
mod l2_concurrent;
mod matrix;
mod ndn_changes;
mod ndn_large;
mod ndn_vectors;
mod neighbours;
mod pages;
mod route_changes;
mod route_changes_ipv6;
mod running;
mod whole_bin;
mod whole_vectors;
