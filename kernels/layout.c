/* What the C compiler makes of the structs that Rust declares too; tests/layout.rs compares. */
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
    FIELD(gw_descriptor, window),
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
    SIZE(gw_mailbox),
    FIELD(gw_mailbox, stop),
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
    SIZE(gw_echo_image),
    FIELD(gw_echo_image, magic),
    FIELD(gw_echo_image, ports),
    SIZE(gw_ipv4_image),
    FIELD(gw_ipv4_image, magic),
    FIELD(gw_ipv4_image, entry_bytes),
    FIELD(gw_ipv4_image, next_hops),
    FIELD(gw_ipv4_image, groups),
    FIELD(gw_ipv4_image, next_hops_offset),
    FIELD(gw_ipv4_image, tbl24_offset),
    FIELD(gw_ipv4_image, tbl8_offset),
    FIELD(gw_ipv4_image, bytes),
    SIZE(gw_ipv4_next_hop),
    FIELD(gw_ipv4_next_hop, destination_mac),
    FIELD(gw_ipv4_next_hop, source_mac),
    FIELD(gw_ipv4_next_hop, port),
    FIELD(gw_ipv4_next_hop, flags),
    FIELD(gw_ipv4_next_hop, pad),
    SIZE(gw_dpi_image),
    FIELD(gw_dpi_image, magic),
    FIELD(gw_dpi_image, states),
    FIELD(gw_dpi_image, classes),
    FIELD(gw_dpi_image, match_states),
    FIELD(gw_dpi_image, start),
    FIELD(gw_dpi_image, patterns),
    FIELD(gw_dpi_image, longest_bytes),
    FIELD(gw_dpi_image, pad),
    FIELD(gw_dpi_image, class_map_offset),
    FIELD(gw_dpi_image, transitions_offset),
    FIELD(gw_dpi_image, matches_offset),
    FIELD(gw_dpi_image, bytes),
    SIZE(gw_dpi_match),
    FIELD(gw_dpi_match, pattern),
    FIELD(gw_dpi_match, count),
};

const gw_layout_row *gw_layout(gw_u64 *count);

/* The rows, and how many they are. */
const gw_layout_row *gw_layout(gw_u64 *count)
{
    *count = sizeof(rows) / sizeof(rows[0]);
    return rows;
}
