//! Generates the C header of a function, with numbers, structs and lookup functions.

use std::fmt::Write as _;

use crate::declaration::{Declaration, Param, ParamShape, Record};
use crate::layout::{ImageLayout, RecordLayout};
use crate::types::{Field, FieldType, Scalar};

use super::{accessors, counters, flows, prefix, upper};

/// Returns the C header of a function. `number` is the function's kernel number.
pub fn header(declaration: &Declaration, number: Option<u8>) -> String {
    let upper = upper(declaration);
    let mut text = format!(
        "/* Generated from the declaration of {}. */\n#ifndef {upper}_DECLARED_H\n#define {upper}_DECLARED_H\n",
        declaration.name
    );
    let mut define = |name: &str, value: String| {
        // Writing to a String never fails.
        let _ = writeln!(text, "#define {upper}_{} {value}", name.to_ascii_uppercase());
    };
    if let Some(number) = number {
        define("number", format!("{number}u"));
    }
    define("magic", format!("{:#010x}u", declaration.magic));
    for (number, verdict) in declaration.verdicts.iter().enumerate() {
        define(&verdict.name, format!("{number}u"));
    }
    for (number, drop) in declaration.drops.iter().enumerate() {
        define(&declaration.drop_macro(&drop.name), format!("{number}u"));
    }
    for (number, variant) in declaration.variants.iter().enumerate() {
        define(&format!("variant_{variant}"), format!("{number}u"));
    }
    for constant in &declaration.constants {
        let value = match u32::try_from(constant.value) {
            Ok(value) => format!("{value:#x}u"),
            // OpenCL compilers agree on no suffix for 64-bit constants.
            Err(_) => format!("((gw_u64){:#x}u << 32 | {:#x}u)", constant.value >> 32, constant.value as u32),
        };
        define(&constant.name, value);
    }
    for record in &declaration.records {
        text += &record_struct(declaration, record);
    }
    if ImageLayout::is_needed(declaration) {
        text += &params(declaration);
    }
    text += &accessors::tables(declaration);
    text += &counters::increments(declaration);
    text += &flows::structs(declaration);
    text + "#endif\n"
}

/// Returns the C code of a declared struct, with static assertions for its size and field offsets.
fn record_struct(declaration: &Declaration, record: &Record) -> String {
    let name = format!("{}_{}", prefix(declaration), record.name);
    let mut text = format!("\ntypedef struct {name} {{\n");
    for field in &record.fields {
        let comment = if field.text.is_empty() { String::new() } else { format!(" /* {} */", field.text) };
        let _ = writeln!(text, "    {};{comment}", member(declaration, field));
    }
    let _ = writeln!(text, "}} {name};");
    if let Ok(layout) = RecordLayout::of(record, &declaration.records) {
        asserts(&mut text, &name, &record.fields, &layout);
    }
    text
}

/// Appends static assertions for a struct's size and field offsets.
fn asserts(text: &mut String, name: &str, fields: &[Field], layout: &RecordLayout) {
    let short = name.trim_start_matches("gw_");
    let _ = writeln!(text, "GW_STATIC_ASSERT(sizeof({name}) == {}, {short}_size);", layout.bytes);
    for (field, offset) in fields.iter().zip(&layout.offsets).filter(|(_, offset)| **offset > 0) {
        let _ = writeln!(text, "GW_ASSERT_OFFSET({name}, {}, {offset});", field.name);
    }
}

/// Returns the C struct of a key or a row.
pub(super) fn plain_struct(declaration: &Declaration, name: &str, fields: &[Field]) -> String {
    let mut text = format!("\ntypedef struct {name} {{\n");
    for field in fields {
        let _ = writeln!(text, "    {};", member(declaration, field));
    }
    let _ = writeln!(text, "}} {name};");
    asserts(&mut text, name, fields, &RecordLayout::padded(fields));
    text
}

/// Returns the C declaration of a struct member, without a semicolon.
fn member(declaration: &Declaration, field: &Field) -> String {
    let record = |name: &str| format!("{}_{name}", prefix(declaration));
    let name = &field.name;
    match &field.kind {
        FieldType::Scalar(Scalar::Ipv6) => format!("gw_u64 {name}[2]"),
        FieldType::Scalar(scalar) => format!("{} {name}", scalar.c_word()),
        FieldType::Array(scalar, count) => format!("{} {name}[{}]", scalar.c_word(), count * scalar.words()),
        FieldType::Record(of) => format!("{} {name}", record(of)),
        FieldType::Records(of, count) => format!("{} {name}[{count}]", record(of)),
    }
}

/// Returns the C struct of the parameters, and the C function that returns it.
fn params(declaration: &Declaration) -> String {
    let (prefix, layout) = (prefix(declaration), ImageLayout::of(declaration));
    if declaration.params.is_empty() {
        return String::new();
    }
    let mut text = format!("\nstruct {prefix}_params {{\n");
    for param in &declaration.params {
        text += &param_members(param);
    }
    let _ = writeln!(text, "}};\ntypedef struct {prefix}_params {prefix}_parameters;");
    let short = prefix.trim_start_matches("gw_");
    for (param, offsets) in declaration.params.iter().zip(&layout.params) {
        let _ = writeln!(text, "GW_ASSERT_OFFSET({prefix}_parameters, {}, {});", last_member(param), offsets.second);
    }
    let _ = write!(
        text,
        "GW_STATIC_ASSERT(sizeof({prefix}_parameters) <= {}, {short}_params_size);\n\
         GW_LANE const GW_GLOBAL struct {prefix}_params *{prefix}_params(const gw_lane *lane)\n{{\n    \
         return (const GW_GLOBAL struct {prefix}_params *)(lane->image + {});\n}}\n",
        layout.params_bytes, layout.params_offset
    );
    text
}

fn param_members(param: &Param) -> String {
    let name = &param.name;
    match param.shape {
        ParamShape::Scalar(Scalar::Ipv6) => format!("    gw_u64 {name}[2];\n"),
        ParamShape::Scalar(scalar) => format!("    {} {name};\n", scalar.c_word()),
        ParamShape::Prefix4 => format!("    gw_u32 {name};\n    gw_u32 {name}_mask;\n"),
        ParamShape::Prefix6 => format!("    gw_u64 {name}[2];\n    gw_u64 {name}_mask[2];\n"),
        ParamShape::List(scalar, max) => {
            format!("    gw_u32 {name}_count;\n    {} {name}[{}];\n", scalar.c_word(), max as usize * scalar.words())
        }
    }
}

/// Returns the name of the parameter's last member in the generated C struct.
fn last_member(param: &Param) -> String {
    match param.shape {
        ParamShape::Prefix4 | ParamShape::Prefix6 => format!("{}_mask", param.name),
        ParamShape::Scalar(_) | ParamShape::List(..) => param.name.clone(),
    }
}
