//! TOML text of configurations.

use std::fmt;

/// Builder for the text of a configuration. Stanzas appear in the order of the calls.
///
/// Parameters called `keys` are lines of TOML, such as `"flows = 3\nseed = 5"`.
///
/// ```
/// use godwit_test_support::ConfigText;
///
/// let text = ConfigText::new()
///     .engine("workers = 2")
///     .port("in", "synthetic", "packets = 100")
///     .port("out", "synthetic", "")
///     .function("swap", "template", "")
///     .path(&["in", "swap", "out"])
///     .to_string();
/// assert!(text.contains("[[chain]]\nfrom = \"swap\"\nto = \"out\"\n"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigText(String);

impl ConfigText {
    /// Creates an empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends text as it is.
    pub fn raw(mut self, text: &str) -> Self {
        self.0 += text;
        if !text.is_empty() && !text.ends_with('\n') {
            self.0.push('\n');
        }
        self
    }

    /// Appends the table `[engine]`. Threads are not pinned to cores, because tests share the
    /// cores.
    pub fn engine(self, keys: &str) -> Self {
        self.raw("[engine]\npin = false").raw(keys)
    }

    /// Appends the table `[name]`, such as `[packing]`.
    pub fn table(self, name: &str, keys: &str) -> Self {
        self.raw(&format!("[{name}]")).raw(keys)
    }

    /// Appends a `[[device]]`.
    pub fn device(self, name: &str, keys: &str) -> Self {
        self.stanza("device", &[("name", name)], keys)
    }

    /// Appends a `[[port]]`.
    pub fn port(self, name: &str, kind: &str, keys: &str) -> Self {
        self.stanza("port", &[("name", name), ("kind", kind)], keys)
    }

    /// Appends a `[[function]]`.
    pub fn function(self, name: &str, kind: &str, keys: &str) -> Self {
        self.stanza("function", &[("name", name), ("kind", kind)], keys)
    }

    /// Appends `[[function.table]]` to the last function.
    pub fn nested(self, table: &str, keys: &str) -> Self {
        self.stanza(&format!("function.{table}"), &[], keys)
    }

    /// Appends `[function.table]` to the last function.
    pub fn nested_table(self, table: &str, keys: &str) -> Self {
        self.table(&format!("function.{table}"), keys)
    }

    /// Appends a `[[class]]`.
    pub fn class(self, name: &str, keys: &str) -> Self {
        self.stanza("class", &[("name", name)], keys)
    }

    /// Appends a `[[chain]]` from one stage to the next.
    pub fn edge(self, from: &str, to: &str) -> Self {
        self.stanza("chain", &[("from", from), ("to", to)], "")
    }

    /// Appends a `[[chain]]` for the packets of a class.
    pub fn class_edge(self, from: &str, class: &str, to: &str) -> Self {
        self.stanza("chain", &[("from", from), ("class", class), ("to", to)], "")
    }

    /// Appends a `[[chain]]` for a verdict.
    pub fn verdict_edge(self, from: &str, verdict: &str, to: &str) -> Self {
        self.stanza("chain", &[("from", from), ("verdict", verdict), ("to", to)], "")
    }

    /// Appends a `[[chain]]` for each pair of adjacent stages.
    pub fn path(self, stages: &[&str]) -> Self {
        stages.windows(2).fold(self, |text, pair| text.edge(pair[0], pair[1]))
    }

    /// Appends a router with the function `route` of kind `ipv4`, from synthetic port `from` to
    /// synthetic port `to`. The route of 10.0.0.0/8 leads to the next hop `east`. `keys` belong to
    /// port `from`, and `more` to the function.
    pub fn router(self, from: &str, to: &str, keys: &str, more: &str) -> Self {
        let macs = "destination_mac = \"02:00:00:00:01:01\"\nsource_mac = \"02:00:00:00:01:02\"";
        self.port(from, "synthetic", keys)
            .port(to, "synthetic", "")
            .function("route", "ipv4", "")
            .nested("next_hop", &format!("name = \"east\"\nport = \"{to}\"\n{macs}"))
            .nested("route", "prefix = \"10.0.0.0/8\"\nnext_hop = \"east\"")
            .raw(more)
            .edge(from, "route")
            .verdict_edge("route", "forward", "egress")
    }

    /// Appends a synthetic port `in` whose packets return to it through the function `back` of kind
    /// `echo`.
    pub fn echo(self) -> Self {
        self.port("in", "synthetic", "rate = \"100kpps\"").function("back", "echo", "").path(&["in", "back", "in"])
    }

    fn stanza(mut self, table: &str, texts: &[(&str, &str)], keys: &str) -> Self {
        self = self.raw(&format!("[[{table}]]"));
        for (key, text) in texts {
            // The escapes of a Rust string are those of TOML for the texts of tests.
            self = self.raw(&format!("{key} = {text:?}"));
        }
        self.raw(keys)
    }
}

impl fmt::Display for ConfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
