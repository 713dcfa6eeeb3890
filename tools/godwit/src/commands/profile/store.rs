//! The file of a profile. Each measured point is written at once, so that a killed program can
//! continue.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use godwit_sched::place::{Curve, CurvePoint, Identity, Profile, ProfileError};

use crate::failure::Failure;

/// Version of the file format that this program writes.
const FORMAT: u32 = 1;

/// A profile and its file.
pub(super) struct Store {
    path: PathBuf,
    pub(super) profile: Profile,
}

impl Store {
    /// Opens the profile at `path`, or creates one. An existing profile must belong to this machine
    /// and this configuration.
    pub(super) fn open(path: &Path, here: Identity) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::User(format!("{}: {error}", path.display()))),
        };
        let refuse = |error: ProfileError| {
            let path = path.display();
            Failure::User(format!("{path}: this file cannot be continued; give another file, or remove it: {error}"))
        };
        let Some(text) = text else {
            let profile = Profile {
                format: FORMAT,
                noise_cv: 0.0,
                machine: here,
                host: Default::default(),
                receives: Vec::new(),
                curves: Vec::new(),
                pairs: Vec::new(),
                powers: Vec::new(),
                buses: Vec::new(),
                summary: None,
            };
            let store = Self { path: path.to_owned(), profile };
            // An unwritable file is reported before long work.
            store.save()?;
            return Ok(store);
        };
        let mut profile = Profile::parse_partial(&text).map_err(refuse)?;
        profile.check_machine(&here).map_err(refuse)?;
        profile.machine.devices.extend(here.devices);
        profile.summary = None;
        Ok(Self { path: path.to_owned(), profile })
    }

    /// Adds a point to the curve of a function on a device.
    pub(super) fn add_point(&mut self, function: &str, device: &str, mode: &str, point: CurvePoint) {
        let is_it = |curve: &&mut Curve| (&*curve.function, &*curve.device, &*curve.mode) == (function, device, mode);
        match self.profile.curves.iter_mut().find(is_it) {
            Some(curve) => curve.points.push(point),
            None => self.profile.curves.push(Curve {
                function: function.to_owned(),
                device: device.to_owned(),
                mode: mode.to_owned(),
                points: vec![point],
                fit: None,
            }),
        }
    }

    /// Writes what is measured so far.
    pub(super) fn save(&self) -> Result<(), Failure> {
        self.write(self.profile.to_partial_text())
    }

    /// Writes the complete profile, with the costs that fit its points.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.profile.fit();
        self.write(self.profile.to_text())
    }

    /// Replaces the file. At any time, the old or the new text is complete.
    fn write(&self, text: Result<String, ProfileError>) -> Result<(), Failure> {
        let text = text.map_err(|error| Failure::Bug(format!("a measured number is invalid: {error}")))?;
        let mut part = self.path.clone().into_os_string();
        part.push(".part");
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&part, &self.path)
        };
        write().map_err(|error| Failure::User(format!("cannot write {}: {error}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bytes: u16) -> CurvePoint {
        CurvePoint {
            chunk: 256,
            bytes,
            load: 1.0,
            filled: Some(200.5),
            mpps: 1.25,
            host_ns: 30.0,
            device_ns: f64::from(bytes),
            p50_us: None,
            p99_us: None,
            watts: None,
            runs: 2,
            cv: 0.01,
        }
    }

    fn identity() -> Identity {
        Identity { cpu: "a".to_owned(), cores: 2, config: "c".to_owned(), godwit: "1".to_owned(), ..Default::default() }
    }

    #[test]
    fn stored_points_are_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("profile.toml");
        let mut store = Store::open(&path, identity()).expect("a new file");
        store.add_point("f", "cpu", "launch", point(60));
        store.save().expect("written");
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(Profile::parse(&text).is_err(), "an unfinished profile is incomplete");
        let mut store = Store::open(&path, identity()).expect("the same machine");
        assert_eq!(store.profile.curves[0].points, [point(60)]);
        store.add_point("f", "cpu", "launch", point(1404));
        store.finish().expect("written");
        let text = std::fs::read_to_string(&path).expect("readable");
        let profile = Profile::parse(&text).expect("complete");
        assert!((profile.curves[0].fit.expect("a fit").byte_ns - 1.0).abs() < 1e-6);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn profile_of_another_machine_or_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("profile.toml");
        Store::open(&path, identity()).expect("a new file");
        for other in [
            Identity { cores: 4, ..identity() },
            Identity { config: "d".to_owned(), ..identity() },
            Identity { godwit: "2".to_owned(), ..identity() },
        ] {
            let error = Store::open(&path, other).map(|_| ()).expect_err("another machine").to_string();
            assert!(error.contains("profile.toml") && error.contains("another file"), "{error}");
        }
        std::fs::write(&path, "format = 1\n[mach").expect("written");
        let error = Store::open(&path, identity()).map(|_| ()).expect_err("damaged").to_string();
        assert!(error.contains("line 2"), "{error}");
        let missing = folder.path().join("no/profile.toml");
        assert!(Store::open(&missing, identity()).is_err());
    }
}
