//! List of names, and the parser of the name file. The file has one name per line:
//!
//! ```text
//! # comment, also after ;
//! /example/site          upstream
//! ndn:/example/a%20b     lan          ; as a URI
//! /                                   # default route with the default next hop
//! ```
//!
//! Words are separated by any mix of spaces and tabs. Lines end in LF or CRLF.

use std::collections::HashMap;

use godwit_kernels::image::NDN_DEPTHS;

use super::uri::{self, quote};
use crate::Error;

/// Maximum length of a name in bytes. It equals the maximum length of an NDN packet.
pub const NAME_BYTES_MAX: usize = 8800;

/// List of encoded names, each with its next hop index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    /// End offset in `bytes` and next hop of each name.
    entries: Vec<(u64, u32)>,
}

impl Names {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a name, encoded as the value of a Name element. The name must be valid, with at most
    /// [`NAME_BYTES_MAX`] bytes and 32 components.
    pub fn push(&mut self, name: &[u8], next_hop: u32) {
        self.bytes.extend(name);
        self.entries.push((self.bytes.len() as u64, next_hop));
    }

    /// Adds a name that is given as a URI.
    ///
    /// # Errors
    /// Returns an error if the URI is invalid.
    pub fn push_uri(&mut self, text: &[u8], next_hop: u32) -> Result<(), Error> {
        let start = self.bytes.len();
        let result = uri::parse(text, &mut self.bytes).and_then(|components| match self.bytes.len() - start {
            bytes if bytes > NAME_BYTES_MAX => {
                Err(Error::value(format!("the name has {bytes} bytes, but an NDN packet has at most {NAME_BYTES_MAX}")))
            }
            _ if components > NDN_DEPTHS => Err(Error::value(format!(
                "the name has {components} components, but a table supports at most {NDN_DEPTHS}"
            ))),
            _ => Ok(()),
        });
        match result {
            Ok(()) => self.entries.push((self.bytes.len() as u64, next_hop)),
            Err(_) => self.bytes.truncate(start),
        }
        result
    }

    /// Returns all names in order, with their next hops.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let starts = std::iter::once(0).chain(self.entries.iter().map(|entry| entry.0));
        starts.zip(&self.entries).map(|(start, &(end, next_hop))| (&self.bytes[start as usize..end as usize], next_hop))
    }
}

/// Next hops that a line of the file may name.
#[derive(Debug, Default)]
pub(super) struct NextHops<'a> {
    pub(super) index: HashMap<&'a [u8], u32>,
    /// Next hop of the lines that name no next hop.
    pub(super) default: Option<u32>,
}

pub(super) const NO_NEXT_HOP: &str = "the name has no next hop, and no default_next_hop is configured";

/// Parses the name file `text` and appends its names to `names`, in order.
///
/// `next_hops` maps the names of next hops to their indices. `default` is the next hop of a line
/// that names none.
///
/// # Errors
/// Returns the line number, counted from 1, and the problem.
pub fn parse<'a>(
    text: &[u8],
    next_hops: impl IntoIterator<Item = (&'a [u8], u32)>,
    default: Option<u32>,
    names: &mut Names,
) -> Result<(), (usize, String)> {
    parse_with(text, &NextHops { index: next_hops.into_iter().collect(), default }, names)
}

pub(super) fn parse_with(text: &[u8], next_hops: &NextHops<'_>, names: &mut Names) -> Result<(), (usize, String)> {
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let mut words = text
            .split(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c'))
            .filter(|word| !word.is_empty())
            .take_while(|word| !word.starts_with(b"#") && !word.starts_with(b";"));
        let Some(name) = words.next() else { continue };
        let next_hop = match words.next() {
            None => next_hops.default.ok_or_else(|| (line, NO_NEXT_HOP.to_owned()))?,
            Some(word) => *next_hops.index.get(word).ok_or_else(|| (line, unknown_next_hop(word)))?,
        };
        if let Some(word) = words.next() {
            return Err((line, format!("unexpected word \"{}\": a line is NAME NEXT_HOP", quote(word))));
        }
        names.push_uri(name, next_hop).map_err(|error| (line, error.to_string()))?;
    }
    Ok(())
}

pub(super) fn unknown_next_hop(name: &[u8]) -> String {
    format!("no next hop has the name \"{}\"", quote(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_text(text: &[u8], default: Option<u32>) -> Result<Vec<(String, u32)>, (usize, String)> {
        let mut names = Names::new();
        parse(text, [(&b"a"[..], 0), (b"lan-2", 1)], default, &mut names)?;
        Ok(names.iter().map(|(name, next_hop)| (uri::show(name), next_hop)).collect())
    }

    #[test]
    fn every_syntax_is_parsed() {
        let text = b"# head\r\n\r\n; old\n/ a\n \t/x/y%20z\t lan-2 \t# why\r\nndn:/q a ;x\n/last";
        let expected = [("/", 0), ("/x/y%20z", 1), ("/q", 0), ("/last", 7)];
        assert_eq!(parse_text(text, Some(7)).unwrap(), expected.map(|(name, index)| (name.to_owned(), index)));
        assert_eq!(parse_text(b"", None).unwrap(), []);
        assert_eq!(parse_text(b"\n#", None).unwrap(), []);
    }

    #[test]
    fn errors_contain_the_line() {
        let deep = [&b"/a".repeat(33)[..], b" a"].concat();
        let long = [&b"/"[..], &b"x".repeat(8800), b" a"].concat();
        for (text, line, part) in [
            (&b"/a"[..], 1, "no default_next_hop"),
            (b"\n/a//b a", 2, "nothing between"),
            (b"#\n#\n/a b", 3, "no next hop has the name \"b\""),
            (b"/a a a", 1, "unexpected word"),
            (b"example a", 1, "does not begin with /"),
            (b"\xff\xfe\x00 a", 1, "does not begin with /"),
            (&deep, 1, "33 components"),
            (&long, 1, "at most 8800"),
        ] {
            let (at, message) = parse_text(text, None).unwrap_err();
            assert!(at == line && message.contains(part), "{at}: {message}");
        }
        assert_eq!(parse_text(&b"/a".repeat(32), Some(0)).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text: Vec<u8>) {
            let _ = parse_text(&text, Some(0));
        }
    }
}
