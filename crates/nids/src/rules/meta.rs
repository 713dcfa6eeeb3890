//! Options that identify and classify a rule.

use super::build::text_value;
use super::rule::Meta;
use std::collections::HashMap;

/// Rule classes, as in the file `classification.config`. Each class has a short name, a description
/// and a priority.
#[derive(Debug, Clone)]
pub struct Classes(HashMap<String, (String, u8)>);

/// Classes of Suricata's `classification.config`.
const CLASSES: &[(&str, &str, u8)] = &[
    ("not-suspicious", "Not Suspicious Traffic", 3),
    ("unknown", "Unknown Traffic", 3),
    ("bad-unknown", "Potentially Bad Traffic", 2),
    ("attempted-recon", "Attempted Information Leak", 2),
    ("successful-recon-limited", "Information Leak", 2),
    ("successful-recon-largescale", "Large Scale Information Leak", 2),
    ("attempted-dos", "Attempted Denial of Service", 2),
    ("successful-dos", "Denial of Service", 2),
    ("attempted-user", "Attempted User Privilege Gain", 1),
    ("unsuccessful-user", "Unsuccessful User Privilege Gain", 1),
    ("successful-user", "Successful User Privilege Gain", 1),
    ("attempted-admin", "Attempted Administrator Privilege Gain", 1),
    ("successful-admin", "Successful Administrator Privilege Gain", 1),
    ("rpc-portmap-decode", "Decode of an RPC Query", 2),
    ("shellcode-detect", "Executable code was detected", 1),
    ("string-detect", "A suspicious string was detected", 3),
    ("suspicious-filename-detect", "A suspicious filename was detected", 2),
    ("suspicious-login", "An attempted login using a suspicious username was detected", 2),
    ("system-call-detect", "A system call was detected", 2),
    ("tcp-connection", "A TCP connection was detected", 4),
    ("trojan-activity", "A Network Trojan was detected", 1),
    ("unusual-client-port-connection", "A client was using an unusual port", 2),
    ("network-scan", "Detection of a Network Scan", 3),
    ("denial-of-service", "Detection of a Denial of Service Attack", 2),
    ("non-standard-protocol", "Detection of a non-standard protocol or event", 2),
    ("protocol-command-decode", "Generic Protocol Command Decode", 3),
    ("web-application-activity", "access to a potentially vulnerable web application", 2),
    ("web-application-attack", "Web Application Attack", 1),
    ("misc-activity", "Misc activity", 3),
    ("misc-attack", "Misc Attack", 2),
    ("icmp-event", "Generic ICMP event", 3),
    ("inappropriate-content", "Inappropriate Content was Detected", 1),
    ("policy-violation", "Potential Corporate Privacy Violation", 1),
    ("default-login-attempt", "Attempt to login by a default username and password", 2),
    ("targeted-activity", "Targeted Malicious Activity was Detected", 1),
    ("exploit-kit", "Exploit Kit Activity Detected", 1),
    ("external-ip-check", "Device Retrieving External IP Address Detected", 2),
    ("domain-c2", "Domain Observed Used for C2 Detected", 1),
    ("pup-activity", "Possibly Unwanted Program Detected", 2),
    ("credential-theft", "Successful Credential Theft Detected", 1),
    ("social-engineering", "Possible Social Engineering Attempted", 2),
    ("coin-mining", "Crypto Currency Mining Activity Detected", 2),
    ("command-and-control", "Malware Command and Control Activity Detected", 1),
];

impl Default for Classes {
    fn default() -> Self {
        Self(
            CLASSES
                .iter()
                .map(|(name, text, priority)| ((*name).to_owned(), ((*text).to_owned(), *priority)))
                .collect(),
        )
    }
}

impl Classes {
    /// Returns the description of a class.
    pub fn description(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|class| class.0.as_str())
    }

    /// Gives a rule the priority of its class, unless the rule states a priority.
    pub(super) fn apply(&self, meta: &mut Meta) {
        if meta.priority == 0 {
            meta.priority = meta.class.as_ref().and_then(|name| self.0.get(name)).map_or(3, |class| class.1);
        }
    }
}

/// Returns the identification of a rule without options.
pub(super) fn empty() -> Meta {
    Meta {
        sid: 0,
        gid: 1,
        rev: 0,
        message: String::new(),
        class: None,
        priority: 0,
        references: Vec::new(),
        metadata: Vec::new(),
        target: None,
    }
}

/// Adds an option that describes the rule, such as `sid`. Returns `None` for any other option.
pub(super) fn option(meta: &mut Meta, name: &str, value: Option<&str>) -> Option<Result<(), &'static str>> {
    let number = || value.and_then(|text| super::text::unquote(text).1.trim().parse::<u32>().ok());
    const BAD: &str = "the value is not a number";
    let result = match name {
        "sid" => number().filter(|sid| *sid > 0).map(|sid| meta.sid = sid).ok_or(BAD),
        "gid" => number().map(|gid| meta.gid = gid).ok_or(BAD),
        "rev" => number().map(|rev| meta.rev = rev).ok_or(BAD),
        "priority" => {
            number().and_then(|p| u8::try_from(p).ok()).filter(|p| *p > 0).map(|p| meta.priority = p).ok_or(BAD)
        }
        "msg" => text_value(value).map(|text| meta.message = unescape(&text)),
        "classtype" => text_value(value).map(|text| meta.class = Some(text)),
        "reference" => text_value(value).map(|text| meta.references.push(text)),
        "target" => text_value(value).map(|text| meta.target = Some(text)),
        "metadata" => text_value(value).map(|text| {
            for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                let (key, value) = pair.split_once(char::is_whitespace).unwrap_or((pair, ""));
                meta.metadata.push((key.to_owned(), value.trim().to_owned()));
            }
        }),
        _ => return None,
    };
    Some(result)
}

/// Decodes escape sequences, and converts the Latin-1 text of a rule file to UTF-8.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars().map(super::content::byte_of);
    while let Some(byte) = chars.next() {
        bytes.push(if byte == b'\\' { chars.next().unwrap_or(byte) } else { byte });
    }
    String::from_utf8(bytes).unwrap_or_else(|error| error.into_bytes().iter().map(|byte| char::from(*byte)).collect())
}
