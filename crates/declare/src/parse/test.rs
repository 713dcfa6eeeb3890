//! Reads the test packets of a declaration.

use crate::Error;
use crate::declaration::TestDeclaration;

use super::section::Section;

/// Reads the TOML table `[test]` of a declaration.
pub(super) fn read(root: &mut Section<'_>, name: &str) -> Result<Option<TestDeclaration>, Error> {
    let Some(mut section) = root.section("test")? else { return Ok(None) };
    let frames = section.require_text("frames")?;
    let expect = section.text("expect")?.unwrap_or_else(|| format!("{name}.expect"));
    let ports = section.texts("ports")?.unwrap_or_else(|| vec!["in".to_owned(), "out".to_owned()]);
    let unreached = section.texts("unreached")?.unwrap_or_default();
    let mut stanza = String::new();
    for part in ["tables", "params"] {
        let Some(mut table) = section.section(part)? else { continue };
        for entry in table.entries() {
            let key = format!("{part}.{}", entry.name);
            let value = entry.literal(&key)?;
            stanza += &format!("{key} = {}\n", toml::Value::String(value));
        }
    }
    section.finish()?;
    Ok(Some(TestDeclaration { frames, expect, ports, unreached, stanza }))
}
