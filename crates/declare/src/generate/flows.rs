//! Generates the C structs and functions with which packet functions keep flows on the CPU.

use std::fmt::Write as _;

use crate::declaration::{Declaration, FlowLimit, Flows};
use crate::layout::{FlowLayout, ImageLayout, RecordLayout};
use crate::types::Field;
use crate::words::{KeyWords, Part};

use super::accessors::word;
use super::header::plain_struct;
use super::{prefix, upper};

/// Returns the C structs for flows, and C code that is compiled only for the CPU.
pub(super) fn structs(declaration: &Declaration) -> String {
    let Some(flows) = &declaration.flows else { return String::new() };
    let name = format!("{}_{}", prefix(declaration), flows.name);
    let mut text = plain_struct(declaration, &format!("{name}_key"), &flows.key);
    if !flows.reverse.is_empty() {
        text += &plain_struct(declaration, &format!("{name}_reverse"), &flows.reverse);
    }
    let row = if flows.row.is_empty() { unused_row() } else { flows.row.clone() };
    text += &plain_struct(declaration, &format!("{name}_row"), &row);
    for (index, (timer, _)) in flows.timers.iter().enumerate() {
        let _ = writeln!(text, "#define {}_TIMER_{} {index}u", upper(declaration), timer.to_ascii_uppercase());
    }
    text + "#ifdef GW_HOST\n" + &host(declaration, flows) + "#endif\n"
}

/// Returns the C functions that prepare packets for a function with flows. `template` is the text
/// of `kernels/dialect/loop_flows.c`.
pub fn entries(declaration: &Declaration, template: &str) -> Option<String> {
    let flows = declaration.flows.as_ref()?;
    let text = template.replace("UPPER", &upper(declaration)).replace("NAME_FLOW_", &format!("NAME_{}_", flows.name));
    Some(text.replace("NAME", &declaration.name) + &pools(declaration))
}

/// Returns the C function that describes the address and port pool of each resource.
fn pools(declaration: &Declaration) -> String {
    let prefix = prefix(declaration);
    let mut text = format!(
        "static gw_port_pool {prefix}_pool(const gw_u8 *image, gw_u32 index)\n{{\n    \
         gw_port_pool pool = {{0}};\n    (void)image;\n    (void)index;\n"
    );
    if !declaration.resources.is_empty() {
        let offset = ImageLayout::of(declaration).params_offset;
        let _ =
            writeln!(text, "    const {prefix}_parameters *params = (const {prefix}_parameters *)(image + {offset});");
    }
    for (index, resource) in declaration.resources.iter().enumerate() {
        let (list, first, block) = (&resource.addresses, resource.ports.0, resource.block());
        let _ = writeln!(
            text,
            "    if (index == {index}) {{\n        pool.addresses = params->{list};\n        \
             pool.count = params->{list}_count;\n        pool.first = {first};\n        \
             pool.block = {block};\n    }}"
        );
    }
    text + "    return pool;\n}\n"
}

fn unused_row() -> Vec<Field> {
    let kind = crate::types::FieldType::Scalar(crate::types::Scalar::Unsigned(32));
    vec![Field { name: "unused".to_owned(), kind, text: String::new() }]
}

/// Name prefixes in the generated C text.
struct Names {
    /// Prefix of C functions and types, such as `gw_nat44`.
    prefix: String,
    /// Prefix of C macros, such as `GW_NAT44`.
    upper: String,
    /// Prefix of the C functions and types for flows, such as `gw_nat44_session`.
    flow: String,
}

fn host(declaration: &Declaration, flows: &Flows) -> String {
    let names = Names {
        prefix: prefix(declaration),
        upper: upper(declaration),
        flow: format!("{}_{}", prefix(declaration), flows.name),
    };
    let mut text = sizes(flows, &names);
    text += &prototypes(declaration, flows, &names);
    text += &keys(flows, &names);
    text += &limit(declaration, flows, &names);
    text += &resources(declaration, flows, &names);
    text + &create(flows, &names)
}

/// Returns C macros for the size and the field offsets of a flow record.
fn sizes(flows: &Flows, names: &Names) -> String {
    let Names { prefix, upper, .. } = names;
    let FlowLayout { key_offset, key_words, reverse_offset, reverse_words, row_offset, row_bytes, record_bytes } =
        FlowLayout::of(flows);
    let counts = u32::from(flows.counts);
    let words = key_words.max(reverse_words).max(1);
    let has_limit = u32::from(flows.limit.is_some());
    let timeouts: Vec<String> = flows.timers.iter().map(|(_, seconds)| format!("{}u", seconds * 1000)).collect();
    format!(
        "#define {upper}_WORDS {words}\n#define {upper}_KEY_OFFSET {key_offset}u\n\
         #define {upper}_REVERSE_OFFSET {reverse_offset}u\n#define {upper}_ROW_OFFSET {row_offset}u\n\
         #define {upper}_RECORD_BYTES {record_bytes}u\n#define {upper}_COUNTS {counts}\n\
         #define {upper}_HAS_LIMIT {has_limit}\n\
         static const gw_u32 {prefix}_timeouts[GW_FLOWS_TIMERS] = {{{}}};\n\
         static const gw_flows_shape {prefix}_shape = {{{record_bytes}, {key_offset}, {key_words}, {reverse_offset}, \
         {reverse_words}, {row_offset}, {row_bytes}, {counts}}};\n",
        timeouts.join(", ")
    )
}

/// Returns C declarations of the functions that the author must define.
fn prototypes(declaration: &Declaration, flows: &Flows, names: &Names) -> String {
    let Names { prefix, flow, .. } = names;
    let name = &declaration.name;
    let (reverse, text) = match flows.reverse.is_empty() {
        true => (String::new(), ""),
        false => (format!(", {flow}_reverse *reverse"), "__VA_ARGS__"),
    };
    let mut out = format!(
        "#define GW_{name}_REVERSE(...) {text}\n\
         typedef gw_flows {prefix};\n\
         GW_FIND gw_side {prefix}_find(const gw_lane *lane, const gw_packet *packet,\n    {flow}_key *key{reverse});\n\
         GW_MISS {flow}_row *{prefix}_miss({prefix} *own, const gw_packet *packet, gw_side side,\n    \
         const {flow}_key *key, gw_outcome *outcome);\n\
         GW_UPDATE gw_u64 {prefix}_update({prefix} *own, {flow}_row *row, const gw_packet *packet,\n    \
         gw_side side);\n\
         /* Returns the lane with which `miss` and `update` look up tables. */\n\
         static inline gw_lane {prefix}_own_lane(const {prefix} *own)\n{{\n    \
         const gw_lane lane = {{0, own->image, 0, 0}};\n    return lane;\n}}\n"
    );
    if !declaration.params.is_empty() {
        let offset = ImageLayout::of(declaration).params_offset;
        let _ = write!(
            out,
            "static inline const {prefix}_parameters *{prefix}_own_params(const {prefix} *own)\n{{\n    \
             return (const {prefix}_parameters *)(own->image + {offset});\n}}\n"
        );
    }
    out
}

fn keys(flows: &Flows, names: &Names) -> String {
    let Names { prefix, upper, flow } = names;
    let mut text = String::new();
    for (kind, fields) in [("key", &flows.key), ("reverse", &flows.reverse)] {
        if fields.is_empty() {
            continue;
        }
        let _ = writeln!(text, "static inline void {flow}_{kind}_words(const {flow}_{kind} *key, gw_u64 *words)\n{{");
        for (index, parts) in KeyWords::of(fields).0.iter().enumerate() {
            let _ = writeln!(text, "    words[{index}] = {};", word(parts, fields));
        }
        text += "}\n";
    }
    let (key_words, reverse_words) = (KeyWords::of(&flows.key).len(), KeyWords::of(&flows.reverse).len());
    let _ = write!(
        text,
        "static inline gw_u64 {prefix}_hash(const {prefix} *own, const gw_u64 *words, gw_side side)\n{{\n    \
         return side == GW_REVERSE ? gw_flows_hash(own, words, {reverse_words}, side)\n                              \
         : gw_flows_hash(own, words, {key_words}, side);\n}}\n\
         static inline gw_u32 {prefix}_same(const gw_u8 *record, const gw_u64 *words, gw_side side)\n{{\n    \
         return side == GW_REVERSE\n               \
         ? gw_flows_equal((const gw_u64 *)(record + {upper}_REVERSE_OFFSET), words, {reverse_words})\n               \
         : gw_flows_equal((const gw_u64 *)(record + {upper}_KEY_OFFSET), words, {key_words});\n}}\n"
    );
    text
}

fn field_of(fields: &[Field], name: &str) -> String {
    for (index, parts) in KeyWords::of(fields).0.iter().enumerate() {
        for Part { field, shift, bits, .. } in parts {
            if fields[*field].name == name {
                return format!("(words[{index}] >> {shift} & {:#x}u)", u64::MAX >> (64 - bits));
            }
        }
    }
    "0".to_owned()
}

/// Returns the C functions that count the flows with the same value in a key field.
fn limit(declaration: &Declaration, flows: &Flows, names: &Names) -> String {
    let Names { prefix, .. } = names;
    let Some(FlowLimit { by, max }) = &flows.limit else {
        return format!(
            "static inline gw_u32 {prefix}_limit({prefix} *own, const gw_u64 *words)\n{{\n    \
             (void)own;\n    (void)words;\n    return 1;\n}}\n\
             static inline void {prefix}_unlimit({prefix} *own, const gw_u64 *words)\n{{\n    \
             (void)own;\n    (void)words;\n}}\n"
        );
    };
    debug_assert!(declaration.params.iter().any(|param| param.name == *max));
    let value = field_of(&flows.key, by);
    format!(
        "/* Counts a flow. Returns 0 if the limit is reached. */\n\
         static inline gw_u32 {prefix}_limit({prefix} *own, const gw_u64 *words)\n{{\n    \
         gw_flow_limit *limit = gw_flows_limit(own, {value});\n    \
         own->is_limited = limit->count >= {prefix}_own_params(own)->{max};\n    \
         if (own->is_limited) {{\n        return 0;\n    }}\n    \
         limit->value = {value};\n    limit->count++;\n    return 1;\n}}\n\
         static inline void {prefix}_unlimit({prefix} *own, const gw_u64 *words)\n{{\n    \
         gw_flow_limit *limit = gw_flows_limit(own, {value});\n    \
         if (limit->count > 1) {{\n        limit->count--;\n    }} else {{\n        \
         gw_flows_limit_free(own, limit);\n    }}\n}}\n"
    )
}

/// Returns the C functions that take an address-port pair from the pool, give it back, and compute
/// a packet's steering bucket.
fn resources(declaration: &Declaration, flows: &Flows, names: &Names) -> String {
    let Names { prefix, .. } = names;
    let mut text = String::new();
    for (index, resource) in declaration.resources.iter().enumerate() {
        let _ = write!(
            text,
            "/* Takes a free address and port. Equal wishes begin with the same address. Returns 0 if there is none. \
             */\n\
             static inline gw_u32 {prefix}_{}_take({prefix} *own, const gw_packet *packet, gw_u32 wish,\n    \
             gw_u32 *address, gw_u32 *port)\n{{\n    \
             return gw_resource_take(own, {index}u, packet->bucket, wish, address, port);\n}}\n\
             /* Gives an address and port back that no flow uses. */\n\
             static inline void {prefix}_{}_give({prefix} *own, gw_u32 address, gw_u32 port)\n{{\n    \
             gw_resource_give(own, {index}u, address, port);\n}}\n",
            resource.name, resource.name
        );
    }
    let _ = writeln!(
        text,
        "static inline void {prefix}_release({prefix} *own, const gw_u64 *words)\n{{\n    (void)own;\n    (void)words;"
    );
    for (index, resource) in declaration.resources.iter().enumerate() {
        let (address, port) =
            (field_of(&flows.reverse, &resource.reverse.0), field_of(&flows.reverse, &resource.reverse.1));
        let _ = writeln!(text, "    gw_resource_give(own, {index}u, (gw_u32){address}, (gw_u32){port});");
    }
    let _ = writeln!(
        text,
        "}}\nstatic inline gw_u32 {prefix}_bucket(const gw_u8 *image, const gw_u64 *words, gw_side side)\n{{\n    \
         (void)image;\n    (void)words;\n    (void)side;"
    );
    if let Some(resource) = declaration.resources.first() {
        let (first, block) = (resource.ports.0, resource.block());
        let port = field_of(&flows.reverse, &resource.reverse.1);
        let _ = writeln!(
            text,
            "    if (side == GW_REVERSE) {{\n        return gw_resource_bucket({first}u, {block}u, (gw_u32){port});\n    }}"
        );
    }
    let value = match &flows.limit {
        Some(limit) => field_of(&flows.key, &limit.by),
        None => {
            let words = 0..KeyWords::of(&flows.key).len();
            words.fold("0".to_owned(), |hash, word| format!("gw_flows_mix({hash} ^ words[{word}])"))
        }
    };
    let _ = writeln!(text, "    return (gw_u32)({value} * 0x9e3779b97f4a7c15u >> 57);\n}}");
    text
}

/// Returns the C functions that create, change and remove flow state. The author's `miss` and
/// `update` call them.
fn create(flows: &Flows, names: &Names) -> String {
    let Names { prefix, upper, flow } = names;
    let (key_words, reverse_words) = (KeyWords::of(&flows.key).len(), KeyWords::of(&flows.reverse).len());
    let mut text = format!(
        "/* Returns whether the limit was the reason for the last row that was not created. */\n\
         static inline gw_u32 {flow}_is_limited(const {prefix} *own)\n{{\n    return own->is_limited;\n}}\n\
         /* Creates the row of a key. Returns 0 if the table is full or the limit is reached. */\n\
         static __attribute__((unused)) {flow}_row *{flow}_create({prefix} *own, const {flow}_key *key, gw_u32 timer)\n{{\n    \
         gw_u64 words[{key_words}];\n    {flow}_key_words(key, words);\n    \
         own->is_limited = 0;\n    \
         if ((own->free_count == 0 && own->high_water == own->capacity) || !{prefix}_limit(own, words)) {{\n        \
         own->refused++;\n        return 0;\n    }}\n    \
         const gw_u32 used = own->free_count != 0;\n    \
         const gw_u32 index = used ? own->free_records[own->free_count - 1] : own->high_water;\n    \
         if (!gw_flows_insert(own, {prefix}_hash(own, words, GW_FORWARD), (index + 1) * 2)) {{\n        \
         {prefix}_unlimit(own, words);\n        own->refused++;\n        return 0;\n    }}\n    \
         own->free_count -= used;\n    own->high_water += !used;\n    \
         gw_u64 *record = (gw_u64 *)(own->records + (gw_u64)index * {upper}_RECORD_BYTES);\n    \
         for (gw_u32 i = 0; i < {upper}_RECORD_BYTES / 8; i++) {{\n        record[i] = 0;\n    }}\n    \
         gw_flow_meta *meta = (gw_flow_meta *)record;\n    meta->seen = own->tick;\n    meta->timer = (gw_u8)timer;\n    \
         meta->used = 1;\n    \
         for (gw_u32 i = 0; i < {key_words}; i++) {{\n        record[{upper}_KEY_OFFSET / 8 + i] = words[i];\n    }}\n    \
         own->active++;\n    own->created++;\n    \
         return ({flow}_row *)((gw_u8 *)record + {upper}_ROW_OFFSET);\n}}\n\
         /* Selects the timer of a row. */\n\
         static inline void {flow}_timer({flow}_row *row, gw_u32 timer)\n{{\n    \
         ((gw_flow_meta *)((gw_u8 *)row - {upper}_ROW_OFFSET))->timer = (gw_u8)timer;\n}}\n"
    );
    text += &format!(
        "static void {prefix}_remove({prefix} *own, gw_u8 *record);\n\
         /* Removes a row that `miss` has created and does not return. */\n\
         static inline void {flow}_cancel({prefix} *own, {flow}_row *row)\n{{\n    \
         own->created--;\n    {prefix}_remove(own, (gw_u8 *)row - {upper}_ROW_OFFSET);\n}}\n"
    );
    if reverse_words > 0 {
        text += &format!(
            "/* Adds the second key of a row. Returns 0 if another row has it, or the table is full. */\n\
             static __attribute__((unused)) gw_u32 {flow}_reverse_set({prefix} *own, {flow}_row *row,\n    \
             const {flow}_reverse *key)\n{{\n    \
             gw_u64 words[{reverse_words}];\n    {flow}_reverse_words(key, words);\n    \
             const gw_u64 hash = {prefix}_hash(own, words, GW_REVERSE);\n    \
             gw_u8 *record = (gw_u8 *)row - {upper}_ROW_OFFSET;\n    \
             const gw_u32 index = (gw_u32)((gw_u64)(record - own->records) / {upper}_RECORD_BYTES);\n    \
             if (gw_flows_lookup(own, &{prefix}_shape, hash, words, GW_REVERSE) != 0 ||\n        \
             !gw_flows_insert(own, hash, (index + 1) * 2 + 1)) {{\n        own->refused++;\n        return 0;\n    }}\n    \
             for (gw_u32 i = 0; i < {reverse_words}; i++) {{\n        \
             ((gw_u64 *)(record + {upper}_REVERSE_OFFSET))[i] = words[i];\n    }}\n    \
             ((gw_flow_meta *)record)->used = 2;\n    return 1;\n}}\n"
        );
    }
    text
}

/// Returns the layout of a flow's state, which has at least one field.
pub(crate) fn row_layout(flows: &Flows) -> RecordLayout {
    if flows.row.is_empty() { RecordLayout::padded(&unused_row()) } else { RecordLayout::padded(&flows.row) }
}
