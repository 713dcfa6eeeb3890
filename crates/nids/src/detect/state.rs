//! Tests a flow's named bits and integer variables, and changes them after a match.

use super::compile::{BitOp, Compiled, IntOp};
use super::detector::Detector;
use super::input::Input;
use crate::flow::Flow;
use crate::rules::rule::Capture;
use crate::rules::state::{BitAction, IntAction, Operand, Scope};

/// Named bits of the transaction under inspection.
pub(super) type TransactionBits = Vec<u32>;

impl Detector {
    /// Returns whether the rule's tests of named bits and integer variables succeed.
    pub(super) fn state_matches(&self, compiled: &Compiled, input: &Input<'_, '_>, bits: &TransactionBits) -> bool {
        compiled.bit_tests.iter().all(|op| {
            let set = match op.scope {
                Scope::Flow => {
                    input.flow.as_deref().is_some_and(|flow| op.names.iter().any(|name| flow.has_bit(*name)))
                }
                Scope::Transaction => op.names.iter().any(|name| bits.contains(name)),
                _ => {
                    let packet = input.packet;
                    self.thresholds.has_bit(op, packet.source, packet.destination, packet.time)
                }
            };
            set == (op.action == BitAction::IsSet)
        }) && compiled.int_tests.iter().all(|op| input.flow.as_deref().is_some_and(|flow| int_matches(op, flow)))
    }

    /// Changes named bits and integer variables after a match, as the rule requests.
    pub(super) fn apply_state(&mut self, rule: u32, input: &mut Input<'_, '_>, bits: &mut TransactionBits) {
        let engine = self.engine.clone();
        let compiled = &engine.rules[rule as usize];
        for op in &compiled.bit_changes {
            match op.scope {
                Scope::Flow => {
                    if let Some(flow) = input.flow.as_deref_mut() {
                        change_flow(op, flow);
                    }
                }
                Scope::Transaction => change_transaction(op, bits),
                _ => {
                    let packet = input.packet;
                    self.thresholds.change_bits(op, packet.source, packet.destination, packet.time);
                }
            }
        }
        if let Some(flow) = input.flow.as_deref_mut() {
            for op in &compiled.int_changes {
                change_int(op, flow);
            }
            for (capture, bytes) in self.scratch.captures.drain(..) {
                if let Capture::Flow(name) = capture {
                    flow.capture(&name, bytes);
                }
            }
        }
        self.scratch.captures.clear();
    }
}

fn change_flow(op: &BitOp, flow: &mut Flow) {
    for name in &op.names {
        let on = match op.action {
            BitAction::Set => true,
            BitAction::Toggle => !flow.has_bit(*name),
            _ => false,
        };
        flow.set_bit(*name, on);
    }
}

fn change_transaction(op: &BitOp, bits: &mut TransactionBits) {
    for name in &op.names {
        let known = bits.iter().position(|bit| bit == name);
        match (op.action, known) {
            (BitAction::Set | BitAction::Toggle, None) => bits.push(*name),
            (BitAction::Unset | BitAction::Toggle, Some(at)) => {
                bits.swap_remove(at);
            }
            _ => {}
        }
    }
}

fn operand(op: &IntOp, operand: &Operand, flow: &Flow) -> u32 {
    match operand {
        Operand::Number(number) => *number,
        Operand::Name(_) => op.other.and_then(|name| flow.int(name)).unwrap_or(0),
    }
}

fn change_int(op: &IntOp, flow: &mut Flow) {
    let current = flow.int(op.name).unwrap_or(0);
    let value = match &op.action {
        IntAction::Set(value) => operand(op, value, flow),
        IntAction::Add(value) => current.saturating_add(operand(op, value, flow)),
        IntAction::Subtract(value) => current.saturating_sub(operand(op, value, flow)),
        _ => return,
    };
    flow.set_int(op.name, value);
}

fn int_matches(op: &IntOp, flow: &Flow) -> bool {
    let current = flow.int(op.name);
    match &op.action {
        IntAction::IsSet => current.is_some(),
        IntAction::IsNotSet => current.is_none(),
        IntAction::Compare(test) => current.is_some_and(|value| test.matches(u64::from(value))),
        IntAction::CompareWith(sign, _) => {
            let (Some(left), Some(right)) = (current, op.other.and_then(|name| flow.int(name))) else { return false };
            match sign {
                '=' => left == right,
                '!' => left != right,
                '<' => left < right,
                _ => left > right,
            }
        }
        _ => true,
    }
}
