//! The ring of look-ups around a body: how they begin, take turns, and leave.

use crate::batch::Batch;
use crate::unit::Unit;

/// What the text that is made needs, once per file.
pub(crate) const PROLOGUE: &str = "\
/* Made by gopt: look-ups of a batch take turns while what they fetch is under way. */
#ifndef GOPT_GROUP
#define GOPT_GROUP 32 /* look-ups under way at a time; 1 switches the whole off */
#endif
#ifndef GOPT_GROUP_MAX
#define GOPT_GROUP_MAX 64 /* room for as many */
#endif
#ifndef GOPT_PREFETCH
#define GOPT_PREFETCH(address) __builtin_prefetch(address)
#endif
#ifndef GOPT_SWITCH
/* Saves where this look-up goes on, and goes on with the next one. */
#define GOPT_SWITCH(label)                \\
    do {                                  \\
        gopt_s->gopt_label = &&label;     \\
        gopt_previous = gopt_s;           \\
        gopt_s = gopt_s->gopt_next;       \\
        goto *gopt_s->gopt_label;         \\
    label:;                               \\
    } while (0)
#endif
";

/// The text in the place of a loop.
pub(super) fn ring(unit: &Unit<'_>, batch: &Batch<'_>, slots: &[String], index: &str, body: &str) -> String {
    let header = &batch.header;
    let original = if unit.source.foreach.contains(&batch.node.start_byte()) {
        format!("for ({}; {}; {}) {}", header.first, header.condition, header.step, unit.text(batch.body))
    } else {
        unit.text(batch.node).to_owned()
    };
    let members: String = slots.iter().map(|slot| format!("                {slot}\n")).collect();
    let done = if body.contains("goto gopt_done;") { "            gopt_done:;\n" } else { "" };
    let counter = &batch.index;
    let first = if header.first.is_empty() { String::new() } else { format!("            {};\n", header.first.trim()) };
    format!(
        "{{
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {{
            {original}
        }} else {{
            struct gopt_state {{
                struct gopt_state *gopt_next;
                void *gopt_label;
{members}            }} gopt_states[GOPT_GROUP_MAX];
            struct gopt_state *gopt_s = gopt_states;
            struct gopt_state *gopt_previous = &gopt_states[gopt_group - 1];
            for (unsigned gopt_i = 0; gopt_i < gopt_group; gopt_i++) {{
                gopt_states[gopt_i].gopt_next = &gopt_states[gopt_i + 1 < gopt_group ? gopt_i + 1 : 0];
                gopt_states[gopt_i].gopt_label = &&gopt_begin;
            }}
{first}        gopt_begin:
            while ({condition}) {{
                gopt_s->{index} = {counter};
                {step};
                {body}
{done}            }}
            /* None is left to begin: one look-up fewer in the ring. */
            if (gopt_s != gopt_previous) {{
                gopt_previous->gopt_next = gopt_s->gopt_next;
                gopt_s = gopt_s->gopt_next;
                goto *gopt_s->gopt_label;
            }}
        }}
    }}",
        condition = header.condition,
        step = header.step,
    )
}
