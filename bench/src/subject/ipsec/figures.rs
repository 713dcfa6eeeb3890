//! Figures 8 and 12 of PIPSEA and figure 9(a) of APUNet, on the CPU and on every other device of
//! this machine.
//!
//! | figure | measures | sizes, and the bytes that Gbps count |
//! |---|---|---|
//! | `pipsea-8` | prepared chunks of one of six combinations, without ports | payloads |
//! | `pipsea-12` | the six combinations and their mix, in chunks of the packer; encryption also port to port | received frames without FCS |
//! | `apunet-9a` | the gateway with AES-128-CBC and HMAC-SHA1, port to port | received frames without FCS |
//!
//! On the CPU both the portable kernel (`scalar`) and `native` are measured. Two points differ from
//! the papers. The kernel always writes the headers, but PIPSEA's figure 8 excludes them. Synthetic
//! ports do not make ESP packets, so decryption and the mix of figure 12 are measured without
//! ports.

use godwit_device::{LAST_RESORT, has_own_memory, is_synchronous};

use super::gateway;
use super::gateway_rows;
use super::whole::whole;
use crate::error::Error;
use crate::load::associations::{Associations, Choice};
use crate::load::frames::Random;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::feed::Feed;
use crate::run::lane;
use crate::run::options::{Common, Context, LaneOptions, SAS};
use crate::run::row::{Details, Row};
use crate::run::workload::Workload;

/// PIPSEA's combinations (section 4.2) with our suites. Each is measured with encryption (ENC) and
/// with decryption (DEC).
const COMBINATIONS: [(&str, &str); 3] =
    [("AES-CBC+HMAC-SHA1", "cbc128_sha1"), ("AES-CBC", "cbc128_none"), ("HMAC-SHA1", "null_sha1")];
/// APUNet's combination.
const APUNET: Combination = Combination { name: "AES-CBC+HMAC-SHA1", suite: "cbc128_sha1", decrypts: false };
/// Default number of SAs. PIPSEA's packets have random addresses.
const DEFAULT_SAS: u32 = 4096;
/// Packets per chunk in figure 12, in 64 bins. A device with separate memory gets larger chunks
/// with bins of the same size.
const CHUNK_PACKETS: usize = 4096;
/// Packets of a bin in figure 12.
const BIN_PACKETS: usize = 64;
/// Bytes before the payload of a plain frame.
const ETHERNET_BYTES: u16 = 14;

/// A suite in one direction.
#[derive(Clone, Copy)]
struct Combination {
    name: &'static str,
    suite: &'static str,
    decrypts: bool,
}

impl Combination {
    /// Returns the name as in PIPSEA, such as `AES-CBC ENC`.
    fn title(&self) -> String {
        format!("{} {}", self.name, if self.decrypts { "DEC" } else { "ENC" })
    }

    /// Returns all six combinations.
    fn all() -> impl Iterator<Item = Self> {
        let both = |(name, suite)| [false, true].map(|decrypts| Self { name, suite, decrypts });
        COMBINATIONS.into_iter().flat_map(both)
    }

    fn associations(&self, sas: u32) -> Result<Associations, Error> {
        Associations::new(&[self.suite], sas, self.decrypts)
    }
}

/// Measures the figure of the definition. The detail `combination` names the suite and the
/// direction.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = LaneOptions::parse(context)?;
    let sas = context.values.get(SAS.name)?.unwrap_or(DEFAULT_SAS);
    let figure = FigureBench { options, sas };
    match context.values.parameter("figure")?.as_str() {
        "pipsea-8" => figure.pipsea_8(progress),
        "pipsea-12" => figure.pipsea_12(progress),
        "apunet-9a" => figure.apunet_9a(progress),
        name => Err(Error::Setup(format!("[workload]: there is no figure `{name}`"))),
    }
}

struct FigureBench {
    options: LaneOptions,
    sas: u32,
}

impl FigureBench {
    /// Returns the options for each device and, on the CPU, for each implementation.
    fn variants(&self) -> Vec<LaneOptions> {
        let common = &self.options.common;
        let forms = |device: &String| -> Vec<Option<String>> {
            match (&common.implementation, is_synchronous(device)) {
                (None, true) => ["scalar", "native"].map(|form| Some(form.to_owned())).to_vec(),
                // An implementation refers to the CPU, unless the request names a device.
                (form, is_cpu) => vec![form.clone().filter(|_| is_cpu || common.devices_named)],
            }
        };
        let on = |device: &String| {
            let device = device.clone();
            forms(&device).into_iter().map(move |form| self.on(&device, form)).collect::<Vec<_>>()
        };
        common.devices.iter().flat_map(on).collect()
    }

    fn on(&self, device: &str, implementation: Option<String>) -> LaneOptions {
        let common = Common { devices: vec![device.to_owned()], implementation, ..self.options.common.clone() };
        LaneOptions { common, ..self.options.clone() }
    }

    fn gateway_associations(&self, suite: &str) -> Result<Associations, Error> {
        gateway::associations(&Choice { suite: Some(suite.to_owned()), sas: Some(self.sas), decrypt: false })
    }

    fn pipsea_8(&self, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
        // The sizes are payloads.
        let frame = |size: &Size| match *size {
            Size::Bytes(payload) => Some(Size::Bytes(payload + ETHERNET_BYTES)),
            _ => None,
        };
        let sizes: Vec<Size> = self.options.common.sizes.iter().filter_map(frame).collect();
        if sizes.is_empty() {
            return Err(Error::Setup("--size: this figure needs payloads of a fixed size".to_owned()));
        }
        let mut rows = Vec::new();
        for mut options in self.variants() {
            options.common.sizes.clone_from(&sizes);
            for combination in Combination::all() {
                let associations = combination.associations(self.sas)?;
                rows.extend(chunks(&associations, &combination.title(), false, &options, progress)?);
            }
        }
        for combination in Combination::all() {
            rows.extend(self.peer(combination, &sizes, progress)?);
        }
        Ok(rows.into_iter().map(of_payload).collect())
    }

    fn pipsea_12(&self, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
        let gateways: Vec<(String, Associations)> = COMBINATIONS
            .iter()
            .map(|(name, suite)| Ok((format!("{name} ENC"), self.gateway_associations(suite)?)))
            .collect::<Result<_, Error>>()?;
        let mut rows = Vec::new();
        for options in self.variants() {
            let device = options.device();
            let chunk_packets =
                if has_own_memory(device) { Feed::of(&options, device, Size::Random).batch } else { CHUNK_PACKETS };
            let packed = LaneOptions {
                batch: options.batch.or(Some(chunk_packets)),
                bin_packets: options.bin_packets.or(Some(BIN_PACKETS)),
                ..options.clone()
            };
            for combination in Combination::all() {
                let associations = combination.associations(self.sas)?;
                rows.extend(chunks(&associations, &combination.title(), true, &packed, progress)?);
            }
            let mix = Associations::new(&COMBINATIONS.map(|(_, suite)| suite), self.sas, true)?.both_ways();
            rows.extend(chunks(&mix, "Mix", true, &packed, progress)?);
            for (title, associations) in &gateways {
                let found = gateway_rows::rows(&options, associations, progress)?;
                rows.extend(found.into_iter().map(|row| labelled(row, title, &options)));
            }
        }
        for combination in Combination::all() {
            rows.extend(self.peer(combination, &self.options.common.sizes, progress)?);
        }
        Ok(rows)
    }

    fn apunet_9a(&self, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
        let associations = self.gateway_associations(APUNET.suite)?;
        let mut rows = Vec::new();
        for options in self.variants() {
            let found = gateway_rows::rows(&options, &associations, progress)?;
            rows.extend(found.into_iter().map(|row| labelled(row, &APUNET.title(), &options)));
        }
        rows.extend(self.peer(APUNET, &self.options.common.sizes, progress)?);
        Ok(rows)
    }

    /// Measures the peer on one core with all data in its caches. The same rounds measure our
    /// `native` as a whole function.
    fn peer(&self, combination: Combination, sizes: &[Size], progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
        if !self.options.common.peers {
            return Ok(Vec::new());
        }
        let mut options = LaneOptions { mode: None, ..self.on(LAST_RESORT, Some("native".to_owned())) };
        options.common.sizes = sizes.to_vec();
        let title = combination.title();
        progress(&format!("{title} and ipsec-mb"));
        let Some(suite) = combination.associations(1)?.only() else { return Ok(Vec::new()) };
        let rows = whole(suite, combination.decrypts, &options, progress)?;
        // Our rows are only useful next to those of the peer.
        let rows = if rows.iter().any(|row| row.peer) { rows } else { Vec::new() };
        Ok(rows.into_iter().map(|row| labelled(row, &title, &options)).collect())
    }
}

/// Measures prepared chunks of packets of these SAs through the device lane.
fn chunks(
    associations: &Associations,
    title: &str,
    packed: bool,
    options: &LaneOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    progress(&format!("{title} on {}", options.device()));
    let any = |random: &mut Random| associations.any(random);
    let workload = Workload { job: Some(&any), packed, ..Workload::new(associations.function(1)?) };
    // `--workers` applies to the engine only.
    let options = LaneOptions { workers: Vec::new(), ..options.clone() };
    let rows = lane::measure(&workload, &options, progress)?;
    Ok(rows.into_iter().map(|row| labelled(row, title, &options)).collect())
}

/// Adds the combination. The column `impl` gets the requested implementation, because the fastest
/// kernel form may differ between sizes. The form becomes a detail.
fn labelled(row: Row, combination: &str, options: &LaneOptions) -> Row {
    let details = Details::default().with("combination", combination).and(row.details.clone());
    match options.common.implementation.clone().filter(|_| !row.peer) {
        Some(implementation) => {
            Row { details: details.with("form", row.implementation.as_str()), implementation, ..row }
        }
        None => Row { details, ..row },
    }
}

/// Converts size and Gbps to payloads: the bytes after the Ethernet header, before encryption or
/// after decryption.
fn of_payload(mut row: Row) -> Row {
    if let Some(Size::Bytes(bytes)) = row.size {
        let payload = bytes - ETHERNET_BYTES;
        row.size = Some(Size::Bytes(payload));
        row.gbps = row.mpps * f64::from(payload) * 8.0 / 1e3;
    }
    row.details = row.details.with("gbps_of", "payload");
    row
}
