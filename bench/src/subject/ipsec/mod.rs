//! IPsec on packets in memory, as a gateway in the engine, and on CPU and device together.
//!
//! | file | contents |
//! |---|---|
//! | `alone.rs` | any suite on packets in memory |
//! | `whole.rs` | one suite of ESP with its host half; peer: ipsec-mb |
//! | `jobs.rs` | the packets and keys that the peer receives |
//! | `together.rs`, `peers.rs` | CPU cores and a device together, arena to arena; and the peer on the same cores |
//! | `gateway.rs` | the whole engine around encryption |
//! | `gateway_rows.rs`, `gateway_together.rs` | the gateway on devices; on CPU cores and a device together |
//! | `io_models.rs` | the gateway with one thread for input and output, and with two |
//! | `workers.rs` | the gateway on several workers, with packets that arrive at any of them |
//! | `figures.rs` | figures 8 and 12 of PIPSEA and figure 9(a) of APUNet |

pub(super) mod alone;
pub(super) mod figures;
mod gateway;
pub(super) mod gateway_rows;
pub(super) mod gateway_together;
pub(super) mod io_models;
mod jobs;
mod peers;
pub(super) mod together;
mod whole;
pub(super) mod workers;
