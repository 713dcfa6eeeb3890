//! IP authentication header, AH (RFC 4302, section 2).
//!
//! The layout of the header is as follows, with offsets in bytes:
//!
//! ```text
//! 0             1              2          4     8          12
//! | next header | (len+2)*4 B  | reserved | SPI | sequence | ICV (with padding) | payload
//! ```

use crate::Error;
use crate::view::{Field, range, range_mut};

/// Length of the fixed part before the ICV (integrity check value), in bytes.
pub const FIXED_BYTES: usize = 12;

view! {
    /// An authentication header and all bytes after it.
    Ah, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < 2 {
        return Err(Error::Truncated);
    }
    match header_bytes(bytes) {
        ..FIXED_BYTES => Err(Error::Malformed),
        length if length > bytes.len() => Err(Error::Truncated),
        _ => Ok(()),
    }
}

#[inline]
fn header_bytes(bytes: &[u8]) -> usize {
    4 * (usize::from(u8::load(bytes, 1)) + 2)
}

fields! { Ah;
    /// Type of the next header. See [`protocol`](crate::protocol).
    0 => next_header / set_next_header: u8,
    /// Length of the header in units of 4 bytes, minus 2. [`header_bytes`](Self::header_bytes)
    /// returns the length in bytes.
    1 => length / set_length: u8,
    /// Security parameters index.
    4 => spi / set_spi: u32,
    /// Sequence number, or the lower half of an extended sequence number.
    8 => sequence / set_sequence: u32,
}

impl<T: AsRef<[u8]>> Ah<T> {
    /// Returns the length of the header including the ICV (integrity check value), 12 to 1,028
    /// bytes.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        header_bytes(self.bytes())
    }

    /// Returns the integrity check value (ICV) with its padding.
    #[inline]
    pub fn icv(&self) -> &[u8] {
        range(self.bytes(), FIXED_BYTES, self.header_bytes())
    }

    /// Returns all bytes after the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), self.header_bytes(), usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ah<T> {
    /// Returns the integrity check value (ICV) with its padding.
    #[inline]
    pub fn icv_mut(&mut self) -> &mut [u8] {
        let to = self.header_bytes();
        range_mut(self.buffer.as_mut(), FIXED_BYTES, to)
    }
}

/// Representation of an authentication header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhHeader<'a> {
    /// Type of the next header.
    pub next_header: u8,
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub sequence: u32,
    /// Integrity check value with its padding. Its length is a multiple of 4 bytes and at most
    /// 1,016 bytes. In IPv6, the length is 8 * n + 4 bytes.
    pub icv: &'a [u8],
}

impl<'a> AhHeader<'a> {
    /// Parses the header.
    pub fn parse<T: AsRef<[u8]>>(view: &'a Ah<T>) -> Self {
        Self { next_header: view.next_header(), spi: view.spi(), sequence: view.sequence(), icv: view.icv() }
    }

    /// Writes the header to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let length = FIXED_BYTES + self.icv.len();
        let Ok(units) = u8::try_from(length / 4 - 2) else {
            return Err(Error::Malformed);
        };
        if !self.icv.len().is_multiple_of(4) {
            return Err(Error::Malformed);
        }
        let header = buffer.get_mut(..length).ok_or(Error::Truncated)?;
        [self.next_header, units, 0, 0].store(header, 0);
        self.spi.store(header, 4);
        self.sequence.store(header, 8);
        range_mut(header, FIXED_BYTES, length).copy_from_slice(self.icv);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_with_a_96_bit_icv_is_24_bytes() {
        let mut bytes = [0x5a; 30];
        bytes[..12].copy_from_slice(&[6, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 9]);
        let mut view = Ah::new_checked(&mut bytes).unwrap();
        assert_eq!((view.next_header(), view.spi(), view.sequence()), (6, 256, 9));
        assert_eq!((view.icv().len(), view.payload().len()), (12, 6));
        view.icv_mut().fill(0);
        assert_eq!(bytes[11..25], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x5a]);
    }

    #[test]
    fn rejects_wrong_lengths() {
        assert_eq!(Ah::new_checked([6, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0]), Err(Error::Truncated));
        assert_eq!(Ah::new_checked([6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 9]), Err(Error::Truncated));
        assert_eq!(Ah::new_checked([6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 9]), Err(Error::Malformed));
        assert!(Ah::new_checked([6, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 9]).is_ok());
    }

    proptest! {
        #[test]
        fn emit_then_parse(next_header: u8, spi: u32, sequence: u32, icv in prop::collection::vec(any::<u8>(), 0..1100)) {
            let header = AhHeader { next_header, spi, sequence, icv: &icv };
            let mut buffer = vec![0xff; 1200];
            let result = header.emit(&mut buffer);
            if icv.len() % 4 != 0 || icv.len() > 1016 {
                prop_assert_eq!(result, Err(Error::Malformed));
            } else {
                prop_assert_eq!(result, Ok(12 + icv.len()));
                let view = Ah::new_checked(&buffer).unwrap();
                prop_assert_eq!(AhHeader::parse(&view), header);
            }
        }
    }
}
