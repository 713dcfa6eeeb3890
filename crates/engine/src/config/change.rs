//! Reads a new function chain for a running engine. Only packet classes and edges may differ from
//! the current configuration.

use std::path::Path;

use godwit_chain::{Chain, Classifier};
use zeroize::Zeroizing;

use super::document::{Document, Stanza};
use super::error::ConfigError;
use super::fingerprint::Fingerprint;
use super::settings::Room;
use super::{Config, STANZAS, chain, classes, feeds, folder, read, workers};

/// The part of a configuration that can change at run time.
#[derive(Debug)]
pub struct ChainConfig {
    /// Classifier that maps a packet to its class.
    pub classifier: Classifier,
    /// Function chain, which determines the next function or port of each packet.
    pub chain: Chain,
    /// Warnings about probable mistakes. Each warning is one sentence.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads a new function chain for the ports and functions of this configuration. `text`
    /// contains only `[[class]]` and `[[chain]]` stanzas. Errors show `origin` as the file name.
    /// Relative paths in `text` start at `directory`.
    ///
    /// # Errors
    /// Returns an error if the text is invalid, or the running engine cannot use the chain.
    pub fn read_chain(&self, text: &str, origin: &str, directory: &Path) -> Result<ChainConfig, ConfigError> {
        let document = Document::new(text, origin);
        let root = document.root()?;
        if let Some(at) = root.first_of(|key| STANZAS.contains(&key) && !matches!(key, "class" | "chain")) {
            let message =
                "a chain contains only [[class]] and [[chain]] stanzas: nothing else can change while Godwit runs";
            return Err(document.refuse(at, message));
        }
        root.refuse_unknown(&document, &["class", "chain"])?;
        self.chain_of(&document, root, directory)
    }

    /// Reads the function chain again from the configuration file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is invalid, or the running engine cannot use the chain. Only
    /// classes and edges may have changed in the file.
    pub fn read_again(&self) -> Result<ChainConfig, ConfigError> {
        let Some(path) = &self.path else {
            return Err(ConfigError::at(
                &self.origin,
                1,
                "this configuration is not from a file, so it cannot be reloaded",
            ));
        };
        // The text may contain keys, so it is overwritten after use.
        let text = Zeroizing::new(read(path)?);
        let document = Document::new(&text, &self.origin);
        let root = document.root()?;
        root.refuse_unknown(&document, &STANZAS)?;
        if let Some((at, what)) = self.fingerprint.difference(&Fingerprint::new(root.rest())) {
            let message = format!("{what}: only [[class]] and [[chain]] can change while Godwit runs");
            return Err(document.refuse(at.unwrap_or(0..0), message));
        }
        self.chain_of(&document, root, folder(path))
    }

    fn chain_of<'a>(
        &self,
        document: &Document<'a>,
        mut root: Stanza<'a>,
        directory: &Path,
    ) -> Result<ChainConfig, ConfigError> {
        let (names, rules) = classes::read(document, root.tables(document, "class")?)?;
        let edges = root.tables(document, "chain")?;
        let mut warnings = Vec::new();
        let (ports, functions) = (&self.ports, &self.functions);
        let chain = chain::read(document, edges, directory, ports, functions, &names, &mut warnings)?;
        workers::check(document, &self.engine, &chain, functions)?;
        let at = root.span_of("chain");
        let refuse = |message: String| Err(document.refuse(at.clone(), message));
        let needed = Room::needed(&chain, functions);
        if !self.room.is_enough_for(&needed) {
            let Room { headroom_bytes, tailroom_bytes, .. } = self.room;
            return refuse(format!(
                "this chain needs {} bytes of headroom and {} of tailroom, but buffers have {headroom_bytes} and \
                 {tailroom_bytes}: restart Godwit with this chain, or with larger headroom_bytes and tailroom_bytes in [arena]",
                needed.headroom_bytes, needed.tailroom_bytes
            ));
        }
        let unopened = (0..ports.len()).find(|&port| feeds(&chain, port as u8) && !self.feeds_chain(port as u8));
        if let Some(port) = unopened {
            return refuse(format!(
                "port `{}` does not receive, because no edge started at it when Godwit was started: restart Godwit with \
                 this chain",
                ports[port].name
            ));
        }
        Ok(ChainConfig { classifier: Classifier::new(&rules), chain, warnings })
    }
}
