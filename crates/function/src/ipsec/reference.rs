//! What the kernel does, straight from the standards, with RustCrypto's AES, CBC and HMAC.
//!
//! Shares with the host half how a frame's IPv4 packet is found and what selectors mean; with the kernel, nothing.

use aes::Aes128;
use aes::cipher::{Block, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, KeyInit, KeyIvInit};
use godwit_abi::{Descriptor, Outcome};
use hmac::{Hmac, Mac};
use sha1::Sha1;

use super::config::Direction;
use super::database::Sa;
use super::frame::{IPV4_BYTES, PROTOCOL_ESP, l3_offset, parse_packet, shown};
use super::selector::Match;
use super::{
    DROP_AUTHENTICATION, DROP_CONGESTION, DROP_DUMMY, DROP_FRAGMENT, DROP_MALFORMED, DROP_NO_ROOM, DROP_NO_SA,
    DROP_PADDING, DROP_POLICY_MISMATCH, ESP_HEADER_BYTES, VARIANT_ENCRYPT, VERDICT_DECRYPTED, VERDICT_ENCRYPTED,
    VERDICT_NOT_IPV4, sa_and_sequence,
};

const BLOCK_BYTES: usize = 16;
/// ESP header and IV.
const FRONT_BYTES: usize = ESP_HEADER_BYTES + BLOCK_BYTES;
/// Pad length and next header.
const TAIL_BYTES: usize = 2;
const ICV_BYTES: usize = 12;
const NEXT_HEADER_IPV4: u8 = 4;
const NEXT_HEADER_NONE: u8 = 59;
const TTL: u8 = 64;

/// Does what the kernel does to one packet.
pub(super) fn run_ref(
    window: &mut [u8],
    descriptor: &mut Descriptor,
    sas: &[Sa],
    variant: u8,
    parameter: u64,
) -> Outcome {
    let frame = &window[usize::from(descriptor.head)..][..usize::from(descriptor.length)];
    let l2_bytes = match l3_offset(frame) {
        Ok(Some(offset)) => offset,
        Ok(None) => return Outcome::verdict(VERDICT_NOT_IPV4),
        Err(reason) => return Outcome::drop(reason),
    };
    let direction = if variant == VARIANT_ENCRYPT { Direction::Out } else { Direction::In };
    let (sa, sequence) = sa_and_sequence(parameter);
    let Some(sa) = sas.get(sa as usize).filter(|sa| sa.direction == direction) else {
        return Outcome::drop(DROP_NO_SA);
    };
    let result = match direction {
        Direction::Out => encrypt(window, descriptor, l2_bytes, sa, sequence as u32).map(|()| VERDICT_ENCRYPTED),
        Direction::In => decrypt(window, descriptor, l2_bytes, sa).map(|()| VERDICT_DECRYPTED),
    };
    match result {
        Ok(verdict) => Outcome { value: sa.spi, ..Outcome::verdict(verdict) },
        Err(reason) => Outcome::drop(reason),
    }
}

/// RFC 4303, section 3.3, and RFC 4301, section 5.1.2.1.
fn encrypt(window: &mut [u8], descriptor: &mut Descriptor, l2_bytes: usize, sa: &Sa, sequence: u32) -> Result<(), u8> {
    let head = usize::from(descriptor.head);
    let frame = &window[head..][..usize::from(descriptor.length)];
    let l2 = frame[..l2_bytes].to_vec();
    let inner = parse_packet(&frame[l2_bytes..])?.0.to_vec();

    // RFC 4303, section 2.4: padding 1, 2, 3 and so on up to the block, pad length, next header.
    let pad_bytes = (BLOCK_BYTES - (inner.len() + TAIL_BYTES) % BLOCK_BYTES) % BLOCK_BYTES;
    let mut payload = inner.clone();
    payload.extend(1..=pad_bytes as u8);
    payload.extend([pad_bytes as u8, NEXT_HEADER_IPV4]);

    // The IV: NIST SP 800-38A, appendix C, first method.
    let mut iv = Block::<Aes128>::default();
    iv[..4].copy_from_slice(&sa.spi.to_be_bytes());
    iv[4..12].copy_from_slice(&u64::from(sequence).to_be_bytes());
    iv[12..].copy_from_slice(&sa.destination.to_be_bytes());
    Aes128::new((&*sa.encryption_key).into()).encrypt_block(&mut iv);

    // RFC 3602, section 2.
    let mut cipher = cbc::Encryptor::<Aes128>::new((&*sa.encryption_key).into(), &iv);
    for block in payload.as_chunks_mut::<BLOCK_BYTES>().0 {
        cipher.encrypt_block(block.into());
    }
    let mut esp = sa.spi.to_be_bytes().to_vec();
    esp.extend(sequence.to_be_bytes());
    esp.extend(iv);
    esp.extend(payload);
    let icv = icv(sa, &esp);
    esp.extend(&icv[..ICV_BYTES]);

    let total_bytes = IPV4_BYTES + esp.len();
    let [total_high, total_low] = (total_bytes as u16).to_be_bytes();
    let [.., id_high, id_low] = sequence.to_be_bytes();
    let dont_fragment = inner[6] & 0x40;
    let mut outer = vec![0x45, inner[1], total_high, total_low, id_high, id_low, dont_fragment, 0];
    outer.extend([TTL, PROTOCOL_ESP, 0, 0]);
    outer.extend(sa.source.to_be_bytes());
    outer.extend(sa.destination.to_be_bytes());
    let checksum = godwit_wire::checksum::checksum(&outer);
    outer[10..12].copy_from_slice(&checksum.to_be_bytes());

    let place = (head.checked_sub(IPV4_BYTES + FRONT_BYTES)).and_then(|head| {
        let place = window.get_mut(head..head + l2_bytes + total_bytes)?;
        Some((head, place))
    });
    let (head, place) = place.ok_or(DROP_NO_ROOM)?;
    place.copy_from_slice(&[l2, outer, esp].concat());
    move_to(descriptor, head, l2_bytes + total_bytes);
    Ok(())
}

/// RFC 4303, section 3.4, and RFC 4301, section 5.2.
fn decrypt(window: &mut [u8], descriptor: &mut Descriptor, l2_bytes: usize, sa: &Sa) -> Result<(), u8> {
    let head = usize::from(descriptor.head);
    let (l2, bytes) = window[head..][..usize::from(descriptor.length)].split_at_mut(l2_bytes);
    let (outer, outer_bytes) = parse_packet(bytes)?;
    let total_bytes = outer.len();
    let (outer, esp) = bytes[..total_bytes].split_at_mut(outer_bytes);
    // A header with its own correct checksum sums to zero (RFC 1071, section 1).
    if outer[9] != PROTOCOL_ESP || godwit_wire::checksum::checksum(outer) != 0 {
        return Err(DROP_MALFORMED);
    }
    if outer[6] & 0x3f != 0 || outer[7] != 0 {
        return Err(DROP_FRAGMENT);
    }
    if outer[16..20] != sa.destination.to_be_bytes() {
        return Err(DROP_NO_SA);
    }
    let inner_bytes = open(esp, sa)?;

    // Packets inside another are whole, or the ESP packet was not right.
    let packet = &mut esp[FRONT_BYTES..][..inner_bytes];
    let (inner, header_bytes) = parse_packet(packet).map_err(|_| DROP_MALFORMED)?;
    let inner_bytes = inner.len();
    let shown = shown(inner, header_bytes);
    if !sa.selectors.iter().any(|selector| selector.matches(&shown) == Match::Yes) {
        return Err(DROP_POLICY_MISMATCH);
    }
    leave_ecn(packet, outer[1] & 3)?;

    let l2 = l2.to_vec();
    let head = head + outer_bytes + FRONT_BYTES;
    window[head..head + l2_bytes].copy_from_slice(&l2);
    move_to(descriptor, head, l2_bytes + inner_bytes);
    Ok(())
}

/// Authenticates, then decrypts in place; how much payload there is in front of the padding.
fn open(esp: &mut [u8], sa: &Sa) -> Result<usize, u8> {
    let cipher_bytes = esp.len().checked_sub(FRONT_BYTES + ICV_BYTES).ok_or(DROP_MALFORMED)?;
    if cipher_bytes == 0 || cipher_bytes % BLOCK_BYTES != 0 {
        return Err(DROP_MALFORMED);
    }
    if esp[..4] != sa.spi.to_be_bytes() {
        return Err(DROP_NO_SA);
    }
    let (authenticated, icv) = esp.split_at_mut(FRONT_BYTES + cipher_bytes);
    mac(sa, authenticated).verify_truncated_left(icv).map_err(|_| DROP_AUTHENTICATION)?;

    let (front, payload) = authenticated.split_at_mut(FRONT_BYTES);
    let mut iv = Block::<Aes128>::default();
    iv.copy_from_slice(&front[ESP_HEADER_BYTES..]);
    let mut cipher = cbc::Decryptor::<Aes128>::new((&*sa.encryption_key).into(), &iv);
    for block in payload.as_chunks_mut::<BLOCK_BYTES>().0 {
        cipher.decrypt_block(block.into());
    }

    let (rest, &mut [pad_bytes, next_header]) = payload.split_last_chunk_mut::<TAIL_BYTES>().ok_or(DROP_MALFORMED)?;
    let inner_bytes = rest.len().checked_sub(usize::from(pad_bytes)).ok_or(DROP_PADDING)?;
    if rest[inner_bytes..].iter().zip(1..=pad_bytes).any(|(byte, expected)| *byte != expected) {
        return Err(DROP_PADDING);
    }
    match next_header {
        NEXT_HEADER_IPV4 => Ok(inner_bytes),
        // RFC 4303, section 2.6.
        NEXT_HEADER_NONE => Err(DROP_DUMMY),
        _ => Err(DROP_POLICY_MISMATCH),
    }
}

/// RFC 6040, section 4.2, figure 4, row by row.
fn leave_ecn(inner: &mut [u8], outer: u8) -> Result<(), u8> {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;
    let old = u16::from_be_bytes([inner[0], inner[1]]);
    let ecn = match (inner[1] & 3, outer) {
        (NOT_ECT, CE) => return Err(DROP_CONGESTION),
        (NOT_ECT, _) => NOT_ECT,
        (ECT_0, ECT_1) => ECT_1,
        (ECT_0 | ECT_1, CE) => CE,
        (unchanged, _) => unchanged,
    };
    if ecn != inner[1] & 3 {
        inner[1] = inner[1] & !3 | ecn;
        let checksum = u16::from_be_bytes([inner[10], inner[11]]);
        let checksum = godwit_wire::checksum::update(checksum, old, u16::from_be_bytes([inner[0], inner[1]]));
        inner[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    Ok(())
}

fn mac(sa: &Sa, data: &[u8]) -> Hmac<Sha1> {
    let mut mac = Hmac::<Sha1>::new_from_slice(&*sa.authentication_key).expect("HMAC takes keys of any length");
    mac.update(data);
    mac
}

fn icv(sa: &Sa, data: &[u8]) -> [u8; 20] {
    mac(sa, data).finalize().into_bytes().into()
}

/// Both lie within the window, which is smaller than 2^16 bytes.
fn move_to(descriptor: &mut Descriptor, head: usize, length: usize) {
    (descriptor.head, descriptor.length) = (head as u16, length as u16);
}
