//! Heads of loops, chains of reads, and functions that they call.

/// Function with a loop of reads and an early return.
pub(super) const FIND: &str = r"static uint32_t find_{N}(uint32_t key, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        g_expensive(&table[key & 1023]);
        if ((table[key & 1023] & 7) == 3) {
            return key;
        }
        key = key * 7u + table[key & 1023];
    }
    return key ^ 0x55u;
}
";

/// Recursive function with reads.
pub(super) const DEEP: &str = r"static uint32_t deep_{N}(uint32_t key, uint32_t levels)
{
    if (levels == 0) {
        return key;
    }
    const struct cell *cell = &cells[key & 255];
    g_expensive(cell);
    return deep_{N}(cell->value + levels, levels - 1);
}
";

/// Head of a batch loop.
pub(super) struct Head {
    /// Text of the loop with the place of its body.
    pub(super) text: &'static str,
    /// Whether `i` is the lookup's own index.
    pub(super) own: bool,
    /// Whether `continue` reaches the step of the loop.
    pub(super) continues: bool,
}

const fn own(text: &'static str) -> Head {
    Head { text, own: true, continues: true }
}

/// Legal heads. The first one takes a promise. Each sets `key`.
pub(super) const HEADS: &[Head] = &[
    own("{PRAGMA}    for (int i = 0; i < n; i++) {\n        uint32_t key = keys[i];\n{BODY}    }\n"),
    own("{PRAGMA}    for (int i = 0; i < n; i++) {\n        uint32_t key = keys[i];\n{BODY}    }\n"),
    own("    for (unsigned i = (unsigned)n; i-- > 0;) {\n        uint32_t key = keys[i];\n{BODY}    }\n"),
    own(
        "    int i;\n    for (i = n - 1; i >= 0; --i) {\n        uint32_t key = keys[i];\n{BODY}    }\n    total_2 += (uint32_t)i;\n",
    ),
    own(
        "    for (file_index = 0; file_index < n; file_index++) {\n        const int i = file_index;\n        uint32_t key = keys[i];\n{BODY}    }\n",
    ),
    own("    for (int i = 0, j = n; i < n; i++, j--) {\n        uint32_t key = keys[i] + (uint32_t)j;\n{BODY}    }\n"),
    own("    for (int i = 0; i < limit(n); i += 1) {\n        uint32_t key = keys[i];\n{BODY}    }\n"),
    own(
        "    const uint32_t *p = keys;\n    for (int i = 0; i < n; i++, p++) {\n        uint32_t key = *p;\n{BODY}    }\n",
    ),
    own("    for (int i = 1; i <= n; i += 2) {\n        uint32_t key = keys[i - 1];\n{BODY}    }\n"),
    own(
        "    for (uint64_t i = 0, end = (uint64_t)n; i != end; i = i + 1) {\n        uint32_t key = keys[i];\n{BODY}    }\n",
    ),
    Head {
        text: "    int i = 0;\n    while (i < n) {\n        uint32_t key = keys[i];\n{BODY}        i++;\n    }\n",
        own: true,
        continues: false,
    },
    Head {
        text: "    int i = 0;\n    while (i < n) {\n        uint32_t key = keys[i++];\n{BODY}    }\n",
        own: false,
        continues: true,
    },
    own("    int i = n;\n    while (i-- > 0) {\n        uint32_t key = keys[i];\n{BODY}    }\n"),
    Head {
        text: "    int i = 0;\n    if (n > 0) do {\n        uint32_t key = keys[i];\n{BODY}        i++;\n    } while (i < n);\n",
        own: true,
        continues: false,
    },
    Head {
        text: "    for (const uint32_t *p = keys, *end = keys + n; p < end; p++) {\n        uint32_t key = *p;\n{BODY}    }\n",
        own: false,
        continues: true,
    },
    Head {
        text: "    const uint32_t *p = keys;\n    while (n--) {\n        uint32_t key = *p++;\n{BODY}    }\n",
        own: false,
        continues: true,
    },
];

/// Beginnings of lookups.
pub(super) const CHAINS: &[&str] = &[
    "        g_expensive(&table[key & 1023]);\n        uint32_t x = table[key & 1023];\n        uint32_t y = x ^ key;\n",
    "        const struct cell *cell = &cells[key & 255];\n        g_expensive(cell);\n        uint32_t x = cell->key, y = cell->value;\n",
    "        const struct cell *cell = &cells[key & 255];\n        uint32_t x = 0, y = 7;\n        for (int depth = 0; cell && depth < 3; depth++, cell = cell->next) {\n            g_expensive(cell);\n            x += cell->key;\n            if (cell->value & 1) { y = x; break; }\n        }\n",
    "        uint32_t x = 0, y = key >> 3;\n        for (uint32_t k = 0; k < 4; k++) {\n            g_expensive(&table[(key + k * 37) & 1023]);\n        }\n        for (uint32_t k = 0; k < 4; k++) {\n            x += table[(key + k * 37) & 1023];\n        }\n",
    "        uint32_t x = find_{N}(key, 3);\n        uint32_t y = x * 2654435761u >> 7;\n",
    "        uint32_t x = deep_{N}(key, 4), y = key ^ x;\n",
    "        uint32_t x, y;\n        {\n            struct both { uint32_t x, y; } both;\n            g_expensive(&cells[key & 255], sizeof(struct cell));\n            both.x = cells[key & 255].key;\n            both.y = cells[key & 255].value;\n            x = both.x, y = both.y;\n        }\n",
    "        uint32_t low = 0, high = 1024;\n        while (low < high) {\n            const uint32_t middle = (low + high) / 2;\n            g_expensive(&sorted[middle]);\n            if (sorted[middle] < (key & 0xffff)) { low = middle + 1; } else { high = middle; }\n        }\n        uint32_t x = low, y = key;\n",
    "        uint32_t x = ({ g_expensive(&table[key & 1023]); table[key & 1023]; });\n        uint32_t y = key + x;\n",
    "        uint32_t seen[3];\n        for (int k = 0; k < 3; k++) {\n            g_expensive(&table[key & 1023]);\n            seen[k] = table[key & 1023];\n            key = key * 5u + seen[k];\n        }\n        uint32_t x = seen[0] ^ seen[2], y = seen[1];\n",
    "        uint32_t y = key, x = find_{N}(key, 1) > find_{N}(key ^ 5u, 2) ? find_{N}(key, 3) : 9u;\n",
];

/// Further reads in a lookup.
pub(super) const STEPS: &[&str] = &[
    "        g_expensive(&table[x & 1023]);\n        x += table[x & 1023];\n",
    "        y ^= find_{N}(x, 2);\n",
    "        switch (x & 3) {\n        case 0:\n            g_expensive(&cells[y & 255]);\n            y += cells[y & 255].value;\n            break;\n        case 1:\n            y = deep_{N}(y, 2);\n            /* fall through */\n        default:\n            y++;\n        }\n",
    "        if (y & 1) {\n            g_expensive(&table[y & 1023]);\n            y ^= table[y & 1023] >> 3;\n        }\n",
    "        x = x * 9u + 1u;\n",
    "        do {\n            g_expensive(&table[(x ^ y) & 1023]);\n            x = x / 2u + (table[(x ^ y) & 1023] & 15u);\n        } while (x > 1000u && x % 7u);\n",
];
