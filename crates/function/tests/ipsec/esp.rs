//! Valid and invalid ESP packets, built with RustCrypto.

use aes::Aes128;
use aes::cipher::{Block, BlockModeEncrypt, KeyIvInit};
use godwit_test_cases::ipsec::batch::Sa;
use godwit_test_support::FrameBuilder;
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_wire::ethertype;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// Contents of an ESP packet.
#[derive(Clone)]
pub(crate) struct Esp {
    /// Payload without the padding.
    pub(crate) payload: Vec<u8>,
    pub(crate) next_header: u8,
    /// Padding and pad length. With `None`, the padding is correct.
    pub(crate) padding: Option<Vec<u8>>,
    pub(crate) iv: [u8; 16],
    pub(crate) tos: u8,
}

impl Esp {
    pub(crate) fn new(payload: &[u8]) -> Self {
        Self { payload: payload.to_vec(), next_header: 4, padding: None, iv: [0x5a; 16], tos: 0 }
    }

    /// Returns the IPv4 packet that carries the encrypted ESP packet.
    pub(crate) fn encapsulate(&self, sa: &Sa) -> Vec<u8> {
        let mut plain = self.payload.clone();
        let pad_bytes = ((14 + 16) - plain.len() % 16) % 16;
        let correct = (1..=pad_bytes as u8).chain([pad_bytes as u8]).collect();
        plain.extend(self.padding.as_ref().unwrap_or(&correct));
        plain.push(self.next_header);
        let mut cipher = cbc::Encryptor::<Aes128>::new(&sa.encryption_key.into(), &self.iv.into());
        for block in plain.as_chunks_mut::<16>().0 {
            cipher.encrypt_block(<&mut Block<Aes128>>::from(block));
        }
        wrap(sa, &self.iv, &plain, self.tos)
    }
}

/// Returns an IPv4 packet with an ESP header, the IV, the ciphertext and the integrity check value
/// (ICV).
pub(crate) fn wrap(sa: &Sa, iv: &[u8; 16], ciphertext: &[u8], tos: u8) -> Vec<u8> {
    let mut esp = sa.spi.to_be_bytes().to_vec();
    esp.extend(9u32.to_be_bytes());
    esp.extend(iv);
    esp.extend(ciphertext);
    authenticate(sa, &mut esp);
    outer(sa, &esp, tos)
}

/// Appends the integrity check value (ICV).
pub(crate) fn authenticate(sa: &Sa, esp: &mut Vec<u8>) {
    let mut mac = Hmac::<Sha1>::new_from_slice(&sa.authentication_key).unwrap();
    mac.update(esp);
    esp.extend(&mac.finalize().into_bytes()[..12]);
}

/// Prepends the outer IPv4 header to an ESP packet.
pub(crate) fn outer(sa: &Sa, esp: &[u8], tos: u8) -> Vec<u8> {
    let mut packet = vec![0x45, tos];
    packet.extend((20 + esp.len() as u16).to_be_bytes());
    packet.extend([0, 9, 0, 0, 64, 50, 0, 0]);
    packet.extend(sa.source);
    packet.extend(sa.destination);
    packet.extend(esp);
    set_ipv4_checksum(&mut packet);
    packet
}

/// Returns a frame with an IPv4 packet. If `tagged` is set, the frame has a VLAN tag.
pub(crate) fn ethernet(packet: &[u8], tagged: bool) -> Vec<u8> {
    let builder = if tagged { FrameBuilder::new().vlan(7) } else { FrameBuilder::new() };
    builder.ethernet(ethertype::IPV4, packet)
}
