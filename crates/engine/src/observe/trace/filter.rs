//! Request for a packet trace. It contains a packet filter and the number of packets to trace.

use godwit_chain::{Classifier, Rule, names};
use godwit_wire::Parsed;
use serde_json::{Map, Value};

use super::PACKETS_MAX;
use crate::config::classes::{Lists, RULES_MAX, Term, TermError, read_ports, read_prefix, read_protocol};
use crate::error::Error;

/// Default number of packets in a trace.
const COUNT: u64 = 10;

/// Validated request of a trace.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) filter: Filter,
    /// Maximum number of packets.
    pub(super) count: u64,
    /// Whether the trace contains only dropped packets.
    pub(super) dropped: bool,
    /// Whether the trace contains the bytes of the frames.
    pub(super) frames: bool,
}

/// Packet filter. An absent condition matches all packets.
#[derive(Debug)]
pub(super) struct Filter {
    ports: Option<Vec<u8>>,
    classes: Option<Vec<String>>,
    /// Classifier for addresses, protocol and ports. It assigns class 1 to packets that match the
    /// filter.
    rules: Classifier,
}

impl Request {
    /// Parses and checks a request. The index of a name in `ports` or `classes` is its port number
    /// or class number.
    pub(super) fn read(request: &Value, ports: &[String], classes: &[String]) -> Result<Self, Error> {
        let keys = object(request, "a trace request")?;
        let mut read =
            Self { filter: Filter::read(&Map::new(), ports, classes)?, count: COUNT, dropped: false, frames: false };
        for (key, value) in keys {
            match key.as_str() {
                // The control socket handles the keys `command` and `action`.
                "command" | "action" => {}
                "count" => {
                    let count = value.as_u64().filter(|count| (1..=PACKETS_MAX as u64).contains(count));
                    read.count = count.ok_or_else(|| {
                        Error::request(format_args!("`count` must be a number from 1 to {PACKETS_MAX}"))
                    })?;
                }
                "dropped" => read.dropped = flag(key, value)?,
                "frames" => read.frames = flag(key, value)?,
                "filter" => read.filter = Filter::read(object(value, "`filter`")?, ports, classes)?,
                _ => return Err(Error::Request(names::unknown("key", key, &["count", "dropped", "frames", "filter"]))),
            }
        }
        Ok(read)
    }
}

impl Filter {
    fn read(keys: &Map<String, Value>, ports: &[String], classes: &[String]) -> Result<Self, Error> {
        const KEYS: [&str; 7] =
            ["port", "class", "protocol", "source", "destination", "source_ports", "destination_ports"];
        if let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(Error::Request(names::unknown("filter key", key, &KEYS)));
        }
        let named = |key: &str, known: &[String]| {
            let Some(terms) = terms(keys, key)? else { return Ok(None) };
            let index = |term: &Term| {
                let Term::Text(name) = term else {
                    return Err(Error::request(format_args!("`{key}` must be a name or a list of names")));
                };
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let position = known.iter().position(|known| known == name);
                position.ok_or_else(|| Error::Request(names::unknown(key, name, &known)))
            };
            terms.iter().map(index).collect::<Result<Vec<usize>, Error>>().map(Some)
        };
        let (ports, chosen) = (named("port", ports)?, named("class", classes)?);
        let lists = Lists {
            protocols: each(keys, "protocol", read_protocol)?,
            sources: each(keys, "source", read_prefix)?,
            destinations: each(keys, "destination", read_prefix)?,
            source_ports: each(keys, "source_ports", read_ports)?,
            destination_ports: each(keys, "destination_ports", read_ports)?,
        };
        if let Some((_, message)) = lists.contradiction("filter") {
            return Err(Error::Request(message));
        }
        if lists.rules().is_none_or(|rules| rules > RULES_MAX) {
            return Err(Error::request(format_args!(
                "the combinations of the filter's lists exceed {RULES_MAX} rules"
            )));
        }
        let mut rules: Vec<Rule> = Vec::new();
        if KEYS[2..].iter().any(|key| keys.contains_key(*key)) {
            lists.append(1, &mut rules);
        }
        Ok(Self {
            ports: ports.map(|ports| ports.into_iter().map(|port| port as u8).collect()),
            classes: chosen.map(|chosen| chosen.into_iter().map(|class| classes[class].clone()).collect()),
            rules: Classifier::new(&rules),
        })
    }

    pub(super) fn fits_port(&self, port: u8) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }

    /// Returns whether a packet matches the filter. The caller has checked the packet's ingress
    /// port.
    pub(super) fn fits(&self, parsed: &Parsed, class: &str) -> bool {
        let fits_rules = self.rules.is_trivial() || self.rules.classify(parsed) == 1;
        fits_rules && self.classes.as_ref().is_none_or(|classes| classes.iter().any(|known| known == class))
    }
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, Error> {
    value.as_object().ok_or_else(|| Error::request(format_args!("{what} must be a JSON object")))
}

fn flag(key: &str, value: &Value) -> Result<bool, Error> {
    value.as_bool().ok_or_else(|| Error::request(format_args!("`{key}` must be true or false")))
}

/// Returns the values of a key, which has one value or a list. Returns `None` if the key is absent.
fn terms(keys: &Map<String, Value>, key: &str) -> Result<Option<Vec<Term>>, Error> {
    let term = |value: &Value| match value {
        Value::String(text) => Ok(Term::Text(text.clone())),
        Value::Number(number) if number.is_i64() => Ok(Term::Number(number.as_i64().unwrap_or_default())),
        _ => Err(Error::request(format_args!("`{key}` must be a number, a string, or a list of them"))),
    };
    match keys.get(key) {
        None => Ok(None),
        Some(Value::Array(values)) if values.is_empty() => {
            Err(Error::request(format_args!("`{key}`: an empty list matches no packet")))
        }
        Some(Value::Array(values)) => values.iter().map(term).collect::<Result<_, _>>().map(Some),
        Some(value) => Ok(Some(vec![term(value)?])),
    }
}

/// Returns the parsed values of a key. If the key is absent, the list contains only `None`.
fn each<T>(
    keys: &Map<String, Value>,
    key: &str,
    read: impl Fn(&Term) -> Result<T, TermError>,
) -> Result<Vec<Option<T>>, Error> {
    let read = |term: &Term| read(term).map(Some).map_err(|error| Error::request(format_args!("`{key}`: {error}")));
    terms(keys, key)?.map_or_else(|| Ok(vec![None]), |terms| terms.iter().map(read).collect())
}

#[cfg(test)]
mod tests {
    use godwit_test_support::FrameBuilder;
    use serde_json::json;

    use super::*;

    fn read(request: &Value) -> Result<Request, Error> {
        Request::read(request, &["lan".to_owned(), "wan".to_owned()], &["other".to_owned(), "dns".to_owned()])
    }

    #[test]
    fn a_packet_must_meet_every_condition_of_a_filter() {
        let frame = FrameBuilder::new().ipv4([192, 0, 2, 1], [10, 0, 0, 1]).udp([1000, 53], b"query");
        let parsed = godwit_wire::parse(&frame);
        for (filter, port, class, fits) in [
            (json!({}), 0, "other", true),
            (json!({ "port": "wan" }), 0, "other", false),
            (json!({ "port": ["lan", "wan"], "class": "dns" }), 1, "dns", true),
            (json!({ "class": "dns" }), 1, "other", false),
            (json!({ "destination": "10.0.0.0/8", "protocol": "udp", "destination_ports": "50-60" }), 0, "other", true),
            (json!({ "destination": ["11.0.0.0/8", "10.0.0.1"], "source": "192.0.2.0/24" }), 0, "other", true),
            (json!({ "destination": "10.0.0.0/8", "protocol": "tcp" }), 0, "other", false),
        ] {
            let filter_of = read(&json!({ "filter": filter })).unwrap().filter;
            assert_eq!(filter_of.fits_port(port) && filter_of.fits(&parsed, class), fits, "{filter}");
        }
    }

    #[test]
    fn invalid_requests_are_refused_with_the_valid_values() {
        for (request, part) in [
            (json!([]), "must be a JSON object"),
            (json!({ "count": 0 }), "from 1 to"),
            (json!({ "dropped": 1 }), "true or false"),
            (json!({ "cuont": 1 }), "count"),
            (json!({ "filter": { "port": "dmz" } }), "wan"),
            (json!({ "filter": { "class": [] } }), "matches no packet"),
            (json!({ "filter": { "protocol": "icmp", "destination_ports": 53 } }), "protocols with ports"),
        ] {
            let error = read(&request).unwrap_err().to_string();
            assert!(error.contains(part), "{request}: {error}");
        }
        let request = read(&json!({ "command": "trace", "count": 3, "frames": true })).unwrap();
        assert_eq!((request.count, request.dropped, request.frames), (3, false, true));
    }
}
