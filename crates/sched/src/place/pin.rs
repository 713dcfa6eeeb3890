//! Reads and writes placements as text, for `godwit policy hold PLACEMENT`.
//!
//! The text lists functions and their devices, such as `tunnel=cuda:0 inspect=25%cpu+75%cuda:0`.
//! Functions that the text does not name keep their placement. `workers=N` sets the number of
//! workers, `feeders=N` the number of workers that only feed devices, and `level=N` the submission
//! size.

use super::model::Machine;
use super::placement::{Choice, PlaceSet};

/// Reason why the operator's text is not a valid placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// A part of the text is not an assignment.
    #[error("`{part}` is not a placement; write `FUNCTION=PLACE` or `FUNCTION=25%PLACE+75%PLACE`")]
    Syntax {
        /// The part of the text that is not an assignment.
        part: String,
    },
    /// There is no such function.
    #[error("there is no function `{name}`; the functions are {known}")]
    Function {
        /// Name in the text.
        name: String,
        /// Names of all functions.
        known: String,
    },
    /// The text assigns a function to a device that cannot run it.
    #[error("function `{function}` cannot run on `{place}`; it can run on {known}")]
    Place {
        /// Name of the function.
        function: String,
        /// Name of the device, as in the text.
        place: String,
        /// Names of the devices that can run the function.
        known: String,
    },
    /// The percentages of a function's packets do not add up to 100 %.
    #[error("the shares of `{function}` add up to {percent} %; they must add up to 100 %")]
    Sum {
        /// Name of the function.
        function: String,
        /// Sum of the percentages.
        percent: u32,
    },
    /// The placement uses both modes of one device.
    #[error("`{one}` and `{two}` are two modes of one device; choose one of them")]
    Modes {
        /// Name of the device in its first mode.
        one: String,
        /// Name of the device in its second mode.
        two: String,
    },
    /// A number in the text is out of range.
    #[error("{key} = {value}: must be between {min} and {max}")]
    Range {
        /// Key in the text.
        key: &'static str,
        /// Value in the text.
        value: String,
        /// Smallest valid value.
        min: u16,
        /// Largest valid value.
        max: u16,
    },
}

impl Choice {
    /// Returns the placement that `text` describes. Parts that `text` does not mention are copied
    /// from `from`.
    ///
    /// # Errors
    /// Returns an error for the first invalid part of the text.
    pub fn parse(machine: &Machine, text: &str, from: &Self) -> Result<Self, PinError> {
        let mut choice = from.clone();
        for part in text.split([' ', ',', '\n']).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| PinError::Syntax { part: part.to_owned() })?;
            match name {
                "workers" => choice.setting.workers = number("workers", value, 1, machine.workers)?,
                "feeders" => choice.setting.feeders = number("feeders", value, 0, machine.workers)?,
                "level" => choice.setting.level = number("level", value, 0, 8)? as u8,
                _ => set_function(machine, &mut choice, name, value)?,
            }
        }
        finish(machine, choice)
    }

    /// Returns the placement as text in the format that [`Choice::parse`] reads.
    pub fn to_text(&self, machine: &Machine) -> String {
        let places = machine.places.len();
        let function = |(index, name): (usize, &String)| {
            let shares = (0..places).map(|place| (place, self.shares[index * places + place]));
            let used: Vec<(usize, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
            let id = |place: usize| &machine.places[place].setup.id;
            match used[..] {
                [(place, _)] => format!("{name}={}", id(place)),
                _ => {
                    let percents = percents(&used);
                    let parts = used.iter().zip(percents).map(|((place, _), part)| format!("{part}%{}", id(*place)));
                    format!("{name}={}", parts.collect::<Vec<_>>().join("+"))
                }
            }
        };
        let setting = self.setting;
        let mut parts: Vec<String> = machine.functions.iter().enumerate().map(function).collect();
        parts.push(format!("workers={}", setting.workers));
        parts.extend((setting.feeders > 0).then(|| format!("feeders={}", setting.feeders)));
        parts.extend((setting.level > 0).then(|| format!("level={}", setting.level)));
        parts.join(" ")
    }
}

/// Rounds fractions of packets to whole percentages whose sum is 100.
fn percents(shares: &[(usize, f64)]) -> Vec<i64> {
    let mut percents: Vec<i64> = shares.iter().map(|(_, share)| (share * 100.0).round() as i64).collect();
    let missing = 100 - percents.iter().sum::<i64>();
    if let Some(largest) = percents.iter_mut().max() {
        *largest += missing;
    }
    percents
}

fn number(key: &'static str, value: &str, min: u16, max: u16) -> Result<u16, PinError> {
    let valid = value.parse().ok().filter(|number| (min..=max).contains(number));
    valid.ok_or_else(|| PinError::Range { key, value: value.to_owned(), min, max })
}

fn set_function(machine: &Machine, choice: &mut Choice, name: &str, value: &str) -> Result<(), PinError> {
    let syntax = || PinError::Syntax { part: format!("{name}={value}") };
    let Some(function) = machine.functions.iter().position(|known| known == name) else {
        return Err(PinError::Function { name: name.to_owned(), known: machine.functions.join(", ") });
    };
    let places = machine.places.len();
    let shares = &mut choice.shares[function * places..][..places];
    shares.fill(0.0);
    let mut sum = 0;
    for part in value.split('+') {
        let (percent, id) = match part.split_once('%') {
            Some((percent, id)) => (percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(syntax)?, id),
            None => (100, part),
        };
        let place = machine.places.iter().position(|place| place.setup.id == id);
        let Some(place) = place.filter(|&place| machine.allowed[function].contains(place)) else {
            let known: Vec<&str> =
                machine.allowed[function].iter().map(|place| machine.places[place].setup.id.as_str()).collect();
            let known = known.join(", ");
            return Err(PinError::Place { function: name.to_owned(), place: id.to_owned(), known });
        };
        shares[place] += f64::from(percent) / 100.0;
        sum += percent;
    }
    if sum != 100 {
        return Err(PinError::Sum { function: name.to_owned(), percent: sum });
    }
    Ok(())
}

/// Marks the devices that receive packets as awake. Checks the device modes and the number of
/// workers that only feed devices.
fn finish(machine: &Machine, mut choice: Choice) -> Result<Choice, PinError> {
    let places = machine.places.len();
    let used = (0..machine.functions.len()).map(|function| choice.used_by(function, places));
    let on = used.fold(PlaceSet::default(), PlaceSet::with);
    for one in on.iter() {
        let device = machine.places[one].device;
        let clash = on.iter().find(|&two| two > one && device.is_some() && machine.places[two].device == device);
        if let Some(two) = clash {
            let id = |place: usize| machine.places[place].setup.id.clone();
            return Err(PinError::Modes { one: id(one), two: id(two) });
        }
    }
    choice.setting.on = on;
    let has_both = on.contains(0) && on.len() > 1;
    let max = if has_both { choice.setting.workers - 1 } else { 0 };
    if choice.setting.feeders > max {
        return Err(PinError::Range { key: "feeders", value: choice.setting.feeders.to_string(), min: 0, max });
    }
    Ok(choice)
}
