//! Generates Rust numbers, structs and contracts for built-in functions.

use std::fmt::Write as _;

use crate::declaration::{Declaration, Record};
use crate::layout::{ImageLayout, RecordLayout};
use crate::types::{Field, FieldType, Scalar};

/// Returns a Rust module with a function's contract and numbers.
pub fn module(declaration: &Declaration) -> String {
    let mut text = String::new();
    let name = &declaration.name;
    let _ = writeln!(text, "/// Contract and numbers of `{name}`.\npub mod {name} {{");
    for (number, verdict) in declaration.verdicts.iter().enumerate() {
        number_of(&mut text, "VERDICT", &verdict.name, number, &verdict.text);
    }
    for (number, drop) in declaration.drops.iter().enumerate() {
        number_of(&mut text, "DROP", &drop.name, number, &drop.text);
    }
    for (number, variant) in declaration.variants.iter().enumerate() {
        number_of(&mut text, "VARIANT", variant, number, &format!("Variant `{variant}`."));
    }
    text += "    /// Contract of the function.\n    pub static CONTRACT: godwit_declare::Contract = godwit_declare::Contract {\n";
    let mut field = |name: &str, value: String| {
        // Writing to a String never fails.
        let _ = writeln!(text, "        {name}: {value},");
    };
    let number = declaration.number.filter(|_| declaration.has_kernel);
    field("kind", format!("{name:?}"));
    field("summary", format!("{:?}", declaration.summary));
    field("kernel", format!("{number:?}"));
    let verdicts = declaration.verdicts.iter().map(|verdict| {
        format!(
            "godwit_declare::Verdict {{ name: {:?}, sentence: {:?}, chooses_port: {} }}",
            verdict.name, verdict.text, verdict.chooses_port
        )
    });
    field("verdicts", list(verdicts));
    let drops = declaration.drops.iter();
    field(
        "drops",
        list(drops.map(|drop| format!("godwit_declare::Drop {{ name: {:?}, sentence: {:?} }}", drop.name, drop.text))),
    );
    field("variants", list(declaration.variants.iter().map(|variant| format!("{variant:?}"))));
    field("in_order", declaration.needs_order().to_string());
    let host = declaration.host_use();
    field(
        "host",
        format!(
            "godwit_declare::HostUse {{ reads_previous: {}, reads_times: {}, continues_on_device: {} }}",
            host.reads_previous, host.reads_times, host.continues_on_device
        ),
    );
    field("reads_bytes", declaration.reads.bytes().to_string());
    field("writes_bytes", declaration.writes.bytes().to_string());
    field("headroom_bytes", declaration.headroom_bytes.to_string());
    field("tailroom_bytes", declaration.tailroom_bytes.to_string());
    let counters = super::counters(declaration).into_iter().map(|(name, unit, sentence)| {
        format!("godwit_declare::Counter {{ name: {name:?}, unit: {unit:?}, sentence: {sentence:?} }}")
    });
    field("counters", list(counters));
    let of_kernel = ImageLayout::of(declaration).counters;
    field(
        "kernel_counters",
        format!("godwit_declare::KernelCounters {{ offset: {}, count: {} }}", of_kernel.offset, of_kernel.count),
    );
    field("spec", format!("{:?}", declaration.spec));
    text + "    };\n}\n"
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("&[{}]", items.collect::<Vec<_>>().join(", "))
}

fn number_of(text: &mut String, kind: &str, name: &str, number: usize, meaning: &str) {
    let _ = writeln!(text, "    /// {meaning}\n    pub const {kind}_{}: u8 = {number};", name.to_ascii_uppercase());
}

/// Returns the Rust code of a function's structs and constants. Their names start with the
/// function's name.
pub fn image(declaration: &Declaration) -> String {
    let mut text = String::new();
    let upper = declaration.name.to_ascii_uppercase();
    if declaration.has_own_image() {
        let magic = declaration.magic;
        let _ = writeln!(
            text,
            "/// First word of the image of `{}`.\npub const {upper}_MAGIC: u32 = {magic:#010x};",
            declaration.name
        );
    }
    for constant in &declaration.constants {
        let (name, kind, value) = (constant.name.to_ascii_uppercase(), &constant.kind, constant.value);
        let _ = writeln!(text, "/// {}\npub const {upper}_{name}: {kind} = {value:#x};", constant.text);
    }
    for record in &declaration.records {
        text += &record_struct(declaration, record);
    }
    text
}

/// Returns the Rust name of a struct. For example, the function `l2` and the struct `next_hop` give
/// `L2NextHop`.
fn type_name(declaration: &Declaration, record: &str) -> String {
    let word = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    std::iter::once(declaration.name.as_str()).chain(record.split('_')).map(word).collect()
}

fn record_struct(declaration: &Declaration, record: &Record) -> String {
    let name = type_name(declaration, &record.name);
    let mut text = String::new();
    let default = if record.has_default { ", Default" } else { "" };
    let _ = writeln!(
        text,
        "/// {} (`gw_{}_{}`).\n#[repr(C)]\n#[derive(Clone, Copy, Debug, PartialEq, Eq{default})]\npub struct {name} {{",
        record.text.trim_end_matches('.'),
        declaration.name,
        record.name
    );
    for field in &record.fields {
        let meaning = if field.text.is_empty() { format!("`{}`", field.name) } else { field.text.clone() };
        let _ = writeln!(
            text,
            "    /// {}\n    pub {}: {},",
            sentence(&meaning),
            field.name,
            rust_type(declaration, field)
        );
    }
    text += "}\n";
    if let Ok(layout) = RecordLayout::of(record, &declaration.records) {
        let _ = writeln!(text, "const _: () = assert!(size_of::<{name}>() == {});", layout.bytes);
        for (field, offset) in record.fields.iter().zip(&layout.offsets) {
            let _ = writeln!(text, "const _: () = assert!(std::mem::offset_of!({name}, {}) == {offset});", field.name);
        }
        let _ = writeln!(
            text,
            "impl {name} {{\n    /// Returns the bytes of the struct in the image.\n    pub fn emit(&self) -> [u8; size_of::<Self>()] {{\n        let mut bytes = [0; size_of::<Self>()];"
        );
        for (field, offset) in record.fields.iter().zip(&layout.offsets) {
            text += &emit(field, *offset);
        }
        text += "        bytes\n    }\n}\n";
    }
    text
}

/// Returns the Rust statement that writes a field to `bytes`.
fn emit(field: &Field, offset: usize) -> String {
    let name = &field.name;
    let copy =
        |value: String, from: String, size: usize| format!("bytes[{from}..][..{size}].copy_from_slice(&{value});");
    let line = match &field.kind {
        FieldType::Scalar(Scalar::Ipv6) => {
            format!(
                "for (index, word) in self.{name}.iter().enumerate() {{ {} }}",
                copy("word.to_le_bytes()".into(), format!("{offset} + 8 * index"), 8)
            )
        }
        FieldType::Scalar(scalar) => {
            copy(format!("self.{name}.to_le_bytes()"), offset.to_string(), scalar.word_bytes())
        }
        FieldType::Array(scalar, count) if scalar.word_bytes() == 1 => {
            copy(format!("self.{name}"), offset.to_string(), *count)
        }
        FieldType::Array(scalar, _) => {
            let size = scalar.word_bytes();
            format!(
                "for (index, word) in self.{name}.iter().enumerate() {{ {} }}",
                copy("word.to_le_bytes()".into(), format!("{offset} + {size} * index"), size)
            )
        }
        FieldType::Record(_) => {
            format!("let part = self.{name}.emit(); bytes[{offset}..][..part.len()].copy_from_slice(&part);")
        }
        FieldType::Records(..) => format!(
            "for (index, part) in self.{name}.iter().enumerate() {{ let part = part.emit(); bytes[{offset} + part.len() * index..][..part.len()].copy_from_slice(&part); }}"
        ),
    };
    format!("        {line}\n")
}

/// Returns a description with an initial capital letter and a full stop.
fn sentence(meaning: &str) -> String {
    let mut letters = meaning.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().collect::<String>()).unwrap_or_default();
    let end = if meaning.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

fn rust_type(declaration: &Declaration, field: &Field) -> String {
    let unsigned = |scalar: Scalar| format!("u{}", scalar.word_bytes() * 8);
    match &field.kind {
        FieldType::Scalar(Scalar::Ipv6) => "[u64; 2]".to_owned(),
        FieldType::Scalar(scalar) => unsigned(*scalar),
        FieldType::Array(scalar, count) => format!("[{}; {}]", unsigned(*scalar), count * scalar.words()),
        FieldType::Record(of) => type_name(declaration, of),
        FieldType::Records(of, count) => format!("[{}; {count}]", type_name(declaration, of)),
    }
}
