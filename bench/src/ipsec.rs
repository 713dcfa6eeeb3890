//! ESP tunnels as a whole function, host half included. Peer: Intel ipsec-mb's bare jobs, which know where every packet
//! lies, what its SA is and what to do, and count and check nothing.

mod peers;
pub(crate) mod together;

use std::fmt::Write as _;
use std::sync::Arc;

use godwit_abi::Descriptor;
use godwit_function::{Function, Work};
use godwit_packet::{Arena, ArenaConfig};

use crate::frames::Random;
use crate::function::{self, Competitor, Workload, build, measure};
use crate::peer::{self, Peer};
use crate::{BenchOptions, Error, Progress, Row, Size, routes};

/// SAs that packets are spread over, each for the destinations of one first byte.
const SAS: u32 = 223;
const SIZES: [Size; 6] =
    [Size::Bytes(64), Size::Bytes(256), Size::Bytes(512), Size::Bytes(1024), Size::Bytes(1408), Size::Imix];
/// Bytes in front of what is encrypted, but for the IV.
const ESP_BYTES: usize = 8;

/// What the SAs do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transforms {
    CbcSha1,
    Gcm,
}

/// The bench `ipsec` where the host half chooses.
pub(crate) fn whole(
    transforms: Transforms,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let keys = keys(&mut Random::new(1));
    let text = stanza(transforms, &keys);
    let competitor = match peer::find("ipsec_mb") {
        Some(path) if options.peers => Some(competitor(path, transforms, build("ipsec", &text)?, keys)),
        Some(_) => None,
        None => {
            progress("peer ipsec_mb is not built (`make peers`): left out");
            None
        }
    };
    let workload = Workload { sizes: &SIZES, competitor, ..Workload::new("ipsec", build("ipsec", &text)?) };
    measure(workload, options, progress)
}

/// Key, authentication key and salt of one SA.
#[derive(Clone)]
struct Keys([u8; 40]);

fn keys(random: &mut Random) -> Vec<Keys> {
    let mut one = || Keys(std::array::from_fn(|_| random.next_u32() as u8));
    (0..SAS).map(|_| one()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stanza(transforms: Transforms, keys: &[Keys]) -> String {
    let mut text = String::new();
    for (sa, Keys(keys)) in keys.iter().enumerate() {
        let key = hex(&keys[..16]);
        let how = match transforms {
            Transforms::CbcSha1 => format!(
                "encryption = \"aes-128-cbc\"\nencryption_key = \"{key}\"\nauthentication = \"hmac-sha1-96\"\n\
                 authentication_key = \"{}\"",
                hex(&keys[16..36])
            ),
            Transforms::Gcm => {
                format!("encryption = \"aes-128-gcm\"\nencryption_key = \"{key}\"\nsalt = \"{}\"", hex(&keys[36..]))
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "[[sa]]\nname = \"sa-{sa}\"\nspi = {}\ndirection = \"out\"\nsource = \"192.0.2.1\"\n\
             destination = \"192.0.2.2\"\n{how}\n[[policy]]\naction = \"protect\"\ndestination = \"{}.0.0.0/8\"\n\
             sa = \"sa-{sa}\"",
            4096 + sa,
            sa + 1
        );
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
    path: std::path::PathBuf,
    transforms: Transforms,
    function: Arc<dyn Function>,
    keys: Vec<Keys>,
) -> Competitor<'a> {
    let mut started: Option<Started> = None;
    let round = move |frames: &[Vec<u8>]| {
        if started.as_ref().is_none_or(|started| started.frames != frames) {
            let frame_bytes_max = frames.iter().map(Vec::len).max().unwrap_or(0);
            let config = ArenaConfig { packets: frames.len(), frame_bytes_max, ..ArenaConfig::default() };
            let (bytes, icvs) = packets(transforms, &*function, &keys, frames, config)?;
            let sum = icvs.iter().sum();
            let file = routes::temporary(&bytes)?;
            let peer = Peer::start(&path, &[file.path().as_os_str()])?;
            started = Some(Started { peer, frames: frames.to_vec(), sum });
        }
        let started = started.as_mut().expect("it was just started");
        let (time_ns, sum) = started.peer.round()?;
        if sum != started.sum {
            let what = format!("its ICVs add up to {sum}, ours to {}", started.sum);
            return Err(Error::Wrong { who: "ipsec_mb".to_owned(), what });
        }
        Ok(time_ns)
    };
    Competitor {
        device: "ipsec-mb",
        implementation: "jobs",
        note: "bare jobs, the faster of one by one and bursts of 64; same packets, keys and places".to_owned(),
        mode: "process",
        packets: function::PACKETS,
        round: Box::new(round),
    }
}

/// What the peer reads, where packets lie as `config` says, and the first 32 bits of each ICV: of `ref`, which seals the same packets here.
fn packets(
    transforms: Transforms,
    function: &dyn Function,
    keys: &[Keys],
    frames: &[Vec<u8>],
    config: ArenaConfig,
) -> Result<(Vec<u8>, Vec<u64>), Error> {
    let (suite, iv_bytes, icv_bytes) = match transforms {
        Transforms::CbcSha1 => (0_u32, 16, 12),
        Transforms::Gcm => (1, 8, 16),
    };
    let mut region = Arena::new(config, 1).map_err(Error::setup)?.split().remove(0);
    let mut descriptors: Vec<Descriptor> = Vec::new();
    for frame in frames {
        let descriptor = region.allocate(frame.len()).ok_or_else(|| Error::Setup("the region is full".to_owned()))?;
        region.frame_mut(&descriptor).copy_from_slice(frame);
        descriptors.push(descriptor);
    }
    let mut work = Vec::new();
    let mut host_half = function.host_half(0, 1).ok_or_else(|| Error::Setup("ipsec has no host half".to_owned()))?;
    host_half.prepare(&region, &descriptors, &mut work);
    let end = |descriptor: &Descriptor| descriptor.window_offset() + descriptor.room_bytes();
    let arena_bytes = descriptors.iter().map(end).max().unwrap_or(0) as u32;
    let mut bytes = Vec::new();
    for word in [suite, keys.len() as u32, frames.len() as u32, arena_bytes] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(keys.iter().flat_map(|keys| keys.0));
    let mut icvs = Vec::with_capacity(frames.len());
    for ((descriptor, work), frame) in descriptors.iter_mut().zip(work).zip(frames) {
        let Work::Run { variant, parameter } = work else {
            return Err(Error::Setup(format!("the host half settled a packet: {work:?}")));
        };
        let outcome = function.run_ref(region.window_mut(descriptor), descriptor, variant, parameter);
        let sealed = region.frame(descriptor);
        let esp = 14 + 20;
        let data = esp + ESP_BYTES + iv_bytes;
        let Some(icv) = sealed.len().checked_sub(icv_bytes).filter(|icv| *icv > data) else {
            return Err(Error::Wrong { who: "ref".to_owned(), what: format!("a packet was not sealed: {outcome:?}") });
        };
        let sa = u32::from(frame[30]) - 1;
        let place = (descriptor.window_offset() + usize::from(descriptor.head) + esp) as u32;
        for word in [sa, place, (icv - data) as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&sealed[esp..data]);
        let plain = &frame[14..];
        let padding = icv - data - plain.len() - 2;
        bytes.extend(plain);
        bytes.extend((1..=padding).map(|byte| byte as u8));
        bytes.extend([padding as u8, 4]);
        icvs.push(u64::from(u32::from_le_bytes([sealed[icv], sealed[icv + 1], sealed[icv + 2], sealed[icv + 3]])));
    }
    Ok((bytes, icvs))
}
