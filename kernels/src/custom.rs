//! Adds users' functions to the built-in source texts.

use std::collections::BTreeSet;

use godwit_declare::{Declaration, generate};

use crate::Level;

/// Source text for the CPU. Comments mark the parts that a user's function replaces.
const CPU: &str = include_str!(concat!(env!("OUT_DIR"), "/custom.c"));
/// Template of a packet loop that gopt interleaves.
const LOOP: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/dialect/loop_gopt.c"));
/// Header of the flow state. Only CPU source texts include it.
const FLOWS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/flows.h"));
/// Template of the C code that prepares packets for a function with flows.
const FLOWS_LOOP: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/dialect/loop_flows.c"));
/// Headers of the table types that a function can declare, by the name of the type.
const SHAPES: &[(&str, &str)] = &[
    ("acl", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/acl.h"))),
    ("strings", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/strings.h"))),
    ("lpm6", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/acl.h"))),
    ("array", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/array.h"))),
    ("exact", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/exact.h"))),
    ("lpm4", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/lpm4.h"))),
    ("meter", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/meter.h"))),
    ("maglev", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/maglev.h"))),
];

/// The source text of a function that a user wrote.
#[derive(Clone, Copy, Debug)]
pub struct CustomText<'a> {
    /// Declaration of the function.
    pub declaration: &'a Declaration,
    /// Kernel number, 128 to 255.
    pub number: u8,
    /// Name of the file in messages of compilers.
    pub file: &'a str,
    /// Content of the file.
    pub text: &'a str,
}

/// Compiled and loaded kernel of a function that a user wrote.
#[derive(Debug)]
pub struct CustomKernel {
    /// Compiled kernels for the x86-64 levels that this machine supports, in ascending order.
    pub levels: &'static [Level],
    /// The kernel without optimisation.
    pub reference: &'static Level,
    /// Whether packets can be interleaved.
    pub interleaves: bool,
    /// Source text for devices that compile the function at run time.
    pub text: CustomText<'static>,
}

/// Text for the CPU.
#[derive(Debug)]
pub struct CpuText {
    /// The text. Its batch loops are not transformed yet.
    pub text: String,
    /// C function whose packet loop gopt must transform. The value is `None` if all accesses of the
    /// kernel are likely to hit a cache.
    pub batch: Option<String>,
}

impl CustomText<'_> {
    /// Returns a hash of the text that [`CustomText::cpu`] adds to each function.
    pub fn digest() -> u64 {
        let texts = [CPU, LOOP, FLOWS, FLOWS_LOOP].into_iter().chain(SHAPES.iter().map(|(_, text)| *text));
        texts
            .flat_map(str::bytes)
            .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }

    /// Returns the source text for the CPU. `expensive` returns the names of C functions with
    /// accesses that are marked with `GW_EXPENSIVE`, and of their callers.
    ///
    /// # Errors
    /// Returns the error of `expensive`.
    pub fn cpu<E>(&self, expensive: impl Fn(&str) -> Result<BTreeSet<String>, E>) -> Result<CpuText, E> {
        let name = &self.declaration.name;
        let text = replace(CPU, "shapes", &(self.shapes() + &self.flows()));
        let text = replace(&text, "function", &self.function());
        let interleaves = expensive(&text)?.contains(&format!("gw_{name}_packet"));
        let mut loops = match interleaves {
            true => part(LOOP, "NAME").replace("NAME", name),
            false if self.text.contains(&format!("gw_{name}_touch(")) => format!("GW_BIN_LOOP({name})\n"),
            false => format!("GW_NO_TOUCH({name})\nGW_BIN_LOOP({name})\n"),
        };
        let flag = u32::from(interleaves);
        loops += &format!("#define gw_custom_bin gw_bin_{name}\n#define GW_CUSTOM_INTERLEAVES {flag}u\n");
        loops += &format!("#define gw_custom_packet gw_{name}_packet\n");
        if let Some(entries) = generate::flow_entries(self.declaration, FLOWS_LOOP) {
            loops += &format!("#line 1 \"dialect/loop_flows.c\"\n{entries}#line 1 \"custom.c\"\n");
        }
        let batch = interleaves.then(|| format!("gw_bin_{name}"));
        Ok(CpuText { text: replace(&text, "loops", &loops), batch })
    }

    /// Returns the function's generated header and its text.
    fn function(&self) -> String {
        let Self { declaration, number, file, text } = self;
        let header = generate::header::header(declaration, Some(*number));
        format!(
            "#line 1 \"{}.h (generated)\"\n{header}#line 1 \"{file}\"\n{text}\n#line 1 \"custom.c\"\n",
            declaration.name
        )
    }

    /// Returns the flow state header if the function has flows.
    fn flows(&self) -> String {
        let header = |_: &_| format!("#line 1 \"tables/flows.h\"\n{FLOWS}\n");
        self.declaration.flows.as_ref().map(header).unwrap_or_default()
    }

    /// Returns the headers of the function's table types.
    fn shapes(&self) -> String {
        let uses = |shape: &str| self.declaration.tables.iter().any(|table| table.shape.name() == shape);
        let used = SHAPES.iter().filter(|(shape, _)| uses(shape));
        let text = |(shape, text): &(&str, &str)| format!("#line 1 \"tables/{shape}.h\"\n{text}\n");
        used.map(text).collect()
    }
}

/// Adds the users' functions `customs` to the source text of a device language. `text` is
/// [`opencl_source`](crate::opencl_source) or [`cuda_source`](crate::cuda_source).
///
/// If `has_built_in` is false, no bin calls a built-in function other than `template`, which probes
/// of a device run. The compiler then leaves out all other built-in kernels, which saves most of
/// its time.
pub fn device_source(text: &str, customs: &[CustomText<'_>], has_built_in: bool) -> String {
    if customs.is_empty() {
        return text.to_owned();
    }
    let mut added = String::new();
    let mut rows = String::new();
    for custom in customs {
        let name = &custom.declaration.name;
        added += &custom.shapes();
        added += &custom.function();
        added += &format!("#define GW_FORM_{name} GW_BY_LANE\n");
        rows += &format!(" X({}, {name})", custom.number);
    }
    let text = replace(text, "custom", &format!("{added}#define GW_CUSTOM_FUNCTIONS(X){rows}\n"));
    match has_built_in {
        true => text,
        false => {
            let template = format!("#define GW_BUILT_IN_FUNCTIONS(X) X({}, template)\n", crate::TEMPLATE);
            replace(&text, "built_in", &template)
        }
    }
}

/// Replaces the lines between `/* begin NAME */` and `/* end NAME */` with `by`.
fn replace(text: &str, name: &str, by: &str) -> String {
    let (begin, end) = (format!("/* begin {name} */\n"), format!("/* end {name} */\n"));
    let Some((before, rest)) = text.split_once(&begin) else { unreachable!("the text has a part `{name}`") };
    let Some((_, after)) = rest.split_once(&end) else { unreachable!("the part `{name}` ends") };
    format!("{before}{begin}{by}{end}{after}")
}

/// Returns the lines between `/* begin NAME */` and `/* end NAME */`.
fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let (begin, end) = (format!("/* begin {name} */\n"), format!("/* end {name} */\n"));
    let part = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    part.map_or("", |(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_functions_are_left_out_if_none_is_used() {
        let text = "/* godwit function mine\nsummary = \"Counts.\"\nreads = 14\n[verdicts]\ndone = \"Always.\"\n*/\n";
        let declaration = Declaration::parse(text).unwrap();
        let custom = CustomText { declaration: &declaration, number: 128, file: "mine.c", text };
        for source in [crate::opencl_source(), crate::cuda_source()] {
            assert!(source.contains("X(3, ipsec)"));
            assert_eq!(device_source(source, &[], false), source);
            for has_built_in in [true, false] {
                let added = device_source(source, &[custom], has_built_in);
                assert!(added.contains("X(128, mine)"));
                assert_eq!(added.contains("X(3, ipsec)"), has_built_in);
            }
        }
    }
}
