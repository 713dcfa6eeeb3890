//! Packets and keys for the peer ipsec-mb, and the sums of its results.

use std::fmt::Write as _;

use godwit_abi::Descriptor;
use godwit_function::ipsec::suite::{Authentication, Cipher, Suite};
use godwit_function::{Function, HostHalf, Work};
use godwit_packet::{Arena, ArenaConfig, Region};

use crate::error::Error;
use crate::load::associations;
use crate::load::frames::Random;

/// Number of SAs. Each has a policy for the destinations with one first byte.
const SAS: u32 = 223;
/// Bytes of the ESP header before the IV.
const ESP_BYTES: usize = 8;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
/// Bytes of each key of an SA in the format of the peer.
const KEY_BYTES: usize = 32;
const HMAC_KEY_BYTES: usize = 64;
/// Bytes of the salt of an SA in the format of the peer.
const SALT_BYTES: usize = 4;

/// The keys of an SA.
pub(super) struct Keys {
    /// Key of the cipher or of GMAC, followed by the salt.
    cipher: Vec<u8>,
    /// Key of HMAC.
    authentication: Vec<u8>,
}

/// Returns random keys for each SA.
pub(super) fn keys(suite: &Suite) -> Vec<Keys> {
    let mut random = Random::new(1);
    let mut bytes = |count: usize| (0..count).map(|_| random.next_u32() as u8).collect();
    let mut one = || Keys {
        cipher: bytes(suite.key_bytes + suite.salt_bytes()),
        authentication: bytes(associations::hmac_key_bytes(suite)),
    };
    (0..SAS).map(|_| one()).collect()
}

/// Returns the configuration of `ipsec` with these keys.
pub(super) fn stanza(suite: &Suite, keys: &[Keys], inbound: bool) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut text = String::new();
    for (sa, keys) in keys.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "[[sa]]\nname = \"sa-{sa}\"\nspi = {}\ndirection = \"{}\"\nsource = \"192.0.2.1\"\n\
             destination = \"192.0.2.2\"",
            4096 + sa,
            if inbound { "in" } else { "out" }
        );
        text += &associations::transforms(suite, &hex(&keys.cipher), &hex(&keys.authentication));
        if !inbound {
            let first = sa + 1;
            let _ =
                writeln!(text, "[[policy]]\naction = \"protect\"\ndestination = \"{first}.0.0.0/8\"\nsa = \"sa-{sa}\"");
        }
    }
    text
}

/// Copies frames to a region with the layout of `config`.
fn placed(frames: &[Vec<u8>], config: &ArenaConfig) -> Result<(Region, Vec<Descriptor>), Error> {
    let frame_bytes_max = frames.iter().map(Vec::len).max().unwrap_or(0);
    let config = ArenaConfig { packets: frames.len(), frame_bytes_max, ..config.clone() };
    let mut region = Arena::new(config, 1).map_err(Error::setup)?.split().remove(0);
    let mut descriptors = Vec::new();
    for frame in frames {
        let descriptor = region.allocate(frame.len()).ok_or_else(|| Error::Setup("the region is full".to_owned()))?;
        region.frame_mut(&descriptor).copy_from_slice(frame);
        descriptors.push(descriptor);
    }
    Ok((region, descriptors))
}

/// Returns the peer's input file for packets with the layout of `config`. Also returns, for each
/// packet, the sum of the data and ICV words that the peer must produce. `ref` encrypts the same
/// packets to compute them.
pub(super) fn packets(
    suite: &Suite,
    decrypts: bool,
    out: &dyn Function,
    keys: &[Keys],
    frames: &[Vec<u8>],
    config: &ArenaConfig,
) -> Result<(Vec<u8>, Vec<u64>), Error> {
    let (mut region, mut descriptors) = placed(frames, config)?;
    let mut work = Vec::new();
    let Some(HostHalf::Prepare(mut host_half)) = out.host_half(0, 1) else {
        return Err(Error::Setup("ipsec does not prepare packets".to_owned()));
    };
    host_half.prepare(&region, &descriptors, &mut work);
    for (descriptor, work) in descriptors.iter_mut().zip(work) {
        let Work::Run { variant, parameter } = work else {
            return Err(Error::Setup(format!("the host half did not accept a packet: {work:?}")));
        };
        let _ = out.run_ref(region.buffer_mut(descriptor), descriptor, variant, parameter);
    }
    let encrypted: Vec<Vec<u8>> = descriptors.iter().map(|descriptor| region.frame(descriptor).to_vec()).collect();
    // The peer's packets have the same offsets as Godwit's. Encrypted packets are stored at the
    // offset of received frames.
    let placements = if decrypts { placed(&encrypted, config)?.1 } else { descriptors };
    let end = |descriptor: &Descriptor| descriptor.buffer_offset() + descriptor.room_bytes();
    let arena_bytes = placements.iter().map(end).max().unwrap_or(0) as u32;
    let mut bytes = Vec::new();
    let [cipher, authentication] = numbers(suite);
    let sas = keys.len() as u32;
    for word in
        [cipher, suite.key_bytes as u32, authentication, u32::from(decrypts), sas, frames.len() as u32, arena_bytes]
    {
        bytes.extend(word.to_le_bytes());
    }
    for keys in keys {
        let (cipher, salt) = keys.cipher.split_at(suite.key_bytes);
        for (part, room) in [(cipher, KEY_BYTES), (&keys.authentication[..], HMAC_KEY_BYTES), (salt, SALT_BYTES)] {
            bytes.extend(part.iter().copied().chain(std::iter::repeat(0)).take(room));
        }
    }
    let esp = ETHERNET_BYTES + IPV4_BYTES;
    let data = esp + ESP_BYTES + suite.iv_bytes();
    let mut sums = Vec::with_capacity(frames.len());
    for ((placement, encrypted), frame) in placements.iter().zip(&encrypted).zip(frames) {
        let Some(icv) = encrypted.len().checked_sub(associations::icv_bytes(suite)).filter(|icv| *icv > data) else {
            return Err(Error::Wrong { who: "ref".to_owned(), what: "it did not encrypt a packet".to_owned() });
        };
        let mut plain = frame[ETHERNET_BYTES..].to_vec();
        let padding = icv - data - plain.len() - 2;
        plain.extend((1..=padding).map(|byte| byte as u8));
        plain.extend([padding as u8, 4]);
        // The region begins at offset 0 of the peer's arena.
        let offset = (placement.buffer_offset() + usize::from(placement.head) + esp) as u32;
        for word in [u32::from(frame[30]) - 1, offset, (icv - data) as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&encrypted[esp..data]);
        let (input, output) =
            if decrypts { (&encrypted[data..], &plain) } else { (&plain[..], &encrypted[data..icv].to_vec()) };
        bytes.extend(input);
        let words = output.chunks(4).chain(encrypted[icv..].chunks(4));
        sums.push(words.map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("whole words")))).sum());
    }
    Ok((bytes, sums))
}

/// Returns the cipher and authentication numbers in the peer's format.
fn numbers(suite: &Suite) -> [u32; 2] {
    let cipher = match suite.cipher {
        Cipher::Null => 0,
        Cipher::Cbc => 1,
        Cipher::Ctr => 2,
        Cipher::ChaCha20 => 3,
    };
    let authentication = match suite.authentication {
        Authentication::None => 0,
        Authentication::Sha1 => 1,
        Authentication::Sha256 => 2,
        Authentication::Ghash => 3,
        Authentication::Poly1305 => 4,
        Authentication::Ccm => 5,
        Authentication::Sha384 => 6,
        Authentication::Sha512 => 7,
        Authentication::Xcbc => 8,
        Authentication::Cmac => 9,
    };
    [cipher, authentication]
}
