//! `#pragma gopt serial`: lookups are interleaved up to the pragma. The statements after it run in
//! the order of the plain loop.
//!
//! Each lookup has a ticket, its number in the order of the loop. At the pragma, the lookup saves
//! its state in a ring. If its ticket is the next one, it runs its last statements, and then those
//! of all waiting lookups that follow it. Otherwise, another lookup continues.

use std::collections::BTreeMap;

use super::{Context, Emitter, Moved, live};
use crate::batch::Loop;
use crate::error::{Pass, refuse};
use crate::syntax::ast::{Stmt, StmtKind};
use crate::syntax::walk::{self, Node};

/// Maximum distance between the oldest unfinished lookup and the newest one, as C code.
pub(super) const RING: &str = "(4 * (GOPT_GROUP_MAX))";
/// Number of the switch at the pragma.
pub(super) const SWITCH: usize = 0;
/// Variable with the ticket of a lookup.
const TICKET: &str = "gopt_ticket";

/// Part of the body of a batch loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Body without the pragma.
    None,
    /// Statements before the pragma.
    Interleaved,
    /// Statements after the pragma.
    Serial,
}

impl Part {
    /// Returns the part at the beginning of a loop.
    pub(super) fn of(site: &Loop<'_>) -> Self {
        let is_serial = |one: &Stmt| matches!(&one.kind, StmtKind::Pragma(words) if words == "serial");
        if statements(site.body).iter().any(is_serial) { Self::Interleaved } else { Self::None }
    }
}

fn statements(body: &Stmt) -> &[Stmt] {
    match &body.kind {
        StmtKind::Block(all) => all,
        _ => std::slice::from_ref(body),
    }
}

impl<'u> Emitter<'u> {
    /// Adds a ticket to each lookup. Returns the statements that set it.
    pub(super) fn ticket(&mut self) -> Vec<String> {
        if self.serial == Part::None {
            return Vec::new();
        }
        let declaration = format!("unsigned long {TICKET}");
        self.moved.push(Moved { name: TICKET.to_owned(), declaration, recompute: None });
        vec![format!("{TICKET} = gopt_started++;")]
    }

    /// Writes the pragma, at which a lookup waits until all earlier lookups have ended.
    pub(super) fn serial(&mut self, node: &'u Stmt, context: &Context<'u>) -> Pass<String> {
        let at = node.span.first;
        if self.serial != Part::Interleaved || context.copy > 0 || context.blocks.len() != 2 {
            return refuse(
                at,
                "#pragma gopt serial belongs into the body of the batch loop, and not into a block in it",
            );
        }
        self.serial = Part::Serial;
        let after = statements(self.site.body).iter().filter(|one| one.span.first > at);
        for one in after {
            if self.reach.count_in(context.function, one.span) > 0 {
                const REASON: &str = "an access with a marker after #pragma gopt serial, where no lookups are interleaved: \
                                      move it before the pragma";
                return refuse(one.span.first, REASON);
            }
        }
        self.refuse_crossing(at)?;
        Ok(format!("gopt_slot = &gopt_ring[{TICKET} % {RING}]; {}", live::switch(SWITCH)))
    }

    /// Refuses jumps over the pragma at a token.
    fn refuse_crossing(&self, at: usize) -> Pass<()> {
        let mut jumps = Vec::new();
        let mut labels = BTreeMap::new();
        for one in statements(self.site.body) {
            let is_after = one.span.first > at;
            walk::statement(self.unit, one, &mut |node| {
                match node {
                    Node::Stmt(Stmt { kind: StmtKind::Goto(label), span }) => jumps.push((label, span.first, is_after)),
                    Node::Stmt(Stmt { kind: StmtKind::Label(label, _), .. }) => _ = labels.insert(label, is_after),
                    _ => {}
                }
                true
            });
        }
        match jumps.into_iter().find(|(label, _, is_after)| labels.get(label).is_some_and(|other| other != is_after)) {
            Some((label, at, _)) => refuse(at, format!("goto {label} jumps over #pragma gopt serial: remove the jump")),
            None => Ok(()),
        }
    }

    /// Returns the jump to the end of a lookup.
    pub(super) fn end_of_lookup(&self) -> String {
        let labels = &self.labels_begin;
        match self.serial {
            Part::None => format!("goto {labels}done;"),
            Part::Interleaved => format!("{{ gopt_skipped = {TICKET}; goto {labels}skip; }}"),
            Part::Serial => format!("goto {labels}finish;"),
        }
    }
}

/// Returns C code for the switch at the pragma. `save` and `load` contain the saved variables.
pub(super) fn switch(save: &str, load: &str, labels: &str) -> String {
    format!(
        "{save}gopt_ready[{TICKET} % {RING}] = 1; if ({TICKET} != gopt_serial) {{ goto {labels}done; }}\n\
         {labels}at_{SWITCH}:;\n{{ const struct gopt_saved_{SWITCH} *gopt_now = &gopt_ring[gopt_serial % {RING}]; \
         (void)gopt_now;{load} }}"
    )
}

/// Returns C code from the end of the loop body to the label at the end of a lookup.
pub(super) fn end(body: &str, labels: &str) -> String {
    let skips = body.contains(&format!("goto {labels}skip;"));
    let label = if skips || body.contains(&format!("goto {labels}finish;")) {
        format!("{labels}finish:;\n")
    } else {
        String::new()
    };
    let mut text = format!("{label}gopt_ready[gopt_serial % {RING}] = 0;\ngopt_serial++;\n");
    if skips {
        text += &format!("if (gopt_ready[gopt_serial % {RING}] == 2) {{\ngoto {labels}finish;\n}}\n");
    }
    text += &format!("if (gopt_ready[gopt_serial % {RING}] == 1) {{\ngoto {labels}at_{SWITCH};\n}}\n");
    if skips {
        text += &format!(
            "goto {labels}done;\n{labels}skip:;\ngopt_ready[gopt_skipped % {RING}] = 2;\n\
             if (gopt_skipped == gopt_serial) {{\ngoto {labels}finish;\n}}\n"
        );
    }
    // The ring must have room for the next lookup.
    text + &format!("{labels}done:;\nif (gopt_started - gopt_serial >= {RING}) {{\ngopt_begins++;\nGOPT_NEXT;\n}}\n")
}

/// Returns the ring declarations, apart from the struct of its elements. They depend on whether
/// lookups end before the pragma.
pub(super) fn declarations(body: &str, labels: &str) -> String {
    let skipped = if body.contains(&format!("goto {labels}skip;")) { ", gopt_skipped = 0" } else { "" };
    format!(
        "unsigned char gopt_ready[{RING}] = GOPT_ZERO; /* 1: waits at the pragma, 2: ended before it */\n\
         unsigned long gopt_started = 0, gopt_serial = 0{skipped}; /* tickets */\n"
    )
}
