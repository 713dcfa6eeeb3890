//! Effects of lookups on shared data.

/// Statements with an effect. `x` and `y` are values of the lookup, and `i` is its index.
pub(super) struct Effect {
    /// Data that the effect changes. `*`: all.
    pub(super) data: &'static str,
    pub(super) text: &'static str,
    /// Functions before the shape.
    pub(super) helper: &'static str,
    /// Statements before and after the loop.
    pub(super) before: &'static str,
    pub(super) after: &'static str,
    pub(super) needs_index: bool,
    pub(super) may_be_conditional: bool,
}

const EFFECT: Effect =
    Effect { data: "", text: "", helper: "", before: "", after: "", needs_index: false, may_be_conditional: true };

const fn step(data: &'static str, text: &'static str) -> Effect {
    Effect { data, text, ..EFFECT }
}

const fn own(data: &'static str, text: &'static str) -> Effect {
    Effect { data, text, needs_index: true, ..EFFECT }
}

const fn helped(data: &'static str, text: &'static str, helper: &'static str) -> Effect {
    Effect { data, text, helper, ..EFFECT }
}

const fn around(data: &'static str, before: &'static str, text: &'static str, after: &'static str) -> Effect {
    Effect { data, text, before, after, ..EFFECT }
}

/// Effects that rules R1 to R4 allow.
pub(super) const LEGAL: &[Effect] = &[
    own("out", "        out[i] = x + y;\n"),
    own("out", "        out[i] = x;\n        out[i] += y;\n"),
    own("results", "        results[i] = x ^ y;\n"),
    own("results", "        uint32_t *result = &results[i];\n        *result = x;\n        *result ^= y;\n"),
    own("wide", "        wide[i][0] = x;\n        wide[i][2] = y;\n        wide[i][y & 3] |= 1u;\n"),
    own("wide", "        for (int k = 0; k < 4; k++) {\n            wide[i][k] = x >> k;\n        }\n"),
    own("pairs", "        pairs[i].a = x;\n        pairs[i].b += y;\n"),
    own(
        "pairs",
        "        struct pair *pair = pairs + i;\n        pair->a = x;\n        if (pair->b < y) { pair->b = y; }\n",
    ),
    own("flat", "        flat[4 * i + 1] = x;\n        flat[4 * i + 3] = flat[4 * i + 1] + y;\n"),
    own("flat", "        memset(&flat[4 * i], 1, 4 * sizeof(flat[0]));\n"),
    own("sout", "        sout[i] = (int32_t)(x & 0xffff) - (int32_t)(y & 0xff);\n"),
    step("total", "        total += x;\n"),
    step("total", "        total = total + (x ^ y);\n"),
    step("total", "        total ^= y;\n"),
    step("total", "        total |= (uint64_t)x << 3;\n"),
    step("total", "        total++;\n        total -= x;\n"),
    step("stotal", "        stotal += (int32_t)(x & 0xff) - 100;\n"),
    step("stotal", "        stotal = stotal - (int32_t)(y & 7);\n"),
    step("stotal", "        stotal--;\n"),
    step("hist", "        hist[x & 63]++;\n"),
    step("hist", "        hist[x & 63] += y;\n        hist[y & 63] -= 3u;\n"),
    step("hist", "        uint32_t *slot = hist + (x % 64u);\n        *slot += y & 3;\n"),
    step("shist", "        shist[y % 64u] += (int32_t)(x & 15) - 7;\n"),
    step("stats", "        stats.n++;\n        stats.by[x & 7] += y;\n"),
    around("stats", "    struct stats *s = &stats;\n", "        s->n += x;\n        s->s += (int)(y & 3);\n", ""),
    helped(
        "stats",
        "        bump_{N}(&stats, x);\n",
        "static void bump_{N}(struct stats *s, uint32_t by)\n{\n    s->n++;\n    s->by[by & 7] += by;\n}\n",
    ),
    helped(
        "hist",
        "        count_{N}(x);\n",
        "static inline void count_{N}(uint32_t x)\n{\n    g_expensive(&hist[x & 63]);\n    hist[x & 63]++;\n}\n",
    ),
    step("most", "        if (x > most) {\n            most = x;\n        }\n"),
    step("most", "        most = y > most ? y : most;\n"),
    step("least", "        if (x < least) least = x;\n"),
    step("flag", "        flag = 1;\n"),
    step("marks", "        marks[x & 255] = 1;\n"),
    step("marks", "        marks[x & 255] |= 1u << (y & 31);\n"),
    step("atomic", "        __atomic_fetch_add(&atomic, x, 0);\n"),
    step("atomic", "        __atomic_fetch_or(&atomic, x & y, 0);\n"),
    step("cells", "        cells[y & 255].count++;\n"),
    step("cells", "        cells[y & 255].sum += x;\n        cells[x & 255].count += 2u;\n"),
    around(
        "local",
        "    uint64_t sum = 0;\n    int hits = 0;\n",
        "        sum += x;\n        hits += (y & 1) ? 1 : 0;\n",
        "    total_2 += sum + (uint64_t)hits;\n",
    ),
    around(
        "local",
        "    uint32_t found[16] = {0};\n",
        "        found[x & 15]++;\n",
        "    for (int k = 0; k < 16; k++) {\n        total_2 = total_2 * 3u + found[k];\n    }\n",
    ),
    around(
        "local",
        "    uint32_t best = 0;\n",
        "        if (best < x) {\n            best = x;\n        }\n",
        "    total_2 += best;\n",
    ),
    around("private", "    uint32_t scratch;\n", "        scratch = x * 3u;\n        out_2[x & 0] ^= scratch;\n", ""),
    Effect {
        data: "none",
        text: "        uint32_t parts[4] = {x, y, x ^ y};\n        parts[x & 3] += 5u;\n        total_3 += parts[y & 3];\n",
        ..EFFECT
    },
];

/// Effects that need a promise, and keep it: `keys[i]` of different lookups differ.
pub(super) const PROMISED: &[Effect] = &[
    own("out", "        out[unique[i]] = x + y;\n"),
    own(
        "hist",
        "        uint32_t old = out[unique[i]];\n        g_expensive(&table[y & 1023]);\n        out[unique[i]] = old * 3u + table[y & 1023];\n",
    ),
    own(
        "cells",
        "        struct cell *mine = &cells[unique[i]];\n        g_expensive(mine);\n        mine->sum = mine->sum * 5u + x;\n",
    ),
    helped(
        "cells",
        "        turn_{N}(&cells[unique[i]], y);\n",
        "static void turn_{N}(struct cell *cell, uint32_t by)\n{\n    g_expensive(&cell->sum);\n    cell->sum = cell->sum * 3u + by;\n}\n",
    ),
];

/// Effects that are legal after `#pragma gopt serial`.
pub(super) const SERIAL: &[Effect] = &[
    step("order", "        order[last++ & 255] = x;\n"),
    step("last", "        last = last * 31u + x;\n        if (y & 1) { last ^= y; }\n"),
    step("last", "        total_3 = total_3 * 5u + (last > x ? x : y);\n        last = x;\n"),
    around(
        "local",
        "    uint32_t best = 0, where = 0;\n",
        "        if (x > best) {\n            best = x;\n            where = y;\n        }\n",
        "    last = best * 3u + where;\n",
    ),
    step(
        "last",
        "        for (uint32_t k = 0; k < (x & 3); k++) {\n            order[(y + k) & 255] = last++;\n        }\n",
    ),
];

/// Variables that serial effects change.
pub(super) const SERIAL_VARIABLES: &[&str] = &["order", "last", "total_3", "best", "where"];

/// Effects that depend on the order of lookups. Their lines have the comment `refused`.
pub(super) const ILLEGAL: &[Effect] = &[
    Effect {
        data: "hist",
        text: "        uint32_t old = hist[x & 63]; /* refused */\n        g_expensive(&table[y & 1023]);\n        hist[x & 63] = old + table[y & 1023]; /* refused */\n",
        ..EFFECT
    },
    step("out", "        out[x & 255] = y; /* refused */\n"),
    Effect { needs_index: true, ..step("out", "        out[i & 15] = x; /* refused */\n") },
    step("last", "        last = x; /* refused */\n"),
    step("last", "        last = x;  /* refused */\n        last += y; /* refused */\n"),
    step("total", "        total += x; /* refused */\n        y += (uint32_t)total; /* refused */\n"),
    step("total", "        total += x; /* refused */\n        total ^= y; /* refused */\n"),
    step("total", "        total = x - total; /* refused */\n"),
    step("total", "        total = total * 31u + x; /* refused */\n"),
    step("marks", "        marks[x & 255] = 1; /* refused */\n        marks[y & 255] = 2; /* refused */\n"),
    step("cells", "        cells[x & 255].count = cells[x & 255].count * 2u + 1u; /* refused */\n"),
    step("cells", "        cells[x & 255].next->count = y; /* refused */\n"),
    step(
        "cells",
        "        cells[x & 255].key = y; /* refused */\n        g_expensive(&cells[y & 255]);\n        x += cells[y & 255].key; /* refused */\n",
    ),
    step("*", "        table[x & 1023] = y; /* refused */\n        x = table[y & 1023]; /* refused */\n"),
    around(
        "local",
        "    uint32_t filled = 0;\n",
        "        order[filled++ & 255] = x; /* refused */\n",
        "    total_2 += filled;\n",
    ),
    around(
        "local",
        "    uint32_t previous = 0;\n",
        "        x += previous; /* refused */\n        previous = y; /* refused */\n",
        "",
    ),
    around(
        "local",
        "    uint32_t best = 0, where = 0;\n",
        "        if (x > best) { /* refused */\n            best = x; /* refused */\n            where = y; /* refused */\n        }\n",
        "    total_2 += best + where;\n",
    ),
    helped(
        "memo",
        "        y += memo_{N}(x);\n",
        "static uint32_t memo_{N}(uint32_t x)\n{\n    static uint32_t known; /* refused */\n    const uint32_t old = known; /* refused */\n    known = x; /* refused */\n    return old;\n}\n",
    ),
    helped(
        "out",
        "        put_{N}(out, x, y); /* refused */\n",
        "static void put_{N}(uint32_t *to, uint32_t at, uint32_t what)\n{\n    to[at & 255] = what; /* refused */\n}\n",
    ),
    step("none", "        x += (uint32_t)lrand48(); /* refused */\n"),
    step("none", "        x += hidden(&cells[y & 255]); /* refused */\n"),
    step("none", "        if (x == 12345u) { break; } /* refused */\n"),
    step("none", "        if (x == 12345u) { return; } /* refused */\n"),
    step("ratio", "        ratio += (double)x; /* refused */\n"),
    step("port", "        port = x; /* refused */\n"),
    step("atomic", "        y += __atomic_fetch_add(&atomic, x, 0); /* refused */\n"),
    Effect {
        needs_index: true,
        ..step(
            "results",
            "        results[i] = x; /* refused */\n        y += i > 1 ? results[i - 2] : 0; /* refused */\n",
        )
    },
    step("hist", "        hist[x & 63]++; /* refused */\n        y += hist[y & 63]; /* refused */\n"),
    step("hist", "        hist[x & 63] += y; /* refused */\n        hist[y & 63] |= 1u; /* refused */\n"),
];
