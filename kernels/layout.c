/* Sizes and field offsets of the structs in abi.h, and of gw_bin_call. Rust declares the same
 * structs, and tests/layout.rs compares both layouts. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"

typedef struct gw_layout_row {
    const char *name;
    gw_u64 value;
} gw_layout_row;

#define SIZE(type)                                                                                 \
    {                                                                                              \
        "sizeof " #type, sizeof(type)                                                              \
    }
#define FIELD(type, field)                                                                         \
    {                                                                                              \
#type "." #field, offsetof(type, field)                                                    \
    }

static const gw_layout_row rows[] = {
    SIZE(gw_descriptor),
    FIELD(gw_descriptor, buffer),
    FIELD(gw_descriptor, head),
    FIELD(gw_descriptor, length),
    FIELD(gw_descriptor, room),
    FIELD(gw_descriptor, port),
    FIELD(gw_descriptor, order),
    FIELD(gw_descriptor, flow_hash),
    SIZE(gw_outcome),
    FIELD(gw_outcome, verdict),
    FIELD(gw_outcome, reason),
    FIELD(gw_outcome, port),
    FIELD(gw_outcome, value),
    SIZE(gw_bin),
    FIELD(gw_bin, first),
    FIELD(gw_bin, count),
    FIELD(gw_bin, kernel),
    FIELD(gw_bin, variant),
    FIELD(gw_bin, instance),
    FIELD(gw_bin, length_bytes),
    FIELD(gw_bin, length_class),
    FIELD(gw_bin, row),
    FIELD(gw_bin, part),
    SIZE(gw_chain),
    FIELD(gw_chain, rows),
    FIELD(gw_chain, verdicts),
    FIELD(gw_chain, instances),
    SIZE(gw_chain_stage),
    FIELD(gw_chain_stage, kernel),
    FIELD(gw_chain_stage, variant),
    SIZE(gw_mailbox),
    FIELD(gw_mailbox, stop),
    FIELD(gw_mailbox, extent),
    FIELD(gw_mailbox, finished),
    FIELD(gw_mailbox, running),
    SIZE(gw_bin_call),
    FIELD(gw_bin_call, arena),
    FIELD(gw_bin_call, image),
    FIELD(gw_bin_call, descriptors),
    FIELD(gw_bin_call, parameters),
    FIELD(gw_bin_call, outcomes),
    FIELD(gw_bin_call, count),
    FIELD(gw_bin_call, variant),
    FIELD(gw_bin_call, counters),
};

const gw_layout_row *gw_layout(gw_u64 *count);

/* Returns a list of struct sizes and field offsets, and stores the length of the list in
 * `count`. */
const gw_layout_row *gw_layout(gw_u64 *count)
{
    *count = sizeof(rows) / sizeof(rows[0]);
    return rows;
}
