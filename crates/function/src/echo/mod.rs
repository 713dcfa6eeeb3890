//! The function `echo` sends every frame back to its sender. A number in the payload selects the
//! egress port.
//!
//! The function does very little work per packet, so its run time shows the cost of the surrounding
//! code. The authors of G-Opt also measure such a function.

mod config;
mod reference;
mod tables;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ImageRef, Memory};
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Error, Function, Kind};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/echo/echo.h`.
pub use godwit_kernels::declared::echo::*;

/// Offset of the port number in the frame, in bytes. It follows the headers of Ethernet, IPv4
/// without options, and UDP.
pub const NUMBER_OFFSET: usize = 14 + 20 + 8;

/// Registration of the function kind `echo`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Configured function of kind `echo`.
#[derive(Debug)]
pub struct Echo {
    ports: u32,
    image: Memory,
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let ports = config.ports(context)?;
    Ok(Arc::new(Echo { ports, image: tables::image(ports)? }))
}

impl Function for Echo {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        self.image[..].into()
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        reference::run_ref(buffer, descriptor, self.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_error, build_ok, run};

    fn frame(number: u32) -> Vec<u8> {
        let mut frame: Vec<u8> = (0..60).collect();
        frame[42..46].copy_from_slice(&number.to_be_bytes());
        frame
    }

    #[test]
    fn number_selects_the_port() {
        for (stanza, ports) in [("", 3), ("ports = 2", 2), ("ports = 3", 3)] {
            let function = build_ok(&KIND, stanza, &["a", "b", "c"]);
            for number in [0, 1, 2, 3, 0x0100_0000, u32::MAX] {
                let mut frame = frame(number);
                let outcome = run(&*function, &mut frame);
                assert_eq!(outcome, Outcome { port: (number % ports) as u16, ..Outcome::verdict(VERDICT_FORWARD) });
                assert_eq!(frame[..12], [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]);
            }
        }
    }

    #[test]
    fn incomplete_number_is_truncated() {
        let function = build_ok(&KIND, "", &["a"]);
        let whole = frame(7);
        for length in 0..46 {
            let mut frame = whole[..length].to_vec();
            assert_eq!(run(&*function, &mut frame), Outcome::drop(DROP_TRUNCATED));
            assert_eq!(frame, whole[..length]);
        }
    }

    #[test]
    fn number_of_ports_is_checked() {
        for (stanza, ports) in [("ports = 0", &["a"][..]), ("ports = 2", &["a"]), ("", &[]), ("ports = -1", &["a"])] {
            let error = build_error(&KIND, stanza, ports).to_string();
            assert!(error.contains("port") || error.contains("u32"), "{error}");
        }
    }

    #[test]
    fn image_matches_the_kernel() {
        let function = build_ok(&KIND, "", &["a", "b"]);
        assert_eq!(function.image().to_vec(), *b"ECHO\x02\0\0\0");
    }
}
