//! `GOPT_GROUP=auto`: the output measures the plain loop and several group sizes while the program
//! runs, and continues with the fastest.
//!
//! A call runs in parts. The plain loop or the interleaved one runs until the lookups of a part
//! are finished, and the measurements then select the form of the next part.

use super::Plain;

/// Definitions before the first batch loop.
pub(crate) const PROLOGUE: &str = "\
#ifndef GOPT_CLOCK
#if defined(__x86_64__) || defined(__i386__)
#define GOPT_CLOCK() __builtin_ia32_rdtsc()
#elif defined(__clang__)
#define GOPT_CLOCK() __builtin_readcyclecounter()
#else
#define GOPT_CLOCK() 0 /* no clock: auto is 32 */
#endif
#endif
#ifndef GOPT_IS_AUTO
#define GOPT_TEXT(...) #__VA_ARGS__
#define GOPT_TEXT_OF(...) GOPT_TEXT(__VA_ARGS__)
#define GOPT_IS_AUTO (__builtin_strcmp(GOPT_TEXT_OF(GOPT_GROUP), \"auto\") == 0)
#ifndef GOPT_AUTO_SAMPLE
#define GOPT_AUTO_SAMPLE 256 /* lookups in a measurement of a group size */
#endif
/* GOPT_GROUP=auto: measurements of one loop by one thread */
struct gopt_auto {
    unsigned long long ticks[5]; /* shortest sample of each size */
    unsigned long long spent;    /* ticks of the current sample */
    unsigned long left;          /* lookups before the sample ends, or before the next measurement */
    unsigned long interval;      /* lookups between two measurements */
    unsigned long usual;         /* lookups of the previous call */
    unsigned group;              /* interleaved lookups now */
    unsigned size, round;        /* size that is measured; 0: no measurement, 1: samples without a result */
};
/* Continues with the next sample, or with the fastest size. */
static __inline__ __attribute__((unused)) void gopt_auto_next(struct gopt_auto *own)
{
    static const unsigned groups[5] = {1, 8, 16, 32, 64};
    unsigned size, best = 0;
    if (own->round == 0) {
        own->round = 1;
        own->size = 3;
        for (size = 0; size < 5; size++) { own->ticks[size] = ~0ull; }
    } else {
        if (own->round > 1 && own->spent < own->ticks[own->size]) { own->ticks[own->size] = own->spent; }
        for (size = 1; size < 5; size++) {
            if (own->ticks[size] < own->ticks[best] - own->ticks[best] / 32) { best = size; }
        }
        size = own->size + 1;
        if (own->round == 1) { own->round = 2; size = 0; }
        for (;; size++) {
            if (size >= 5) { own->round++; size = 0; }
            if (own->round == 2 || own->round > 4 || own->ticks[size] / 4 <= own->ticks[best]) { break; }
        }
        own->size = size;
        if (own->round > 4) {
            own->round = 0;
            own->group = groups[own->ticks[best] == 0 ? 3 : best];
            own->interval = own->interval == 0 ? 64 * (GOPT_AUTO_SAMPLE) : own->interval < 1ul << 26 ? 8 * own->interval : own->interval;
            own->left = own->interval;
            return;
        }
    }
    own->group = groups[own->size];
    own->left = (GOPT_AUTO_SAMPLE);
    own->spent = 0;
}
/* Begins a call. Returns whether the plain loop runs to its end. */
static __inline__ __attribute__((unused)) int gopt_auto_begin(struct gopt_auto *own)
{
    if (own->left == 0) { gopt_auto_next(own); }
    if (own->round != 0 || own->group > 1 || own->left <= own->usual + 1) { return 0; }
    own->left -= own->usual + 1;
    return 1;
}
/* Ends a part of a call. */
static __inline__ __attribute__((unused)) void gopt_auto_end(struct gopt_auto *own, unsigned long lookups, unsigned long long ticks)
{
    own->left -= lookups;
    own->spent += ticks;
    if (own->left == 0) { gopt_auto_next(own); }
}
#endif
";

/// Texts that the output of one batch loop contains in addition.
#[derive(Default)]
pub(super) struct Auto {
    /// Before the condition that selects the plain loop.
    pub(super) start: &'static str,
    /// Condition of the plain loop.
    pub(super) is_plain: &'static str,
    /// After the declarations of the interleaved loop: a part of the plain loop.
    pub(super) part: String,
    /// In the condition of the interleaved loop.
    pub(super) condition: &'static str,
    /// At the start of a lookup.
    pub(super) begins: &'static str,
    /// After the last lookup of a part.
    pub(super) end: String,
}

impl Auto {
    /// Returns the texts of a loop with this condition and step. `state` is the statement that
    /// selects the state of the first lookup.
    pub(super) fn new(plain: Plain<'_>, labels: &str, condition: &str, step: &str, state: &str) -> Self {
        let declared = match plain.labels {
            [] => String::new(),
            names => format!("__label__ {};\n", names.join(", ")),
        };
        let step = if step.is_empty() { String::new() } else { format!(", {}", step.trim_end_matches(";\n")) };
        Self {
            start: "struct gopt_auto *gopt_auto = 0;\n    int gopt_plain = gopt_group <= 1;\n    \
                    if (GOPT_IS_AUTO) {\n        static __thread struct gopt_auto gopt_kept;\n        \
                    gopt_auto = &gopt_kept;\n        gopt_plain = gopt_auto_begin(gopt_auto);\n    }\n    ",
            is_plain: "gopt_plain",
            part: format!(
                "unsigned long gopt_part = 0, gopt_left = 0, gopt_lookups = 0;\nunsigned long long gopt_clock = 0;\n\
                 {labels}part:\nif (gopt_auto != 0) {{\n\
                 gopt_part = gopt_left = gopt_auto->left;\n\
                 gopt_begins = (gopt_auto->group < (GOPT_GROUP_MAX) ? gopt_auto->group : (GOPT_GROUP_MAX)) - 1;\n\
                 gopt_clock = GOPT_CLOCK();\n\
                 if (gopt_begins == 0) {{\n{declared}for (; gopt_left != 0 && ({condition}); gopt_left--{step})\n\
                 {body}\ngoto {labels}part_ends;\n}}\n{state}}}\n",
                body = plain.body,
            ),
            condition: "(gopt_auto == 0 || gopt_left != 0) && ",
            begins: "gopt_left--;\n",
            end: format!(
                "if (gopt_auto != 0) {{\n{labels}part_ends:\n\
                 gopt_lookups += gopt_part - gopt_left;\n\
                 gopt_auto_end(gopt_auto, gopt_part - gopt_left, GOPT_CLOCK() - gopt_clock);\n\
                 if (gopt_left == 0) {{\ngoto {labels}part;\n}}\n\
                 gopt_auto->usual = gopt_lookups;\n}}\n"
            ),
        }
    }
}
