//! Sorts the rules that matched a packet, applies thresholds, and decides the verdict.

use super::compile::Engine;
use super::input::Input;
use super::thresholds::Thresholds;
use crate::flow::FlowAction;
use crate::rules::rule::Action;

/// Maximum number of alerts per packet (Suricata's default for `packet-alert-max`).
const ALERTS_MAX: usize = 15;

/// Match of a rule with a packet or a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alert {
    /// Number of the rule.
    pub rule: u32,
    /// Transaction that the rule inspects, if any.
    pub transaction: Option<u64>,
    /// Whether the rule matched reassembled data instead of a single packet.
    pub stream: bool,
    /// Whether the rule's action also applies to all later packets of the flow.
    pub whole_flow: bool,
}

/// Verdict for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// Forward the packet.
    #[default]
    Accept,
    /// Drop the packet because the rule with this number matched.
    Drop(u32),
    /// Drop the packet because an earlier rule dropped its flow.
    DropFlow,
}

/// Alerts of a packet, and its verdict.
#[derive(Debug, Default)]
pub struct Result {
    /// Alerts to report.
    pub alerts: Vec<Alert>,
    /// Verdict for the packet.
    pub verdict: Verdict,
    /// Number of alerts that a threshold suppressed.
    pub suppressed: u32,
    /// Number of alerts that were discarded because a packet had too many.
    pub overflow: u32,
}

/// Sorts matches, applies thresholds, and decides the verdict.
pub(super) fn finish(
    matches: &mut Vec<Alert>,
    engine: &Engine,
    input: &mut Input<'_, '_>,
    thresholds: &mut Thresholds,
) -> Result {
    let mut result = Result::default();
    matches.sort_by_key(|alert| (alert.rule, alert.transaction));
    matches.dedup_by_key(|alert| (alert.rule, alert.transaction));
    for alert in matches.drain(..) {
        let rule = &engine.rules[alert.rule as usize].rule;
        let key = (rule.meta.gid, rule.meta.sid);
        let passes = rule.threshold.is_none_or(|threshold| thresholds.pass(key, &threshold, input));
        if !passes {
            result.suppressed += 1;
            if rule.action == Action::Drop {
                result.verdict = Verdict::Drop(alert.rule);
            }
            continue;
        }
        if let Some(flow) = input.flow.as_deref_mut() {
            if alert.whole_flow {
                match rule.action {
                    Action::Pass if flow.action == FlowAction::None => flow.action = FlowAction::Pass,
                    Action::Drop | Action::Reject => flow.action = FlowAction::Drop,
                    _ => {}
                }
            }
            flow.bypass |= rule.bypass;
        }
        if matches!(rule.action, Action::Drop | Action::Reject) && result.verdict == Verdict::Accept {
            result.verdict = Verdict::Drop(alert.rule);
        }
        let reported = rule.action != Action::Pass || rule.alert;
        if reported && result.alerts.len() < ALERTS_MAX {
            result.alerts.push(alert);
        } else if reported {
            result.overflow += 1;
        }
        if rule.action == Action::Pass {
            break;
        }
    }
    result
}
