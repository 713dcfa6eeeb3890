//! Parses the validity period and the public key of a certificate (RFC 5280, section 4.1). rustls
//! checks everything else.

use std::time::Duration;

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag};

use crate::error::Reason;

const DAMAGED: Reason = Reason::Damaged("its ASN.1 structure is not that of a certificate");

/// Validity and public key of a certificate.
pub(super) struct Certificate<'a> {
    /// Start of the validity, as time since 1970.
    pub(super) not_before: Duration,
    /// End of the validity, as time since 1970.
    pub(super) not_after: Duration,
    /// Content of `subjectPublicKey`.
    pub(super) public_key: &'a [u8],
}

impl<'a> Certificate<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reason> {
        Self::read(bytes).map_err(|_| DAMAGED)
    }

    fn read(bytes: &'a [u8]) -> der::Result<Self> {
        let whole = AnyRef::from_der(bytes)?;
        let signed = AnyRef::decode(&mut SliceReader::new(whole.value())?)?;
        let mut fields = SliceReader::new(signed.value())?;
        let mut field = AnyRef::decode(&mut fields)?;
        // The version is optional. Without it, the serial number comes first.
        if field.header().tag() != Tag::Integer {
            AnyRef::decode(&mut fields)?;
        }
        AnyRef::decode(&mut fields)?; // signature algorithm
        AnyRef::decode(&mut fields)?; // issuer
        let mut validity = SliceReader::new(AnyRef::decode(&mut fields)?.value())?;
        let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
        AnyRef::decode(&mut fields)?; // subject
        field = AnyRef::decode(&mut fields)?;
        let mut key = SliceReader::new(field.value())?;
        AnyRef::decode(&mut key)?; // algorithm
        let public_key = BitStringRef::decode(&mut key)?.raw_bytes();
        Ok(Self { not_before, not_after, public_key })
    }

    /// Returns an error if the certificate is not valid at the time `now`, counted from 1970.
    pub(super) fn check_validity(&self, now: Duration) -> Result<(), Reason> {
        const DAY: u64 = 24 * 60 * 60;
        if let Some(late) = now.checked_sub(self.not_after) {
            return Err(Reason::Expired { days: late.as_secs() / DAY });
        }
        match self.not_before.checked_sub(now) {
            Some(early) if !early.is_zero() => Err(Reason::NotYetValid { days: early.as_secs().div_ceil(DAY) }),
            _ => Ok(()),
        }
    }
}

fn time(fields: &mut SliceReader<'_>) -> der::Result<Duration> {
    let field = AnyRef::decode(fields)?;
    match field.header().tag() {
        Tag::UtcTime => Ok(field.decode_as::<UtcTime>()?.to_unix_duration()),
        _ => Ok(field.decode_as::<GeneralizedTime>()?.to_unix_duration()),
    }
}
