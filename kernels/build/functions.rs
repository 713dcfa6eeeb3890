//! Built-in functions: every folder with a declaration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use godwit_declare::{Declaration, Form, generate};

use crate::{read, write};

/// Placeholder in the device source texts, which `src/custom.rs` replaces with users' functions.
const CUSTOM: &str = "/* begin custom */\n#define GW_CUSTOM_FUNCTIONS(X)\n/* end custom */\n";

/// A function and its kernel.
pub(super) struct Function {
    pub(super) declaration: Declaration,
    /// Whether the kernel has a touch function.
    pub(super) touches: bool,
}

/// All functions in the order of their kernel numbers. Functions without a kernel are last.
pub(super) struct Functions(pub(super) Vec<Function>);

impl Functions {
    /// Reads the declaration `NAME/NAME.h` of every folder, and checks that no two functions have
    /// the same kernel number.
    pub(super) fn read(root: &Path) -> Self {
        let mut functions = Vec::new();
        for entry in fs::read_dir(root).expect("the kernels folder is readable") {
            let folder = entry.expect("the kernels folder is readable").path();
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = folder.join(format!("{name}.h"));
            if !path.is_file() {
                continue;
            }
            let text = read(&path);
            if !text.starts_with("/* godwit function ") {
                continue;
            }
            let declaration = Declaration::parse(&text)
                .unwrap_or_else(|error| panic!("kernels/{name}/{name}.h:{}: {error}", error.line));
            assert_eq!(declaration.name, name, "the folder of a function has its name");
            let needs_number = declaration.has_kernel;
            assert_eq!(
                declaration.number.is_some(),
                needs_number,
                "{name}: `number` belongs to functions with a kernel"
            );
            assert!(declaration.flows.is_none(), "{name}: `[flows]` is available to functions of users only");
            let touches = text.contains(&format!("gw_{name}_touch("));
            functions.push(Function { declaration, touches });
        }
        functions.sort_by_key(|function| {
            (function.declaration.number.unwrap_or(u8::MAX), function.declaration.name.clone())
        });
        for pair in functions.windows(2) {
            let [a, b] = [&pair[0].declaration, &pair[1].declaration];
            assert!(a.number.is_none() || a.number != b.number, "{} and {} have the same number", a.name, b.name);
        }
        Self(functions)
    }

    pub(super) fn kernels(&self) -> impl Iterator<Item = (u8, &Function)> {
        self.0.iter().filter_map(|function| Some((function.declaration.number?, function)))
    }

    /// Returns the generated C headers by their paths below `kernels/`.
    pub(super) fn headers(&self) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::new();
        let mut functions = String::from(
            "/* All functions with a kernel. Generated from their declarations. */\n#ifndef GODWIT_FUNCTIONS_H\n\
             #define GODWIT_FUNCTIONS_H\n#include \"common/frame.h\"\n#include \"common/payload.h\"\n#include \"common/checksum.h\"\n#include \"tables/tables.h\"\n",
        );
        let mut rows = String::new();
        for (number, Function { declaration, .. }) in self.kernels() {
            let name = &declaration.name;
            headers.insert(format!("{name}/declared.h"), generate::header::header(declaration, Some(number)));
            // gopt refuses lookups that no function calls.
            for table in &declaration.tables {
                let _ = writeln!(functions, "#include \"tables/{}.h\"", table.shape.name());
            }
            let _ = writeln!(functions, "#include \"{name}/declared.h\"\n#include \"{name}/{name}.h\"");
            let _ = write!(rows, " X({number}, {name})");
        }
        let _ = writeln!(
            functions,
            "/* begin built_in */\n#define GW_BUILT_IN_FUNCTIONS(X){rows}\n/* end built_in */\n\
             {CUSTOM}#define GW_FUNCTIONS(X) GW_BUILT_IN_FUNCTIONS(X) GW_CUSTOM_FUNCTIONS(X)\n#endif"
        );
        headers.insert("functions.h".to_owned(), functions);
        headers.insert("groups.h".to_owned(), self.groups());
        headers
    }

    /// Returns a C header that selects, for each function, one or several work-items per packet
    /// (`dialect/README.md`).
    fn groups(&self) -> String {
        let mut text = String::from(
            "/* Forms of all functions on devices. Generated from their declarations. */\n#ifndef GODWIT_GROUPS_H\n\
             #define GODWIT_GROUPS_H\n",
        );
        let (mut groups, mut teams, mut forms) = (String::new(), String::new(), String::new());
        for (_, Function { declaration, .. }) in self.kernels() {
            let name = &declaration.name;
            let form = match declaration.form {
                Form::Lane => "GW_BY_LANE",
                Form::Group => "GW_GROUP_FORM",
                Form::Team => "GW_TEAM_FORM",
            };
            let _ = writeln!(forms, "#define GW_FORM_{name} {form}");
            if declaration.form == Form::Lane {
                continue;
            }
            let _ = writeln!(text, "#include \"{name}/group.h\"");
            let _ = write!(if declaration.form == Form::Team { &mut teams } else { &mut groups }, " X({name})");
        }
        let _ = writeln!(text, "{forms}#define GW_GROUP_FORMS(X){groups} GW_TEAM_FORMS({})\n#endif", teams.trim());
        text
    }

    pub(super) fn write_headers(&self, folder: &Path) {
        for (path, text) in self.headers() {
            write(&folder.join(path), &text);
        }
    }

    /// Writes contracts, numbers and structs in Rust.
    pub(super) fn write_rust(&self, out: &Path) {
        let (mut kernels, mut declared, mut image, mut texts) =
            (String::new(), String::new(), String::new(), String::new());
        for Function { declaration, .. } in &self.0 {
            let name = &declaration.name;
            declared += &generate::rust::module(declaration);
            image += &generate::rust::image(declaration);
            let _ = writeln!(
                texts,
                "    (&{name}::CONTRACT, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{name}/{name}.h\"))),"
            );
        }
        for (number, Function { declaration, .. }) in self.kernels() {
            let (name, upper) = (&declaration.name, declaration.name.to_ascii_uppercase());
            let _ = writeln!(kernels, "/// Number of the kernel `{name}`.\npub const {upper}: u8 = {number};");
        }
        kernels += "/// All kernels, in the order of their numbers.\npub const KERNELS: &[KernelInfo] = &[\n";
        for (number, Function { declaration, .. }) in self.kernels() {
            let _ = writeln!(kernels, "    KernelInfo {{ number: {number}, name: \"{}\" }},", declaration.name);
        }
        let _ = write!(
            declared,
            "/// Contract and source text of every function, in the order of their kernel numbers. The\n\
             /// text begins with the declaration.\n\
             pub static DECLARED: &[(&godwit_declare::Contract, &str)] = &[\n{texts}];\n"
        );
        write(&out.join("kernels.rs"), &(kernels + "];\n"));
        write(&out.join("declared.rs"), &declared);
        write(&out.join("image.rs"), &image);
    }
}
