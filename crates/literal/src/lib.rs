//! Searches for many byte strings (patterns) at once with the stride filter.
//!
//! A window is a byte string of length w within a pattern. A pattern of n bytes contains n - w + 1
//! windows. Exactly one of any s consecutive windows begins at a multiple of s, wherever the
//! pattern lies in the text. The filter therefore stores only s windows of each pattern, and looks
//! up only every s-th position of the text. It selects the windows that are rarest in traffic. A
//! hit leads to a bucket of exact windows, and then to a comparison of the whole pattern. No match
//! is lost, and every reported match is correct.
//!
//! | group | pattern length | window w | stride s |
//! |---|---|---|---|
//! | 0 | 11 and more | 8 | 4 |
//! | 1 | 7 to 10 | 4 | 4 |
//! | 2 | 4 to 6 | 3 | 2 |
//! | 3 | 1 to 3 | 1 to 3 | 1 |
//!
//! Groups 0 and 1 share a first table of 4-byte windows that fits into the first-level cache.
//! Related work is Wu and Manber (1994), FDR and Teddy (Hyperscan, NSDI 2019), and DFC (NSDI 2016).
//!
//! | file | contents |
//! |---|---|
//! | `build.rs` | builds an image from patterns |
//! | `image.rs` | layout of the image |
//! | `frequency.rs` | frequencies of windows in traffic |
//! | `scan.rs` | search with an image, in Rust |
//! | `native.rs` | search with an image, in C (`c/scan.c`), for every CPU and with AVX-512 |
//! | `reference.rs` | search without an image |
//!
//! ```
//! use godwit_literal::{Frequencies, Pattern, build};
//!
//! let patterns = [b"passwd".as_slice(), b"GET"].map(|bytes| Pattern {
//!     bytes: bytes.to_vec(),
//!     nocase: false,
//! });
//! let image = build(&patterns, &Frequencies::new(), 1);
//!
//! // A match consists of the index of the pattern and the text offset after the match.
//! let mut matches = Vec::new();
//! image.scan(b"GET /etc/passwd", |pattern, end| matches.push((pattern, end)));
//! matches.sort_unstable();
//! assert_eq!(matches, [(0, 15), (1, 3)]);
//! ```

#![deny(unsafe_code)]

mod build;
mod frequency;
mod image;
#[allow(unsafe_code, reason = "calls the forms in C")]
mod native;
mod reference;
mod scan;

pub use build::{Pattern, build};
pub use frequency::Frequencies;
pub use image::Image;
pub use native::Form;
pub use reference::find_all;
