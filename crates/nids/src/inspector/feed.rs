//! Passes the data of TCP streams to the protocol parsers.

use super::core::Core;
use crate::app::Direction;
use crate::flow::Flow;
use crate::proto::{Identified, identify};
use crate::stream::State;

impl Core {
    /// Passes stream data to the protocol parser. `end` marks the last data of this direction.
    /// Returns whether client and server of the flow were exchanged.
    pub(super) fn feed(&mut self, flow: &mut Flow, direction: Direction, end: bool) -> bool {
        let mut direction = direction;
        let mut swapped = false;
        loop {
            let Some(session) = flow.session.as_deref_mut() else { return swapped };
            let closed = session.state == State::Closed;
            let immediate = session.is_immediate(&self.settings.stream) || end;
            let side = session.side_mut(direction);
            let acked = side.acked();
            let data = side.data.from(side.app_progress);
            let limit =
                if immediate { data.len() } else { (acked.saturating_sub(side.app_progress) as usize).min(data.len()) };
            let data = &data[..limit];
            if data.is_empty() {
                if self.skip_gap(flow, direction, end) {
                    continue;
                }
                if end || closed {
                    self.end_data(flow, direction);
                }
                break;
            }
            if flow.app.failed || flow.app.stopped {
                side.app_progress += data.len() as u64;
                continue;
            }
            if flow.app.app.is_none() {
                match identify(direction, data, flow.key.client_port, flow.key.server_port) {
                    Identified::App { app, reversed } => {
                        let other_first = session_is_midstream(flow);
                        if reversed && other_first {
                            flow.swap();
                            if let Some(session) = flow.session.as_deref_mut() {
                                session.swap();
                            }
                            direction = direction.opposite();
                            swapped = !swapped;
                        } else if reversed {
                            flow.app.failed = true;
                            continue;
                        }
                        self.set_app(flow, app);
                        flow.app.fresh[direction as usize] = true;
                        continue;
                    }
                    Identified::More if end => flow.app.failed = true,
                    Identified::More => break,
                    Identified::Unknown => {
                        let Some(session) = flow.session.as_deref_mut() else { break };
                        let side = session.side_mut(direction);
                        side.unidentified = true;
                        let both = session.sides.iter().all(|side| side.unidentified) || side_is_long(flow, direction);
                        if !both {
                            break;
                        }
                        flow.app.failed = true;
                    }
                }
                continue;
            }
            let Some(session) = flow.session.as_deref_mut() else { break };
            let side = session.side_mut(direction);
            if side.app_progress == 0 {
                flow.app.fresh[direction as usize] = true;
            }
            let data = side.data.from(side.app_progress);
            flow.app.data(direction, &data[..limit], false);
            side.app_progress += limit as u64;
            self.take_triggers(flow);
        }
        swapped
    }

    /// Skips missing stream bytes that can no longer arrive. Returns whether data follows the gap.
    fn skip_gap(&mut self, flow: &mut Flow, direction: Direction, end: bool) -> bool {
        let Some(session) = flow.session.as_deref_mut() else { return false };
        let side = session.side_mut(direction);
        let acked = side.acked();
        let Some(next) = side.data.next_after(side.app_progress) else { return false };
        if next <= side.app_progress || !(end || acked > side.app_progress) {
            return false;
        }
        let bytes = (next - side.app_progress) as usize;
        side.app_progress = next;
        side.gap = true;
        self.counters.gaps += u64::from(!end);
        if flow.app.app.is_none() {
            flow.app.failed = true;
        }
        flow.app.gap(direction, bytes);
        true
    }

    /// Tells the protocol parser that no more data follows.
    fn end_data(&mut self, flow: &mut Flow, direction: Direction) {
        if flow.app.ended[direction as usize] {
            return;
        }
        flow.app.data(direction, &[], true);
        flow.app.ended[direction as usize] = true;
        self.take_triggers(flow);
    }

    /// Requests an immediate inspection of the raw stream when a transaction is complete.
    fn take_triggers(&mut self, flow: &mut Flow) {
        for direction in Direction::BOTH {
            let Some(parser) = flow.app.parser.as_mut() else { return };
            if parser.take_trigger(direction)
                && let Some(session) = flow.session.as_deref_mut()
            {
                session.side_mut(direction).trigger_raw = true;
            }
        }
    }
}

fn session_is_midstream(flow: &Flow) -> bool {
    flow.session.as_ref().is_some_and(|session| session.midstream)
}

/// Returns whether more than 8 KiB have arrived in one direction. An unknown protocol then stays
/// unknown.
fn side_is_long(flow: &Flow, direction: Direction) -> bool {
    flow.session.as_ref().is_some_and(|session| session.side(direction).data.end() > 8192)
}
