//! Formats outcomes as text. A file of expected outcomes has one line per frame.

use godwit_abi::{Outcome, VERDICT_DROP};
use godwit_declare::Contract;

use crate::checked::Answer;

/// Returns the line for a frame: its outcome, and `crc=SUM` if the kernel changed the frame. The
/// sum is the Ethernet CRC-32.
pub fn line(contract: &Contract, ports: &[String], frame: &[u8], answer: &Answer) -> String {
    let mut text = text(contract, ports, &answer.outcome);
    if answer.outcome.verdict != VERDICT_DROP && answer.frame != frame {
        text += &format!(" crc={:08x}", crc(&answer.frame));
    }
    text
}

/// Formats an outcome as `drop REASON` or `VERDICT`. A verdict is followed by `port=NAME` if it
/// chooses the port, and by `value=NUMBER` if the value is not 0.
pub fn text(contract: &Contract, ports: &[String], outcome: &Outcome) -> String {
    let unknown = |number: u8| format!("number {number}");
    if outcome.verdict == VERDICT_DROP {
        let reason = contract.drops.get(usize::from(outcome.reason));
        return format!("drop {}", reason.map_or_else(|| unknown(outcome.reason), |drop| drop.name.to_owned()));
    }
    let Some(verdict) = contract.verdicts.get(usize::from(outcome.verdict)) else {
        return unknown(outcome.verdict);
    };
    let mut text = verdict.name.to_owned();
    if verdict.chooses_port {
        let name = ports.get(usize::from(outcome.port)).map_or("flood", String::as_str);
        text += &format!(" port={name}");
    }
    if outcome.value != 0 {
        text += &format!(" value={}", outcome.value);
    }
    text
}

/// Returns the CRC-32 of a frame (IEEE 802.3, clause 3.2.9).
fn crc(frame: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xedb8_8320 };
    !frame.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check value from the catalogue of CRC algorithms (CRC-32/ISO-HDLC).
    #[test]
    fn the_sum_is_that_of_ethernet() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn outcomes_have_names() {
        let text = "/* godwit function mine\nsummary = \"A test.\"\n[verdicts]\npass = \"It passes.\"\n\
                    server = { text = \"To a port.\", port = true, value = \"the server\" }\n\
                    [drops]\nlisted = \"It is listed.\"\n*/\n";
        let declaration = godwit_declare::Declaration::parse(text).unwrap();
        let contract = godwit_declare::generate::contract(&declaration, Some(128));
        let ports = ["in".to_owned(), "out".to_owned()];
        let name =
            |verdict, reason, port, value| self::text(contract, &ports, &Outcome { verdict, reason, port, value });
        assert_eq!(name(0, 0, 1, 0), "pass");
        assert_eq!(name(0, 0, 0, 7), "pass value=7");
        assert_eq!(name(1, 0, 1, 3), "server port=out value=3");
        assert_eq!(name(255, 0, 0, 0), "drop listed");
        assert_eq!(name(255, 9, 0, 0), "drop number 9");
    }

    #[test]
    fn a_changed_frame_has_a_sum() {
        let declaration = godwit_declare::Declaration::parse(
            "/* godwit function mine\nsummary = \"A test.\"\n[verdicts]\npass = \"It passes.\"\n*/\n",
        );
        let contract = godwit_declare::generate::contract(&declaration.unwrap(), Some(128));
        let answer = Answer {
            outcome: Outcome::default(),
            moved: 0,
            frame: b"123456789".to_vec(),
            parameter: None,
            is_new: false,
        };
        assert_eq!(line(contract, &[], b"123456789", &answer), "pass");
        assert_eq!(line(contract, &[], b"12345678", &answer), "pass crc=cbf43926");
    }
}
