//! ESP tunnels as a whole function, host half included, in both directions. Peer: Intel ipsec-mb's bare jobs, which know
//! where every packet lies, what its SA is and what to do, and count nothing; of a packet that is opened they compare the ICV.

mod peers;
pub(crate) mod together;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use godwit_abi::Descriptor;
use godwit_function::ipsec::suite::{Authentication, Cipher, Suite};
use godwit_function::{Function, Work};
use godwit_packet::{Arena, ArenaConfig, Region};

use crate::frames::Random;
use crate::function::{self, Competitor, Workload, build, measure};
use crate::peer::{self, Peer};
use crate::{BenchOptions, Error, Progress, Row, Size, routes, suites};

/// SAs that packets are spread over, each for the destinations of one first byte.
const SAS: u32 = 223;
const SIZES: [Size; 6] =
    [Size::Bytes(64), Size::Bytes(256), Size::Bytes(512), Size::Bytes(1024), Size::Bytes(1408), Size::Imix];
/// Bytes in front of what is encrypted, but for the IV.
const ESP_BYTES: usize = 8;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
/// Of each SA, as the peer reads them.
const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 4;

/// The bench `ipsec` where the host half chooses, of a suite of ESP. `opens`: packets are opened, each pass those of the pass before,
/// sealed anew with the sequence numbers that follow.
pub(crate) fn whole(
    suite: &'static Suite,
    opens: bool,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let keys = keys(suite);
    let out = build("ipsec", &stanza(suite, &keys, false))?;
    let function = if opens { build("ipsec", &stanza(suite, &keys, true))? } else { Arc::clone(&out) };
    let competitor = match peer::find("ipsec_mb") {
        Some(path) if options.peers => Some(competitor(path, suite, opens, Arc::clone(&out), keys)),
        Some(_) => None,
        None => {
            progress("peer ipsec_mb is not built (`make peers`): left out");
            None
        }
    };
    let before = opens.then_some(out);
    let note = format!("{}{}", suite.name, if opens { ", opened" } else { "" });
    measure(Workload { sizes: &SIZES, competitor, before, note, ..Workload::new("ipsec", function) }, options, progress)
}

/// The keys of one SA: that of the cipher or of GMAC with its salt behind, and that of HMAC.
struct Keys {
    cipher: Vec<u8>,
    authentication: Vec<u8>,
}

fn keys(suite: &Suite) -> Vec<Keys> {
    let mut random = Random::new(1);
    let mut bytes = |count: usize| (0..count).map(|_| random.next_u32() as u8).collect();
    let mut one = || Keys {
        cipher: bytes(suite.key_bytes + suite.salt_bytes()),
        authentication: bytes(suites::hmac_key_bytes(suite)),
    };
    (0..SAS).map(|_| one()).collect()
}

fn stanza(suite: &Suite, keys: &[Keys], inbound: bool) -> String {
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
        text += &suites::transforms(suite, &hex(&keys.cipher), &hex(&keys.authentication));
        if !inbound {
            let first = sa + 1;
            let _ =
                writeln!(text, "[[policy]]\naction = \"protect\"\ndestination = \"{first}.0.0.0/8\"\nsa = \"sa-{sa}\"");
        }
    }
    text
}

/// Frames the peer was started with, and what its sum must be.
struct Started {
    peer: Peer,
    frames: Vec<Vec<u8>>,
    sum: u64,
}

fn competitor<'a>(
    path: PathBuf,
    suite: &'static Suite,
    opens: bool,
    out: Arc<dyn Function>,
    keys: Vec<Keys>,
) -> Competitor<'a> {
    let mut started: Option<Started> = None;
    let round = move |frames: &[Vec<u8>]| {
        if started.as_ref().is_none_or(|started| started.frames != frames) {
            let (bytes, sums) = packets(suite, opens, &*out, &keys, frames, &ArenaConfig::default())?;
            let sum = sums.iter().sum();
            let file = routes::temporary(&bytes)?;
            let peer = Peer::start(&path, &[file.path().as_os_str()])?;
            started = Some(Started { peer, frames: frames.to_vec(), sum });
        }
        let started = started.as_mut().expect("it was just started");
        let (time_ns, sum) = started.peer.round()?;
        if sum != started.sum {
            let what = format!("its data and ICVs add up to {sum}, ours to {}", started.sum);
            return Err(Error::Wrong { who: "ipsec_mb".to_owned(), what });
        }
        Ok(time_ns)
    };
    let checked = if opens { ", ICVs compared" } else { "" };
    Competitor {
        device: "ipsec-mb",
        implementation: "jobs",
        note: format!("bare jobs, the fastest of one by one and bursts of 64; same packets, keys and places{checked}"),
        mode: "process",
        packets: function::PACKETS,
        round: Box::new(round),
    }
}

/// Frames in a region of their own, as `config` says.
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

/// What the peer reads, where packets lie as `config` says, and of each packet the sum of all words of data and ICV that it leaves: of
/// `ref`, which seals the same packets here.
fn packets(
    suite: &Suite,
    opens: bool,
    out: &dyn Function,
    keys: &[Keys],
    frames: &[Vec<u8>],
    config: &ArenaConfig,
) -> Result<(Vec<u8>, Vec<u64>), Error> {
    let (mut region, mut descriptors) = placed(frames, config)?;
    let mut work = Vec::new();
    let mut host_half = out.host_half(0, 1).ok_or_else(|| Error::Setup("ipsec has no host half".to_owned()))?;
    host_half.prepare(&region, &descriptors, &mut work);
    for (descriptor, work) in descriptors.iter_mut().zip(work) {
        let Work::Run { variant, parameter } = work else {
            return Err(Error::Setup(format!("the host half settled a packet: {work:?}")));
        };
        let _ = out.run_ref(region.buffer_mut(descriptor), descriptor, variant, parameter);
    }
    let sealed: Vec<Vec<u8>> = descriptors.iter().map(|descriptor| region.frame(descriptor).to_vec()).collect();
    // Where ours lie before: those to be opened begin where a frame that arrives does.
    let places = if opens { placed(&sealed, config)?.1 } else { descriptors };
    let end = |descriptor: &Descriptor| descriptor.buffer_offset() + descriptor.room_bytes();
    let arena_bytes = places.iter().map(end).max().unwrap_or(0) as u32;
    let mut bytes = Vec::new();
    let [cipher, authentication] = numbers(suite);
    let sas = keys.len() as u32;
    for word in
        [cipher, suite.key_bytes as u32, authentication, u32::from(opens), sas, frames.len() as u32, arena_bytes]
    {
        bytes.extend(word.to_le_bytes());
    }
    for keys in keys {
        let (cipher, salt) = keys.cipher.split_at(suite.key_bytes);
        for (part, room) in [(cipher, KEY_BYTES), (&keys.authentication[..], KEY_BYTES), (salt, SALT_BYTES)] {
            bytes.extend(part.iter().copied().chain(std::iter::repeat(0)).take(room));
        }
    }
    let esp = ETHERNET_BYTES + IPV4_BYTES;
    let data = esp + ESP_BYTES + suite.iv_bytes();
    let mut sums = Vec::with_capacity(frames.len());
    for ((place, sealed), frame) in places.iter().zip(&sealed).zip(frames) {
        let Some(icv) = sealed.len().checked_sub(suites::icv_bytes(suite)).filter(|icv| *icv > data) else {
            return Err(Error::Wrong { who: "ref".to_owned(), what: "a packet was not sealed".to_owned() });
        };
        let mut plain = frame[ETHERNET_BYTES..].to_vec();
        let padding = icv - data - plain.len() - 2;
        plain.extend((1..=padding).map(|byte| byte as u8));
        plain.extend([padding as u8, 4]);
        // The region of the sealed frames begins where the peer's arena does.
        let place = (place.buffer_offset() + usize::from(place.head) + esp) as u32;
        for word in [u32::from(frame[30]) - 1, place, (icv - data) as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&sealed[esp..data]);
        let (given, left) = if opens { (&sealed[data..], &plain) } else { (&plain[..], &sealed[data..icv].to_vec()) };
        bytes.extend(given);
        let words = left.chunks(4).chain(sealed[icv..].chunks(4));
        sums.push(words.map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("whole words")))).sum());
    }
    Ok((bytes, sums))
}

/// Cipher and authentication as the peer numbers them.
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
    };
    [cipher, authentication]
}
