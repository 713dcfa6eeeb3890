//! The function `template` swaps the MAC addresses of a frame and forwards it. It is the starting
//! point for a new function.

mod config;
mod reference;
mod tables;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::ImageRef;
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Error, Function, Kind};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in
/// `kernels/template/template.h`.
pub use godwit_kernels::declared::template::*;

/// Registration of the function kind `template`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Configured function of kind `template`.
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
