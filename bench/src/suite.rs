//! Runs the bench of one definition, or all benches of the suite.

use std::time::{Duration, Instant};

use godwit_device::{LAST_RESORT, is_synchronous};

use crate::definition::{Definition, definitions};
use crate::error::Error;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::devices::present;
use crate::run::options::{COMMON, Common, Context, OptionSpec, Request, Values};
use crate::run::row::Row;
use crate::subject::{Devices, SUBJECTS, Subject};

/// Default time for each figure.
const TIME: Duration = Duration::from_secs(2);

/// The result of one bench of the suite.
#[derive(Debug)]
pub struct Outcome {
    /// Name of the bench.
    pub name: &'static str,
    /// Device, if the bench measures one device at a time.
    pub device: Option<String>,
    /// Time that the bench took.
    pub elapsed: Duration,
    /// Its rows, or the error that ended it.
    pub result: Result<Vec<Row>, Error>,
}

/// Returns all bench options other than the common ones.
pub fn options() -> Vec<&'static OptionSpec> {
    let mut found: Vec<&'static OptionSpec> = Vec::new();
    for option in SUBJECTS.iter().flat_map(Subject::options) {
        if !found.iter().any(|known| known.name == option.name) {
            found.push(option);
        }
    }
    found
}

/// Returns the definition called `name`.
///
/// # Errors
/// Returns an error if no definition has this name.
pub fn find(name: &str) -> Result<&'static Definition, Error> {
    let known = || definitions().iter().map(|definition| definition.name.clone()).collect();
    definitions().iter().find(|definition| definition.name == name).ok_or_else(|| Error::Unknown {
        what: "bench",
        name: name.to_owned(),
        known: known(),
    })
}

/// Runs the bench called `name`.
///
/// # Errors
/// Returns an error if the bench or a device does not exist, if the request has an option that the
/// bench does not accept, or if a competitor returned a wrong result.
pub fn run(name: &str, request: &Request, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    run_definition(find(name)?, request, progress)
}

/// Runs every definition of the suite on each of its devices that this machine has, and calls
/// `done` after each.
///
/// If a bench fails, the suite continues. Options of the request beyond the common ones are
/// ignored.
pub fn run_all(request: &Request, progress: &mut Progress<'_>, done: &mut dyn FnMut(Outcome)) {
    let present = present();
    let request = Request { options: std::collections::BTreeMap::new(), ..request.clone() };
    for definition in definitions().iter().filter(|definition| definition.suite) {
        let is_selected = |device: &&String| {
            present.contains(*device) && (request.devices.is_empty() || request.devices.contains(*device))
        };
        let devices: Vec<String> = definition.devices.iter().filter(is_selected).cloned().collect();
        let together = subject(definition).is_ok_and(|subject| subject.devices == Devices::All);
        let runs: Vec<Vec<String>> = match (devices.is_empty(), together) {
            (true, _) => Vec::new(),
            (false, true) => vec![devices],
            (false, false) => devices.into_iter().map(|device| vec![device]).collect(),
        };
        for devices in runs {
            let device = Some(&devices).filter(|_| !together).map(|devices| devices.join("+"));
            let started = Instant::now();
            let result = run_definition(definition, &Request { devices, ..request.clone() }, progress);
            done(Outcome { name: &definition.name, device, elapsed: started.elapsed(), result });
        }
    }
}

fn subject(definition: &Definition) -> Result<&'static Subject, Error> {
    SUBJECTS
        .iter()
        .find(|subject| subject.name == definition.subject)
        .ok_or_else(|| Error::Setup(format!("{}: there is no subject `{}`", definition.name, definition.subject)))
}

fn run_definition(definition: &Definition, request: &Request, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let subject = subject(definition)?;
    if let Some(option) = request.options.keys().find(|option| !definition.options.contains(option)) {
        let accepted = COMMON.iter().map(|name| (*name).to_owned()).chain(definition.options.clone());
        return Err(Error::Option {
            bench: definition.name.clone(),
            option: option.clone(),
            accepted: accepted.collect(),
        });
    }
    let devices = devices(definition, subject, request)?;
    let mut values = Values::of_workload(&definition.workload);
    values.replace(&request.options);
    let mut sizes = request.sizes.clone();
    if sizes.is_empty() {
        sizes = values.list("size")?;
    }
    if sizes.is_empty() {
        sizes.push(Size::Bytes(60));
    }
    let time = match request.time {
        Some(time) => time,
        None => values.get::<f64>("seconds")?.map_or(TIME, Duration::from_secs_f64),
    };
    let common = Common {
        devices_named: !request.devices.is_empty(),
        devices,
        implementation: request.implementation.clone(),
        sizes,
        time,
        peers: request.peers,
    };
    let mut rows = (subject.run)(&Context { common, values }, progress)?;
    rows.iter_mut().for_each(|row| row.bench.clone_from(&definition.name));
    Ok(rows)
}

/// Returns the devices of the request, or the default ones.
fn devices(definition: &Definition, subject: &Subject, request: &Request) -> Result<Vec<String>, Error> {
    let named = &request.devices;
    if let Some(device) = named.iter().find(|device| !godwit_device::is_id(device)) {
        return Err(Error::Setup(format!("device `{device}`: valid devices are {}", godwit_device::id_forms())));
    }
    if let Some((_, twice)) = named.iter().enumerate().find(|(index, device)| named[..*index].contains(device)) {
        return Err(Error::Setup(format!("device `{twice}` is named twice")));
    }
    let name = &definition.name;
    match (subject.devices, named.as_slice()) {
        (Devices::Cpu, [device, ..]) if !is_synchronous(device) || named.len() > 1 => {
            Err(Error::Setup(format!("device `{}`: the bench `{name}` runs on the CPU only (cpu)", named.join(","))))
        }
        (Devices::One, [_, _, ..]) => {
            Err(Error::Setup(format!("device `{}`: the bench `{name}` runs on one device at a time", named.join(","))))
        }
        (Devices::All, []) => Ok(present()),
        (_, []) if definition.devices.iter().any(|device| is_synchronous(device)) => Ok(vec![LAST_RESORT.to_owned()]),
        // A bench that needs another device uses the first one of this machine.
        (_, []) => {
            let present = present();
            let found = definition.devices.iter().find(|device| present.contains(*device));
            Ok(vec![found.unwrap_or(&definition.devices[0]).clone()])
        }
        _ => Ok(named.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_fits_its_subject() {
        for definition in definitions() {
            let subject = subject(definition).unwrap();
            let known: Vec<&str> = subject.options().map(|option| option.name).collect();
            for option in &definition.options {
                assert!(known.contains(&option.as_str()), "{}: option `{option}`", definition.name);
            }
            for key in definition.workload.keys() {
                let is_known = known.contains(&key.as_str())
                    || subject.parameters.contains(&key.as_str())
                    || ["size", "seconds"].contains(&key.as_str());
                assert!(is_known, "{}: key `{key}` in [workload]", definition.name);
            }
        }
    }
}
