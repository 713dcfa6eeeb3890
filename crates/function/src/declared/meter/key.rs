//! Keys of a meter: fields of the five-tuple of a packet.

use godwit_declare::words::KeyWords;
use godwit_declare::{Field, FieldType, Scalar};
use godwit_packet::SteerKey;
use godwit_wire::{IpAddress, Parsed};

/// Number of words of a key.
const WORDS: usize = 5;

/// Key of an entry. Unused words are 0.
pub(super) type Words = [u64; WORDS];

/// Computes the key of a packet.
#[derive(Clone, Debug)]
pub(super) struct KeyOf {
    fields: Vec<(PacketField, Scalar)>,
    words: KeyWords,
}

/// Field of the five-tuple of a packet.
#[derive(Clone, Copy, Debug)]
enum PacketField {
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    Protocol,
}

impl KeyOf {
    pub(super) fn new(key: &[Field]) -> Self {
        let field = |field: &Field| {
            let FieldType::Scalar(scalar) = field.kind else { unreachable!("keys have no arrays") };
            let of = match field.name.as_str() {
                "source" => PacketField::Source,
                "destination" => PacketField::Destination,
                "source_port" => PacketField::SourcePort,
                "destination_port" => PacketField::DestinationPort,
                _ => PacketField::Protocol,
            };
            (of, scalar)
        };
        Self { fields: key.iter().map(field).collect(), words: KeyWords::of(key) }
    }

    /// Returns the key of a packet. Returns `None` if it is not an IP packet, or if it has another
    /// IP version than the key.
    pub(super) fn of(&self, parsed: &Parsed) -> Option<Words> {
        let tuple = parsed.five_tuple.as_ref()?;
        let mut words = [0; WORDS];
        for (word, parts) in words.iter_mut().zip(&self.words.0) {
            for part in parts {
                let (field, scalar) = self.fields[part.field];
                let value = match field {
                    PacketField::Source => address(&tuple.source, scalar, part.word)?,
                    PacketField::Destination => address(&tuple.destination, scalar, part.word)?,
                    PacketField::SourcePort => tuple.source_port.into(),
                    PacketField::DestinationPort => tuple.destination_port.into(),
                    PacketField::Protocol => tuple.protocol.into(),
                };
                *word |= value << part.shift;
            }
        }
        Some(words)
    }
}

/// Returns one word of an address. Returns `None` if `scalar` is for the other IP version.
fn address(address: &IpAddress, scalar: Scalar, word: usize) -> Option<u64> {
    match (address, scalar) {
        (IpAddress::V4(bytes), Scalar::Ipv4) => Some(u32::from_be_bytes(*bytes).into()),
        (IpAddress::V6(bytes), Scalar::Ipv6) => {
            let half = &bytes[8 * word..8 * word + 8];
            Some(half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        }
        _ => None,
    }
}

/// Sends all packets with the same key to the worker that owns the key's tokens.
impl SteerKey for KeyOf {
    fn steer_key(&self, _frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32 {
        let Some(words) = self.of(parsed) else { return flow_hash };
        let mix = |mixed: u64, word: &u64| {
            let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        };
        (words.iter().fold(0x9e37_79b9_7f4a_7c15, mix) >> 16) as u32
    }
}
