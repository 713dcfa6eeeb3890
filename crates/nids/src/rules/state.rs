//! Parses the rule options that keep state across packets: `flow`, `flowbits`, `xbits`, `flowint`,
//! `threshold` and `detection_filter`.

use super::number::NumberTest;
use crate::app::Direction;

/// Test of the flow of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowTest {
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// Whether the flow must be established (true) or must not be (false).
    pub established: Option<bool>,
    /// Whether the rule inspects only reassembled TCP data (true) or only single packets (false).
    pub stream: Option<bool>,
    /// Whether the rule inspects only reassembled datagrams (true) or only other packets (false).
    pub fragments: Option<bool>,
}

impl FlowTest {
    /// Parses the value of `flow`.
    pub fn parse(value: &str) -> Result<Self, &'static str> {
        let mut test = Self::default();
        for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "to_server" | "from_client" => test.direction = Some(Direction::ToServer),
                "to_client" | "from_server" => test.direction = Some(Direction::ToClient),
                "established" => test.established = Some(true),
                "not_established" => test.established = Some(false),
                "stateless" => {}
                "only_stream" => test.stream = Some(true),
                "no_stream" => test.stream = Some(false),
                "only_frag" => test.fragments = Some(true),
                "no_frag" => test.fragments = Some(false),
                _ => return Err("a word of flow is not supported"),
            }
        }
        Ok(test)
    }
}

/// Object to which a named bit belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The flow.
    Flow,
    /// The transaction.
    Transaction,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The pair of addresses.
    Pair,
}

/// Test or change of a named bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bit {
    /// Object to which the bit belongs.
    pub scope: Scope,
    /// Operation on the bits.
    pub action: BitAction,
    /// Names of the bits. A rule that tests `a|b` refers to the bits `a` and `b`.
    pub names: Vec<String>,
    /// Time in seconds after which the bit is cleared.
    pub expire_seconds: Option<u32>,
}

/// Operation on a named bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitAction {
    /// Sets the bit after a match.
    Set,
    /// Clears the bit after a match.
    Unset,
    /// Inverts the bit after a match.
    Toggle,
    /// Matches if one of the bits is set.
    IsSet,
    /// Matches if none of the bits is set.
    IsNotSet,
}

impl BitAction {
    /// Returns whether the operation is a test.
    pub fn is_test(self) -> bool {
        matches!(self, Self::IsSet | Self::IsNotSet)
    }

    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "set" => Self::Set,
            "unset" => Self::Unset,
            "toggle" => Self::Toggle,
            "isset" => Self::IsSet,
            "isnotset" => Self::IsNotSet,
            _ => return None,
        })
    }
}

/// Parses the option `flowbits:action,name`. Returns `None` for the action `noalert`, which has no
/// name.
pub fn flowbits(value: &str) -> Result<Option<Bit>, &'static str> {
    let (action, names) = value.split_once(',').unwrap_or((value, ""));
    if action.trim() == "noalert" {
        return Ok(None);
    }
    let action = BitAction::parse(action.trim()).ok_or("the action of flowbits is not supported")?;
    let names: Vec<String> = names.split('|').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    if names.is_empty() {
        return Err("flowbits has no name");
    }
    Ok(Some(Bit { scope: Scope::Flow, action, names, expire_seconds: None }))
}

/// Parses the options `xbits` and `hostbits`, in the form `xbits:action,name,track owner[,expire
/// seconds]`.
pub fn xbits(value: &str) -> Result<Bit, &'static str> {
    let mut words = value.split(',').map(str::trim);
    let action = words.next().and_then(BitAction::parse).ok_or("the action of xbits is not supported")?;
    let name = words.next().filter(|name| !name.is_empty()).ok_or("xbits has no name")?;
    let (mut scope, mut expire_seconds) = (None, None);
    for word in words {
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["track", owner] => scope = Some(owner_scope(owner).ok_or("the owner of xbits is not supported")?),
            ["expire", seconds] => expire_seconds = Some(seconds.parse().map_err(|_| "the expiry is not valid")?),
            [owner] if owner_scope(owner).is_some() => scope = owner_scope(owner),
            [seconds] if seconds.parse::<u32>().is_ok() => expire_seconds = seconds.parse().ok(),
            _ => return Err("a word of xbits is not supported"),
        }
    }
    let scope = scope.ok_or("xbits does not name its owner")?;
    if expire_seconds == Some(0) {
        return Err("the expiry is not valid");
    }
    Ok(Bit { scope, action, names: vec![name.to_owned()], expire_seconds: expire_seconds.or(Some(30)) })
}

fn owner_scope(word: &str) -> Option<Scope> {
    Some(match word {
        "ip_src" | "src" => Scope::Source,
        "ip_dst" | "dst" => Scope::Destination,
        "ip_pair" | "both" => Scope::Pair,
        "tx" => Scope::Transaction,
        _ => return None,
    })
}

/// Test or change of an integer variable of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInt {
    /// Name of the variable.
    pub name: String,
    /// Operation on the variable.
    pub action: IntAction,
}

/// Operation on an integer variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntAction {
    /// Stores the operand in the variable.
    Set(Operand),
    /// Adds the operand to the variable.
    Add(Operand),
    /// Subtracts the operand from the variable, which does not fall below zero.
    Subtract(Operand),
    /// Compares the variable with a constant.
    Compare(NumberTest),
    /// Compares the variable with another variable. The operator is `=`, `!`, `<` or `>`.
    CompareWith(char, String),
    /// Matches if the variable exists.
    IsSet,
    /// Matches if the variable does not exist.
    IsNotSet,
}

/// Operand of `flowint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// Constant.
    Number(u32),
    /// Another integer variable of the flow.
    Name(String),
}

impl IntAction {
    /// Returns whether the operation is a test.
    pub fn is_test(&self) -> bool {
        !matches!(self, Self::Set(_) | Self::Add(_) | Self::Subtract(_))
    }
}

/// Parses `flowint:name,operator[,operand]`.
pub fn flowint(value: &str) -> Result<FlowInt, &'static str> {
    const BAD: &str = "the value of flowint is not valid";
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    let (name, operator, operand) = match words[..] {
        [name, operator] => (name, operator, None),
        [name, operator, operand] => (name, operator, Some(operand)),
        _ => return Err(BAD),
    };
    let operand = operand.map(|text| match text.parse() {
        Ok(number) => Operand::Number(number),
        Err(_) => Operand::Name(text.to_owned()),
    });
    let action = match (operator, operand) {
        ("isset", None) => IntAction::IsSet,
        ("isnotset" | "notset", None) => IntAction::IsNotSet,
        ("=", Some(operand)) => IntAction::Set(operand),
        ("+", Some(operand)) => IntAction::Add(operand),
        ("-", Some(operand)) => IntAction::Subtract(operand),
        (operator, Some(Operand::Number(number))) => {
            let operator = if operator == "==" { "=" } else { operator };
            IntAction::Compare(NumberTest::parse(&format!("{operator}{number}")).ok_or(BAD)?)
        }
        (operator, Some(Operand::Name(other))) => {
            let sign = operator.chars().next().filter(|c| "=!<>".contains(*c)).ok_or(BAD)?;
            IntAction::CompareWith(sign, other)
        }
        _ => return Err(BAD),
    };
    if name.is_empty() { Err(BAD) } else { Ok(FlowInt { name: name.to_owned(), action }) }
}

/// Limit for the alerts of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// Way in which the threshold limits alerts.
    pub kind: ThresholdKind,
    /// Object for which matches are counted.
    pub track: Track,
    /// Number of matches that the threshold counts.
    pub count: u32,
    /// Interval in seconds. The value is 0 for `backoff`.
    pub seconds: u32,
    /// Factor by which the number of matches grows before the next alert (option `backoff`).
    pub multiplier: u32,
}

/// Way in which a threshold limits alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThresholdKind {
    /// At most `count` alerts are reported in each interval.
    Limit,
    /// Each group of `count` matches in an interval causes one alert.
    Threshold,
    /// One alert in each interval, after `count` matches.
    Both,
    /// Every match after the first `count` matches causes an alert (option `detection_filter`).
    Filter,
    /// Matches number `count`, `count * multiplier`, and so on cause alerts.
    Backoff,
}

/// Object for which a threshold counts matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Track {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Pair of addresses.
    Both,
    /// The rule.
    Rule,
    /// The flow.
    Flow,
}

/// Parses the option `threshold` or, if `filter` is true, the option `detection_filter`.
pub fn threshold(value: &str, filter: bool) -> Result<Threshold, &'static str> {
    const BAD: &str = "a word of the threshold is not supported";
    let mut kind = filter.then_some(ThresholdKind::Filter);
    let (mut track, mut count, mut seconds, mut multiplier) = (None, None, None, None);
    for word in value.split(',').map(str::trim) {
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["type", name] => {
                kind = Some(match name {
                    "limit" => ThresholdKind::Limit,
                    "threshold" => ThresholdKind::Threshold,
                    "both" => ThresholdKind::Both,
                    "backoff" => ThresholdKind::Backoff,
                    _ => return Err(BAD),
                })
            }
            ["track", owner] => {
                track = Some(match owner {
                    "by_src" => Track::Source,
                    "by_dst" => Track::Destination,
                    "by_both" => Track::Both,
                    "by_rule" => Track::Rule,
                    "by_flow" => Track::Flow,
                    _ => return Err(BAD),
                })
            }
            ["count", number] => count = number.parse().ok(),
            ["seconds", number] => seconds = number.parse().ok(),
            ["multiplier", number] => multiplier = number.parse().ok(),
            _ => return Err(BAD),
        }
    }
    let (Some(kind), Some(track), Some(count)) = (kind, track, count) else {
        return Err("the threshold lacks a type, an owner or a count");
    };
    let seconds = match kind {
        ThresholdKind::Backoff => 0,
        _ => seconds.ok_or("the threshold lacks an interval")?,
    };
    if count == 0 {
        return Err("the count of the threshold is zero");
    }
    Ok(Threshold { kind, track, count, seconds, multiplier: multiplier.unwrap_or(10).max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_flow() {
        let test = FlowTest::parse("to_server, established").unwrap();
        assert_eq!((test.direction, test.established), (Some(Direction::ToServer), Some(true)));
        assert!(FlowTest::parse("to_moon").is_err());
    }

    #[test]
    fn parses_bits() {
        assert_eq!(flowbits("noalert").unwrap(), None);
        assert_eq!(flowbits("isset, a|b").unwrap().unwrap().names, ["a", "b"]);
        let bit = xbits("set, blocked_http, track ip_pair, expire 3600").unwrap();
        assert_eq!((bit.scope, bit.expire_seconds), (Scope::Pair, Some(3600)));
        assert!(xbits("set,a").is_err() && flowbits("set").is_err());
    }

    #[test]
    fn parses_numbers_and_thresholds() {
        assert_eq!(flowint("a,+,1").unwrap().action, IntAction::Add(Operand::Number(1)));
        assert_eq!(flowint("a,>,5").unwrap().action, IntAction::Compare(NumberTest::Greater(5)));
        assert_eq!(flowint("a,isset").unwrap().action, IntAction::IsSet);
        let limit = threshold("type limit, track by_src, count 1, seconds 60", false).unwrap();
        assert_eq!((limit.kind, limit.seconds), (ThresholdKind::Limit, 60));
        let backoff = threshold("type backoff, track by_flow, count 1, multiplier 10", false).unwrap();
        assert_eq!(backoff.kind, ThresholdKind::Backoff);
        assert!(threshold("type limit, count 1, seconds 60", false).is_err());
    }
}
