//! The loop around a body: how look-ups begin, wait, and go on.
//!
//! Those that wait at one place stand in one queue, and a turn takes all of a queue, one after the other: the processor
//! foresees where each goes on, for it is where the one before went on. A look-up that ends is replaced at once.

use std::fmt::Write as _;

use crate::batch::Batch;
use crate::unit::Unit;

use super::Moved;
use super::live::Resolved;

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
";

/// The text in the place of a loop.
pub(super) fn turns(
    unit: &Unit<'_>,
    batch: &Batch<'_>,
    moved: &[Moved],
    members: &[String],
    index: &str,
    body: &Resolved,
    labels: &str,
) -> String {
    let header = &batch.header;
    let original = if unit.source.foreach.contains(&batch.node.start_byte()) {
        format!("for ({}; {}; {}) {}", header.first, header.condition, header.step, unit.text(batch.body))
    } else {
        unit.text(batch.node).to_owned()
    };
    let count = body.saved.len();
    let done = if body.text.contains(&format!("goto {labels}done;")) {
        format!("            {labels}done:;\n")
    } else {
        String::new()
    };
    let first = if header.first.is_empty() { String::new() } else { format!("            {};\n", header.first.trim()) };
    // With one queue, where to go on is no question.
    let (place, place_declared) = if count == 1 {
        (format!("{labels}at_1"), "")
    } else {
        ("*gopt_label".to_owned(), "            void *gopt_label = 0;\n            unsigned gopt_queue = 0;\n")
    };
    format!(
        "{{
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {{
            {original}
        }} else {{
{queues}{variables}            unsigned gopt_begins = gopt_group - 1; /* look-ups fewer than there may be */
            const void *gopt_first = 0, *gopt_end = 0; /* of the queue whose turn it is */
{place_declared}{first}#define GOPT_NEXT do {{ if (gopt_first != gopt_end) {{ goto {place}; }} goto {labels}turn; }} while (0)
        {labels}begin:
            while ({condition}) {{
                {index} = {counter};
                {step};
                {text}
{done}            }}
            GOPT_NEXT;
#undef GOPT_NEXT
        {labels}turn:
            if (gopt_begins != 0) {{
{taken}                gopt_begins--;
                goto {labels}begin;
            }}
{turns}        }}
    }}",
        queues = queues(moved, members, body),
        variables = moved
            .iter()
            .map(|one| format!("            {} = {{0}};\n", one.declaration))
            .collect::<String>(),
        condition = header.condition,
        counter = batch.index,
        step = header.step,
        text = body.text,
        taken = if members.is_empty() { "" } else { "                gopt_s = &gopt_states[gopt_begins];\n" },
        turns = choice(count, labels),
    )
}

/// What look-ups that wait have saved, and the look-ups' own structs.
fn queues(moved: &[Moved], members: &[String], body: &Resolved) -> String {
    let mut text = String::new();
    let mut add = |line: std::fmt::Arguments<'_>| writeln!(text, "            {line}").expect("writing to a String");
    if !members.is_empty() {
        add(format_args!("struct gopt_state {{"));
        members.iter().for_each(|member| add(format_args!("    {member}")));
        add(format_args!("}} gopt_states[GOPT_GROUP_MAX], *gopt_s = gopt_states;"));
    }
    for (number, saved) in body.saved.iter().enumerate().map(|(index, saved)| (index + 1, saved)) {
        add(format_args!("struct gopt_saved_{number} {{"));
        saved.iter().for_each(|&one| add(format_args!("    {};", moved[one].declaration)));
        if !members.is_empty() {
            add(format_args!("    struct gopt_state *gopt_s;"));
        } else if saved.is_empty() {
            add(format_args!("    char gopt_nothing;"));
        }
        add(format_args!("}} gopt_queue_{number}[GOPT_GROUP_MAX], *gopt_last_{number} = gopt_queue_{number};"));
    }
    text
}

/// Which queue is next: the one before in the order of the text, so that who has just begun to wait waits longest.
fn choice(count: usize, labels: &str) -> String {
    let mut text = String::new();
    let mut add = |line: std::fmt::Arguments<'_>| writeln!(text, "            {line}").expect("writing to a String");
    if count == 1 {
        add(format_args!("if (gopt_last_1 != gopt_queue_1) {{"));
        add(format_args!("    gopt_first = gopt_queue_1;"));
        add(format_args!("    gopt_end = gopt_last_1;"));
        add(format_args!("    gopt_last_1 = gopt_queue_1;"));
        add(format_args!("    goto {labels}at_1;"));
        add(format_args!("}}"));
        return text;
    }
    add(format_args!("switch (gopt_queue) {{"));
    for number in (1..=count).rev() {
        // Behind the first comes the last.
        let done = if number == count { 0 } else { number + 1 };
        add(format_args!("case {done}:"));
        add(format_args!("    if (gopt_last_{number} != gopt_queue_{number}) {{"));
        add(format_args!("        gopt_first = gopt_queue_{number};"));
        add(format_args!("        gopt_end = gopt_last_{number};"));
        add(format_args!("        gopt_last_{number} = gopt_queue_{number};"));
        add(format_args!("        gopt_label = &&{labels}at_{number};"));
        add(format_args!("        gopt_queue = {number};"));
        add(format_args!("        goto {labels}at_{number};"));
        add(format_args!("    }}"));
        add(format_args!("    /* fall through */"));
    }
    add(format_args!("default:"));
    add(format_args!("    break;"));
    add(format_args!("}}"));
    add(format_args!("if (gopt_queue != 0) {{"));
    add(format_args!("    gopt_queue = 0;"));
    add(format_args!("    goto {labels}turn;"));
    add(format_args!("}}"));
    text
}
