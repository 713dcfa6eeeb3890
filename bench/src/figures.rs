//! PIPSEA's figures 8 and 12 and APUNet's figure 9(a), for the machine at hand.
//!
//! | bench | figure | what | sizes, and what Gbps count |
//! |---|---|---|---|
//! | `ipsec-pipsea-8` | PIPSEA, figure 8 | prepared chunks of one of six combinations, no ports | payloads |
//! | `ipsec-pipsea-12` | PIPSEA, figure 12 | the six and their mix, chunks by a packer; encryption also port to port | frames as they come in, without FCS |
//! | `ipsec-apunet-9a` | APUNet, figure 9(a) | the gateway, AES-128-CBC with HMAC-SHA1, port to port | frames as they come in, without FCS |
//!
//! Each on the CPU by the kernel (`scalar`) and by `native`, and on every other device that is here. What differs from the papers:
//! a kernel here always does headers too, which PIPSEA left out of figure 8; a synthetic port makes no ESP packets, so that decryption
//! and the mix of figure 12 are without ports.

use godwit_device::{cpu, has_own_memory};

use crate::frames::Random;
use crate::function::{Workload, many_sas};
use crate::ipsec::whole;
use crate::suites::Associations;
use crate::throughput::Feed;
use crate::{BenchOptions, Error, Progress, Row, Size, devices, gateway, throughput};

/// PIPSEA's combinations (section 4.2), each encryption (ENC) and decryption (DEC).
const COMBINATIONS: [(&str, &str); 3] =
    [("AES-CBC+HMAC-SHA1", "cbc128_sha1"), ("AES-CBC", "cbc128_none"), ("HMAC-SHA1", "null_sha1")];
/// APUNet's.
const APUNET_COMBINATION: (&str, &str, bool) = ("AES-CBC+HMAC-SHA1", "cbc128_sha1", false);
/// SAs: PIPSEA's packets differ in both addresses.
const SAS: u32 = 4096;
/// Figure 12: chunks of 4096 packets in 64 bins. A device with memory of its own has larger ones, of bins as large.
const CHUNK_PACKETS: usize = 4096;
const BIN_PACKETS: usize = 64;
/// In front of what is encrypted.
const ETHERNET_BYTES: u16 = 14;
/// Figure 8: payloads.
const PAYLOADS: [Size; 5] = [Size::Bytes(64), Size::Bytes(256), Size::Bytes(512), Size::Bytes(1024), Size::Bytes(1280)];
/// Figure 12: the same as frames with FCS, random ones between, and IMIX.
const FRAMES: [Size; 7] = [
    Size::Bytes(60),
    Size::Bytes(252),
    Size::Bytes(508),
    Size::Bytes(1020),
    Size::Bytes(1276),
    Size::Uniform { min: 60, max: 1276 },
    Size::ImixPipsea,
];
/// Figure 9(a).
const APUNET: [Size; 6] =
    [Size::Bytes(64), Size::Bytes(128), Size::Bytes(256), Size::Bytes(512), Size::Bytes(1024), Size::Bytes(1451)];

/// One way to run it: device and implementation.
type Way = (String, Option<String>);

/// All figures; their names are the rows' `bench`, and `note` begins with the combination, up to a semicolon or its end.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    // Long before the gateway is asked for them.
    gateway::associations(options)?;
    let ways = ways(options);
    let mut rows = eight(&ways, options, progress)?;
    rows.extend(twelve(&ways, options, progress)?);
    rows.extend(apunet(&ways, options, progress)?);
    Ok(rows)
}

/// Those that are here, or what was asked for.
fn ways(options: &BenchOptions) -> Vec<Way> {
    let forms = |device: String| -> Vec<Way> {
        match (&options.implementation, device == cpu::ID) {
            (None, true) => ["scalar", "native"].map(|form| (device.clone(), Some(form.to_owned()))).to_vec(),
            // A form that was asked for is the CPU's, unless the device was too.
            (form, is_cpu) => vec![(device, form.clone().filter(|_| is_cpu || options.device.is_some()))],
        }
    };
    asked_devices(options).into_iter().flat_map(forms).collect()
}

fn asked_devices(options: &BenchOptions) -> Vec<String> {
    let named = options.device.as_ref().map(|_| options.devices().into_iter().map(str::to_owned).collect());
    named.unwrap_or_else(devices::present)
}

/// What the user asked for, on one device, at these sizes unless there are others.
fn on(options: &BenchOptions, (device, form): &Way, sizes: &[Size]) -> BenchOptions {
    BenchOptions {
        device: Some(device.clone()),
        implementation: form.clone(),
        sizes: if options.sizes.is_empty() { sizes.to_vec() } else { options.sizes.clone() },
        figures: false,
        ..options.clone()
    }
}

/// Figure 8.
fn eight(ways: &[Way], options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let frame = |size: Size| match size {
        Size::Bytes(payload) => Some(Size::Bytes(payload + ETHERNET_BYTES)),
        _ => None,
    };
    let mut rows = Vec::new();
    for way in ways {
        let mut options = on(options, way, &PAYLOADS);
        options.sizes = options.sizes.iter().copied().filter_map(frame).collect();
        if options.sizes.is_empty() {
            break;
        }
        for (combination, associations) in combinations(&options)? {
            rows.extend(lane(&associations, &combination, false, &options, progress)?);
        }
    }
    for combination in every_combination() {
        rows.extend(peer(combination, options, &PAYLOADS, frame, progress)?);
    }
    Ok(rows.into_iter().map(|row| named(of_payload(row), "ipsec-pipsea-8")).collect())
}

/// Figure 12.
fn twelve(ways: &[Way], options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for way in ways {
        let chunk_packets =
            if has_own_memory(&way.0) { Feed::of(options, &way.0, Size::Random).batch } else { CHUNK_PACKETS };
        let asked = on(options, way, &FRAMES);
        let packed = BenchOptions {
            batch: asked.batch.or(Some(chunk_packets)),
            bin_packets: asked.bin_packets.or(Some(BIN_PACKETS)),
            ..asked.clone()
        };
        for (combination, associations) in combinations(options)? {
            rows.extend(lane(&associations, &combination, true, &packed, progress)?);
        }
        let suites = COMBINATIONS.map(|(_, suite)| suite);
        let mix = Associations::new(&suites, options.sas.unwrap_or(SAS), true)?.both_ways();
        rows.extend(lane(&mix, "Mix", true, &packed, progress)?);
        for (name, suite) in COMBINATIONS {
            let options = BenchOptions { suite: Some(suite.to_owned()), ..asked.clone() };
            let found = gateway::run(&options, progress)?;
            rows.extend(found.into_iter().map(|row| labelled(row, &format!("{name} ENC"), &options)));
        }
    }
    for combination in every_combination() {
        rows.extend(peer(combination, options, &FRAMES, Some, progress)?);
    }
    Ok(rows.into_iter().map(|row| named(row, "ipsec-pipsea-12")).collect())
}

/// Figure 9(a).
fn apunet(ways: &[Way], options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for way in ways {
        let options = on(options, way, &APUNET);
        let found = gateway::run(&options, progress)?;
        rows.extend(found.into_iter().map(|row| labelled(row, &title(APUNET_COMBINATION), &options)));
    }
    rows.extend(peer(APUNET_COMBINATION, options, &APUNET, Some, progress)?);
    Ok(rows.into_iter().map(|row| named(row, "ipsec-apunet-9a")).collect())
}

/// The six: what is done, the suite, and whether packets are opened.
fn every_combination() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    COMBINATIONS.into_iter().flat_map(|(name, suite)| [false, true].map(|opens| (name, suite, opens)))
}

fn title((name, _, opens): (&str, &str, bool)) -> String {
    format!("{name} {}", if opens { "DEC" } else { "ENC" })
}

/// The six, with their names.
fn combinations(options: &BenchOptions) -> Result<Vec<(String, Associations)>, Error> {
    let one = |combination: (&str, &str, bool)| {
        let associations = Associations::new(&[combination.1], options.sas.unwrap_or(SAS), combination.2)?;
        Ok((title(combination), associations))
    };
    every_combination().map(one).collect()
}

/// Chunks of these SAs' packets through the device's lane.
fn lane(
    associations: &Associations,
    combination: &str,
    packed: bool,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    progress(&format!("{combination} on {}", options.device()));
    let any = |random: &mut Random| associations.any(random);
    let workload = Workload { job: Some(&any), packed, ..Workload::new("ipsec", many_sas(associations, 1)?) };
    // Workers are the engine's here.
    let fed_by_one = BenchOptions { workers: Vec::new(), ..options.clone() };
    let rows = throughput::measure(&workload, &fed_by_one, progress)?;
    Ok(rows.into_iter().map(|row| labelled(row, combination, options)).collect())
}

/// The peer, one core with what it needs in its caches, and our `native` as a whole function in the same rounds.
fn peer(
    combination: (&str, &str, bool),
    options: &BenchOptions,
    sizes: &[Size],
    frame: impl Fn(Size) -> Option<Size>,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let native = (cpu::ID.to_owned(), Some("native".to_owned()));
    let mut options = BenchOptions { mode: None, ..on(options, &native, sizes) };
    options.sizes = options.sizes.iter().copied().filter_map(frame).collect();
    if !options.peers || options.sizes.is_empty() {
        return Ok(Vec::new());
    }
    let title = title(combination);
    progress(&format!("{title} beside ipsec-mb"));
    let Some(suite) = Associations::new(&[combination.1], 1, combination.2)?.only() else { return Ok(Vec::new()) };
    let rows = whole(suite, combination.2, &options, progress)?;
    // Without the peer there is nothing to hold it against.
    let rows = if rows.iter().any(|row| row.peer) { rows } else { Vec::new() };
    Ok(rows.into_iter().map(|row| labelled(row, &title, &options)).collect())
}

/// The implementation is as it was asked for, since what the fastest level of a kernel is may differ from size to size; the form goes
/// into the note, behind the combination.
fn labelled(row: Row, combination: &str, options: &BenchOptions) -> Row {
    let form = options.implementation.as_ref().filter(|_| !row.peer).map(|_| row.implementation.clone());
    let implementation = options.implementation.clone().filter(|_| !row.peer).unwrap_or(row.implementation);
    let parts = [combination.to_owned(), form.unwrap_or_default(), row.note];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Row { implementation, note: parts.join("; "), ..row }
}

fn named(row: Row, figure: &str) -> Row {
    Row { bench: figure.to_owned(), ..row }
}

/// By what is behind the Ethernet header, before encryption and after decryption.
fn of_payload(mut row: Row) -> Row {
    if let Some(Size::Bytes(bytes)) = row.size {
        let payload = bytes - ETHERNET_BYTES;
        row.size = Some(Size::Bytes(payload));
        row.gbps = row.mpps * f64::from(payload) * 8.0 / 1e3;
    }
    row
}
