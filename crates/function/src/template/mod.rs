//! `template`: swaps the MAC addresses and forwards the frame. Copy it to write a new function.

mod config;
mod reference;
mod tables;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::ImageRef;
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Drop, Error, Function, Kind, Verdict};

pub use config::Config;

/// The frame has an Ethernet header.
pub const VERDICT_FORWARD: u8 = 0;
/// The frame is shorter than an Ethernet header.
pub const DROP_TRUNCATED: u8 = 0;

/// Contract block of `kernels/template/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "template",
    summary: "Swaps the source and destination MAC address of every frame. The function to copy for a new one.",
    kernel: godwit_kernels::TEMPLATE,
    verdicts: &[Verdict { name: "forward", sentence: "The addresses are swapped.", chooses_port: false }],
    drops: &[Drop { name: "truncated", sentence: "The frame is shorter than an Ethernet header." }],
    variants: &["swap"],
    in_order: false,
    reads_bytes: 12,
    writes_bytes: 12,
    headroom_bytes: 0,
    tailroom_bytes: 0,
    tailroom_saved: [0; 16],
    counters: &[],
    spec: "IEEE 802.3, clause 3.2",
};

/// Registration of the function.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// The configured function.
#[derive(Debug)]
pub struct Template;

fn build(stanza: Spanned<DeTable<'_>>, _context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let Config {} = crate::config::read(stanza)?;
    Ok(Arc::new(Template))
}

impl Function for Template {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        tables::IMAGE.into()
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        reference::run_ref(buffer, descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_error, build_ok, run};

    #[test]
    fn addresses_are_swapped() {
        let function = build_ok(&KIND, "", &[]);
        let mut frame: Vec<u8> = (0..20).collect();
        assert_eq!(run(&*function, &mut frame), Outcome::verdict(VERDICT_FORWARD));
        assert_eq!(frame, [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn frame_without_header_is_dropped_unchanged() {
        let function = build_ok(&KIND, "", &[]);
        for length in 0..14 {
            let mut frame: Vec<u8> = (0..length).collect();
            assert_eq!(run(&*function, &mut frame), Outcome::drop(DROP_TRUNCATED));
            assert_eq!(frame, (0..length).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn unknown_key_is_named_in_the_error() {
        let error = build_error(&KIND, "colour = 1", &[]);
        assert!(error.to_string().contains("colour"), "{error}");
    }
}
