//! Encapsulating security payload, ESP (RFC 4303, section 2).
//!
//! The layout of a packet is as follows, with offsets in bytes:
//!
//! ```text
//! 0     4          8
//! | SPI | sequence | IV, encrypted: payload, padding 1 2 3 …, pad length, next header | ICV
//!                                            |<---------- trailer ----------------->|
//! ```

use crate::Error;
use crate::view::{range, range_mut};

/// Length of the header before the IV, in bytes.
pub const HEADER_BYTES: usize = 8;

/// Length in bytes of a trailer without padding: the pad length and the next header.
pub const TRAILER_BYTES: usize = 2;

view! {
    /// An ESP header and all bytes after it.
    Esp, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES { Err(Error::Truncated) } else { Ok(()) }
}

fields! { Esp;
    /// Security parameters index.
    0 => spi / set_spi: u32,
    /// Sequence number, or the lower half of an extended sequence number.
    4 => sequence / set_sequence: u32,
}

impl<T: AsRef<[u8]>> Esp<T> {
    /// Returns all bytes after the header: the IV, the ciphertext and the integrity check value
    /// (ICV).
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, usize::MAX)
    }
}

impl<T: AsMut<[u8]>> Esp<T> {
    /// Returns all bytes after the header: the IV, the ciphertext and the integrity check value
    /// (ICV).
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        range_mut(self.buffer.as_mut(), HEADER_BYTES, usize::MAX)
    }
}

/// Representation of an ESP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspHeader {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub sequence: u32,
}

impl EspHeader {
    /// Parses the header.
    pub fn parse<T: AsRef<[u8]>>(view: &Esp<T>) -> Self {
        Self { spi: view.spi(), sequence: view.sequence() }
    }

    /// Writes the header to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut view = Esp::new_checked(buffer)?;
        view.set_spi(self.spi);
        view.set_sequence(self.sequence);
        Ok(HEADER_BYTES)
    }
}

/// Trailer of a decrypted payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspTrailer {
    /// Number of padding bytes before the pad length and the next header.
    pub pad_bytes: u8,
    /// IP protocol number of the payload. See [`protocol`](crate::protocol).
    pub next_header: u8,
}

impl EspTrailer {
    /// Returns the trailer that pads `payload_bytes` and the trailer itself to a multiple of
    /// `align_bytes`, the block size of the cipher. Values below 4 count as 4 (RFC 4303, section
    /// 2.4).
    pub fn aligned(payload_bytes: usize, align_bytes: u8, next_header: u8) -> Self {
        let align = usize::from(align_bytes.max(4));
        let past = (payload_bytes % align + TRAILER_BYTES) % align;
        // The value is less than `align`, so it fits.
        let pad_bytes = if past == 0 { 0 } else { (align - past) as u8 };
        Self { pad_bytes, next_header }
    }

    /// Returns the length of the trailer in bytes: the padding, the pad length and the next header.
    pub fn length_bytes(&self) -> usize {
        usize::from(self.pad_bytes) + TRAILER_BYTES
    }

    /// Parses the trailer at the end of `plaintext`, which must not contain the integrity check
    /// value (ICV). Checks that the padding bytes are 1, 2, 3, … (RFC 4303, section 2.4). The
    /// payload ends [`length_bytes`](Self::length_bytes) before the end of `plaintext`.
    pub fn parse(plaintext: &[u8]) -> Result<Self, Error> {
        let Some((rest, &[pad_bytes, next_header])) = plaintext.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(Error::Truncated);
        };
        let Some(start) = rest.len().checked_sub(usize::from(pad_bytes)) else {
            return Err(Error::Malformed);
        };
        let padding = range(rest, start, usize::MAX);
        if padding.iter().zip(1..=u8::MAX).any(|(&byte, expected)| byte != expected) {
            return Err(Error::Malformed);
        }
        Ok(Self { pad_bytes, next_header })
    }

    /// Writes the trailer to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let length = self.length_bytes();
        let trailer = buffer.get_mut(..length).ok_or(Error::Truncated)?;
        for (byte, value) in trailer.iter_mut().zip(1u8..=self.pad_bytes) {
            *byte = value;
        }
        if let Some(last) = trailer.last_chunk_mut::<TRAILER_BYTES>() {
            *last = [self.pad_bytes, self.next_header];
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn emits_and_parses_a_known_trailer() {
        let trailer = EspTrailer::aligned(9, 16, 4);
        let mut bytes = [0xff; 16];
        assert_eq!(trailer.emit(&mut bytes[9..]), Ok(7));
        assert_eq!(bytes[9..], [1, 2, 3, 4, 5, 5, 4]);
        assert_eq!(EspTrailer::parse(&bytes), Ok(trailer));
        bytes[10] = 0;
        assert_eq!(EspTrailer::parse(&bytes), Err(Error::Malformed), "padding is not 1, 2, 3, …");
        assert_eq!(EspTrailer::parse(&[1]), Err(Error::Truncated));
        assert_eq!(EspTrailer::parse(&[1, 2, 4]), Err(Error::Malformed), "more padding than bytes");
        assert_eq!(EspTrailer::parse(&[1, 1, 4]), Ok(EspTrailer { pad_bytes: 1, next_header: 4 }));
    }

    proptest! {
        #[test]
        fn header_emit_then_parse(spi: u32, sequence: u32, length in 0usize..12) {
            let header = EspHeader { spi, sequence };
            let mut buffer = vec![0; length];
            match header.emit(&mut buffer) {
                Ok(8) => prop_assert_eq!(EspHeader::parse(&Esp::new_checked(&buffer).unwrap()), header),
                other => prop_assert!(length < 8 && other == Err(Error::Truncated)),
            }
        }

        #[test]
        fn trailer_emit_then_parse(pad_bytes: u8, next_header: u8, payload in prop::collection::vec(any::<u8>(), 0..20)) {
            let trailer = EspTrailer { pad_bytes, next_header };
            let mut buffer = payload.clone();
            buffer.resize(payload.len() + trailer.length_bytes(), 0);
            prop_assert_eq!(trailer.emit(&mut buffer[payload.len()..]), Ok(trailer.length_bytes()));
            prop_assert_eq!(EspTrailer::parse(&buffer), Ok(trailer));
        }

        #[test]
        fn aligned_adds_the_least_padding(
            payload_bytes in 0usize..70_000,
            align_bytes in prop::sample::select(vec![1u8, 4, 8, 16, 64]),
        ) {
            let trailer = EspTrailer::aligned(payload_bytes, align_bytes, 4);
            let align = usize::from(align_bytes.max(4));
            prop_assert_eq!((payload_bytes + trailer.length_bytes()) % align, 0);
            prop_assert!(usize::from(trailer.pad_bytes) < align);
        }
    }
}
