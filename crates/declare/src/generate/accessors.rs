//! Generates C functions that look up keys in a packet function's tables.

use std::fmt::Write as _;

use crate::declaration::{Declaration, Shape, Table};
use crate::layout::{ImageLayout, Packing, RecordLayout};
use crate::types::{Field, FieldType, Scalar};
use crate::words::KeyWords;

use super::header::plain_struct;
use super::prefix;

/// Total size of a table's rows, in bytes, above which a lookup probably misses every cache.
const FAR_BYTES: usize = 1 << 20;

/// Returns the C structs and lookup functions of all tables.
pub(super) fn tables(declaration: &Declaration) -> String {
    let layout = ImageLayout::of(declaration);
    let mut text = String::new();
    for (table, offset) in declaration.tables.iter().zip(&layout.tables) {
        let name = format!("{}_{}", prefix(declaration), table.name);
        let is_meter = table.shape == Shape::Meter;
        if !table.key.is_empty() && !is_meter {
            text += &plain_struct(declaration, &format!("{name}_key"), &table.key);
        }
        if !table.row.is_empty() && !is_meter {
            text += &plain_struct(declaration, &format!("{name}_row"), &table.row);
        }
        text += &find(table, &name, *offset);
    }
    text
}

/// Returns the C function that looks up a table.
fn find(table: &Table, name: &str, offset: usize) -> String {
    let header = |kind: &str| {
        format!("    const GW_GLOBAL gw_{kind} *table = (const GW_GLOBAL gw_{kind} *)(lane->image + {offset});\n")
    };
    let begin = |arguments: &str| {
        format!("\nGW_LANE gw_u32 {name}_find(const gw_lane *lane, {arguments}, {name}_row *row)\n{{\n")
    };
    let row_bytes = RecordLayout::padded(&table.row).bytes;
    let far = table.capacity as usize * row_bytes > FAR_BYTES;
    let copy = |index: &str, far: bool| {
        let expensive = if far { "    GW_EXPENSIVE(found);\n" } else { "" };
        format!(
            "    const GW_GLOBAL {name}_row *found =\n        (const GW_GLOBAL {name}_row *)(lane->image + table->rows_offset) + {index};\n{expensive}    *row = *found;\n    return 1;\n}}\n"
        )
    };
    match table.shape {
        Shape::Exact => begin(&format!("const {name}_key *key")) + &header("exact") + &exact(table, name),
        Shape::Lpm4 => {
            begin("gw_u32 address")
                + &header("lpm4")
                + "    const gw_u32 index = gw_lpm4_find(lane->image, table, address);\n"
                // A branch would be mispredicted for random addresses, so a lookup without a
                // result reads row 0.
                + &format!(
                    "    const gw_u32 is_found = (gw_u32)(index != GW_TABLE_NONE);\n    \
                     *row = ((const GW_GLOBAL {name}_row *)(lane->image + table->rows_offset))[index & (0u - is_found)];\n    \
                     return is_found;\n}}\n"
                )
        }
        Shape::Lpm6 => {
            begin("gw_u64 high, gw_u64 low")
                + &header("acl")
                + "    gw_u64 words[GW_ACL_WORDS] = {high, low, 0, 0, 0};\n    const gw_u32 index = gw_acl_find(lane->image, table, words);\n    if (index == GW_TABLE_NONE) {\n        return 0;\n    }\n"
                + &copy("index", false)
        }
        Shape::Array => {
            begin("gw_u32 index")
                + &header("array")
                + "    const gw_u32 found_index = gw_array_find(lane->image, table, index);\n    if (found_index == GW_TABLE_NONE) {\n        return 0;\n    }\n"
                + &copy("found_index", far)
        }
        Shape::Acl => {
            let words = KeyWords::of(&table.key);
            let mut text = begin(&format!("const {name}_key *key")) + &header("acl");
            let _ = writeln!(text, "    gw_u64 words[GW_ACL_WORDS] = {{{}}};", word_list(&words, &table.key, 5));
            text += "    const gw_u32 index = gw_acl_find(lane->image, table, words);\n    if (index == GW_TABLE_NONE) {\n        return 0;\n    }\n";
            text + &copy("index", false)
        }
        Shape::Maglev => {
            begin("gw_u32 hash")
                + &header("maglev")
                + "    const gw_u32 index = gw_maglev_find(lane->image, table, hash);\n    if (index == GW_TABLE_NONE) {\n        return 0;\n    }\n"
                + &copy("index", false)
        }
        // The host has found the entry, and passes the color as the kernel's parameter.
        Shape::Meter => format!(
            "\n/* Returns the color of the packet. */\nGW_LANE gw_u32 {name}_color(const gw_lane *lane)\n{{\n    \
             return (gw_u32)lane->parameter & GW_COLORLESS;\n}}\n"
        ),
        Shape::Strings => format!(
            "\nGW_LANE gw_u32 {name}_search(const gw_lane *lane, const GW_GLOBAL gw_u8 *bytes, gw_u32 length,\n                              gw_u32 *first)\n{{\n{}    return gw_strings_search(lane->image, table, bytes, length, first);\n}}\n",
            header("strings")
        ),
    }
}

fn exact(table: &Table, name: &str) -> String {
    let words = KeyWords::of(&table.key);
    let Some(packing) = Packing::of(&table.key, &table.row) else { return exact_wide(table, name, &words) };
    let key = words.0.first().map_or_else(|| "0".to_owned(), |parts| word(parts, &table.key));
    let half = packing.half_bits;
    let mut text = format!(
        "    const gw_u64 mixed = gw_exact_mix(table, {key}, {half}u);\n    \
         GW_EXPENSIVE(gw_exact_one(lane->image, table, mixed));\n    \
         GW_EXPENSIVE(gw_exact_other(lane->image, table, mixed));\n    \
         const gw_u64 entry = gw_exact_entry(lane->image, table, mixed, {}u);\n    \
         if (entry == 0) {{\n        return 0;\n    }}\n",
        packing.rest_shift()
    );
    let mut shift = Packing::FLAG_BITS;
    for field in &table.row {
        let FieldType::Scalar(scalar) = field.kind else { continue };
        let bits = scalar.bits();
        let mask = u64::MAX >> (64 - bits.min(64));
        let _ = writeln!(text, "    row->{} = ({})(entry >> {shift} & {mask:#x}u);", field.name, scalar.c_word());
        shift += bits;
    }
    text + "    return 1;\n}\n"
}

/// Returns the body of the C function that looks up a key in a wide hash table. The entries refer
/// to records, because a key and a row do not fit into 64 bits.
fn exact_wide(table: &Table, name: &str, words: &KeyWords) -> String {
    let mut text = String::new();
    let (count, row_offset) = (words.len(), words.len() * 8);
    for (index, parts) in words.0.iter().enumerate() {
        let _ = writeln!(text, "    const gw_u64 word{index} = {};", word(parts, &table.key));
    }
    text += "    gw_u64 mixed = gw_exact_begin(table);\n";
    for index in 0..count {
        let _ = writeln!(text, "    mixed = gw_exact_step(table, mixed, word{index}, {index}u);");
    }
    text += "    mixed = gw_exact_finish(table, mixed);\n    \
             GW_EXPENSIVE(gw_exact_one(lane->image, table, mixed));\n    \
             GW_EXPENSIVE(gw_exact_other(lane->image, table, mixed));\n    \
             gw_u32 at = 0;\n    \
             for (gw_u32 probe = 0; probe < GW_EXACT_PROBES; probe++) {\n        \
             const gw_u64 entry = gw_exact_next(lane->image, table, mixed, &at);\n        \
             if (entry == 0) {\n            return 0;\n        }\n        \
             const GW_GLOBAL gw_u64 *record = gw_exact_record(lane->image, table, entry);\n        \
             GW_EXPENSIVE(record);\n";
    let equal: Vec<String> = (0..count).map(|index| format!("record[{index}] == word{index}")).collect();
    let _ = writeln!(
        text,
        "        if ({}) {{\n            *row = *(const GW_GLOBAL {name}_row *)((const GW_GLOBAL gw_u8 *)record + {row_offset});\n            return 1;\n        }}\n    }}\n    return 0;\n}}",
        equal.join(" && ")
    );
    text
}

/// Returns the C expression for one 64-bit word of a key.
pub(super) fn word(parts: &[crate::words::Part], key: &[Field]) -> String {
    let part = |part: &crate::words::Part| {
        let field = &key[part.field];
        let index =
            if field.kind == FieldType::Scalar(Scalar::Ipv6) { format!("[{}]", part.word) } else { String::new() };
        let mask = match (part.bits, part.bits.is_power_of_two() && part.bits >= 8) {
            (_, true) => String::new(),
            (bits, false) => format!(" & {:#x}u", u64::MAX >> (64 - bits)),
        };
        let value = format!("(gw_u64)key->{}{index}", field.name);
        let value = if mask.is_empty() { value } else { format!("({value}{mask})") };
        if part.shift == 0 { value } else { format!("{value} << {}", part.shift) }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" | ")
}

/// Returns the C expressions for all words of a key, padded with zeros to `count` words.
fn word_list(words: &KeyWords, key: &[Field], count: usize) -> String {
    let list = words.0.iter().map(|parts| word(parts, key)).chain(std::iter::repeat("0".to_owned()));
    list.take(count).collect::<Vec<_>>().join(", ")
}
