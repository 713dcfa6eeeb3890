//! Checks the numbers of a profile, its completeness, and the machine on which it was measured.

use super::{Curve, Fit, Identity, Pair, Power, Profile, ProfileError};

/// Longest frame, in bytes.
const FRAME_BYTES_MAX: f64 = 16128.0;
/// Largest cost per packet or per batch, in nanoseconds. It equals one second.
const COST_NS_MAX: f64 = 1e9;
/// Largest rate, in million packets per second.
const MPPS_MAX: f64 = 1e5;
/// Largest latency, in microseconds. It equals one minute.
const LATENCY_US_MAX: f64 = 6e7;
/// Largest power of a device, in watts.
const WATTS_MAX: f64 = 1e5;
/// Largest valid slowdown that one function may cause for another on the same device. The value 1
/// means that the cost doubles.
const GAMMA_MAX: f64 = 10.0;

/// Key, value, minimum and maximum of a number to check.
type Range = (&'static str, f64, f64, f64);

fn within(location: &str, ranges: &[Range]) -> Result<(), ProfileError> {
    for &(key, value, min, max) in ranges {
        if !(min..=max).contains(&value) {
            let valid = format!("{min} to {max}");
            return Err(ProfileError::Number { location: location.to_owned(), key, value, valid });
        }
    }
    Ok(())
}

impl Profile {
    /// Checks that the profile was measured on this machine, with these functions and this version
    /// of the program.
    ///
    /// # Errors
    /// Returns an error for the first property that differs. Devices that only the profile or only
    /// the machine has are ignored.
    pub fn check_machine(&self, here: &Identity) -> Result<(), ProfileError> {
        let of = &self.machine;
        if of.godwit != here.godwit {
            let (found, needed) = (format!("version {}", of.godwit), format!("version {}", here.godwit));
            return Err(ProfileError::Version { found, needed });
        }
        let cores = |identity: &Identity| identity.cores.to_string();
        let mut pairs = vec![
            ("cpu".to_owned(), of.cpu.clone(), here.cpu.clone()),
            ("cores".to_owned(), cores(of), cores(here)),
            ("config".to_owned(), of.config.clone(), here.config.clone()),
        ];
        for (id, name) in &of.devices {
            if let Some(other) = here.devices.get(id) {
                pairs.push((id.clone(), name.clone(), other.clone()));
            }
        }
        match pairs.into_iter().find(|(_, found, here)| found != here) {
            Some((key, found, here)) => Err(ProfileError::Machine { key, found, here }),
            None => Ok(()),
        }
    }

    /// Checks that no table is missing at the end of the file.
    pub(super) fn check_complete(&self) -> Result<(), ProfileError> {
        let incomplete = |reason: &str| Err(ProfileError::Incomplete { reason: reason.to_owned() });
        match self.summary {
            None => incomplete("the summary is missing"),
            Some(summary) if summary != self.count() => incomplete("the summary states another number of points"),
            Some(_) if self.curves.is_empty() => incomplete("there are no curves"),
            Some(_) => Ok(()),
        }
    }

    /// Checks every number of the profile.
    pub(super) fn check_numbers(&self) -> Result<(), ProfileError> {
        let host = &self.host;
        within("profile", &[("noise_cv", self.noise_cv, 0.0, 1.0)])?;
        within("machine", &[("cores", self.machine.cores.into(), 1.0, 65_535.0)])?;
        within("host", &[("receive_ns", host.receive_ns, 0.0, COST_NS_MAX)])?;
        within("host", &[("stream_ns", host.stream_ns, 0.0, COST_NS_MAX)])?;
        within("host", &[("mixed_ns", host.mixed_ns, 0.0, COST_NS_MAX)])?;
        for point in &self.receives {
            let bytes = ("bytes", f64::from(point.bytes), 14.0, FRAME_BYTES_MAX);
            within("receive", &[bytes, ("mpps", point.mpps, 1e-6, MPPS_MAX), ("cv", point.cv, 0.0, 1.0)])?;
            within("receive", &[("host_ns", point.host_ns, 0.0, COST_NS_MAX)])?;
        }
        for (index, curve) in self.curves.iter().enumerate() {
            check_curve(curve)?;
            if self.curves[..index].iter().any(|other| other.location() == curve.location()) {
                return Err(ProfileError::Table { location: curve.location(), reason: "is there twice".to_owned() });
            }
        }
        self.pairs.iter().try_for_each(check_pair)?;
        self.powers.iter().try_for_each(check_power)?;
        for bus in &self.buses {
            let location = format!("bus {}", bus.name);
            let gbps = |key, value| (key, value, 1e-3, 1e6);
            within(&location, &[gbps("in_gbps", bus.in_gbps), gbps("out_gbps", bus.out_gbps)])?;
            within(&location, &[("packet_bytes", bus.packet_bytes, 0.0, FRAME_BYTES_MAX)])?;
        }
        Ok(())
    }
}

fn check_curve(curve: &Curve) -> Result<(), ProfileError> {
    let location = curve.location();
    if !["launch", "persistent"].contains(&curve.mode.as_str()) {
        let reason = format!("mode = \"{}\" must be launch or persistent", curve.mode);
        return Err(ProfileError::Table { location, reason });
    }
    for point in &curve.points {
        within(
            &location,
            &[
                ("chunk", point.chunk.into(), 1.0, f64::from(1 << 24)),
                ("bytes", point.bytes.into(), 14.0, FRAME_BYTES_MAX),
                ("use", point.load, 1e-6, 1.0),
                ("filled", point.filled.unwrap_or(1.0), 1.0, f64::from(1 << 24)),
                ("mpps", point.mpps, 1e-6, MPPS_MAX),
                ("host_ns", point.host_ns, 0.0, COST_NS_MAX),
                ("device_ns", point.device_ns, 0.0, COST_NS_MAX),
                ("p50_us", point.p50_us.unwrap_or(1.0), 1e-3, LATENCY_US_MAX),
                ("p99_us", point.p99_us.unwrap_or(LATENCY_US_MAX), point.p50_us.unwrap_or(1e-3), LATENCY_US_MAX),
                ("watts", point.watts.unwrap_or(0.0), 0.0, WATTS_MAX),
                ("runs", point.runs.into(), 1.0, 1e6),
                ("cv", point.cv, 0.0, 1.0),
            ],
        )?;
    }
    curve.fit.map_or(Ok(()), |fit| check_fit(&location, &fit))
}

fn check_fit(location: &str, fit: &Fit) -> Result<(), ProfileError> {
    let cost = |key, value| (key, value, 0.0, COST_NS_MAX);
    within(
        location,
        &[
            cost("chunk_ns", fit.chunk_ns),
            ("packet_ns", fit.packet_ns, -COST_NS_MAX, COST_NS_MAX),
            cost("floor_ns", fit.floor_ns),
            cost("byte_ns", fit.byte_ns),
            cost("bin_ns", fit.bin_ns),
            cost("host_ns", fit.host_ns),
            cost("submit_ns", fit.submit_ns),
            cost("trip_ns", fit.trip_ns),
            cost("trip_byte_ns", fit.trip_byte_ns),
            ("tail", fit.tail, 0.0, 1e4),
            ("error_median", fit.error_median, 0.0, 1.0),
            ("error_max", fit.error_max, 0.0, 10.0),
        ],
    )?;
    if fit.packet_ns + fit.byte_ns * FRAME_BYTES_MAX <= 0.0 {
        let valid = "above 0, or byte_ns must be above 0".to_owned();
        return Err(ProfileError::Number {
            location: location.to_owned(),
            key: "packet_ns",
            value: fit.packet_ns,
            valid,
        });
    }
    Ok(())
}

fn check_pair(pair: &Pair) -> Result<(), ProfileError> {
    let location = format!("pair of {} on {}", pair.functions.join(" and "), pair.device);
    let count = pair.functions.len();
    if !(2..=3).contains(&count) || [&pair.mpps, &pair.of_solo, &pair.gamma].iter().any(|list| list.len() != count) {
        let reason = "functions, mpps, of_solo and gamma must have two or three entries each".to_owned();
        return Err(ProfileError::Table { location, reason });
    }
    for index in 0..count {
        within(
            &location,
            &[
                ("mpps", pair.mpps[index], 1e-6, MPPS_MAX),
                ("of_solo", pair.of_solo[index], 1e-6, 10.0),
                ("gamma", pair.gamma[index], -0.9, GAMMA_MAX),
            ],
        )?;
    }
    Ok(())
}

fn check_power(power: &Power) -> Result<(), ProfileError> {
    let location = format!("power of {}", power.device);
    within(
        &location,
        &[
            ("asleep", power.asleep, 0.0, WATTS_MAX),
            ("awake", power.awake, power.asleep, WATTS_MAX),
            ("wake_us", power.wake_us, 0.0, LATENCY_US_MAX),
        ],
    )?;
    for point in &power.points {
        within(&location, &[("use", point.load, 1e-6, 1.0), ("watts", point.watts, 0.0, WATTS_MAX)])?;
    }
    Ok(())
}
