//! Another chain for a Godwit that runs: classes and edges may change, everything else stays what it was at the start.

use std::path::Path;

use godwit_chain::{Chain, Classifier};

use super::document::{Document, Stanza};
use super::fingerprint::Fingerprint;
use super::settings::Room;
use super::{Config, ConfigError, STANZAS, chain, classes, feeds, folder, read, workers};

/// What may change while packets flow.
#[derive(Debug)]
pub struct ChainConfig {
    /// Packet → class.
    pub classifier: Classifier,
    /// (stage, class, verdict) → next stage.
    pub chain: Chain,
    /// What is probably not meant, one sentence each.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads `[[class]]` and `[[chain]]` stanzas for the ports and functions of this configuration: all there is in `text`.
    /// `origin` is the name that errors show; relative file names start from `directory`.
    ///
    /// # Errors
    /// One sentence that says what is wrong, and where.
    pub fn read_chain(&self, text: &str, origin: &str, directory: &Path) -> Result<ChainConfig, ConfigError> {
        let document = Document::new(text, origin);
        let root = document.root()?;
        if let Some(at) = root.first_of(|key| STANZAS.contains(&key) && !matches!(key, "class" | "chain")) {
            let message = "a chain has [[class]] and [[chain]] stanzas only; nothing else changes while Godwit runs";
            return Err(document.refuse(at, message));
        }
        root.refuse_unknown(&document, &["class", "chain"])?;
        self.chain_of(&document, root, directory)
    }

    /// Reads the file of this configuration again.
    ///
    /// # Errors
    /// One sentence that says what is wrong, and where; also where anything but classes and edges is not as it was.
    pub fn read_again(&self) -> Result<ChainConfig, ConfigError> {
        let Some(path) = &self.path else {
            return Err(ConfigError::at(
                &self.origin,
                1,
                "this configuration is not from a file that could be read again",
            ));
        };
        let text = read(path)?;
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
                "this chain needs {} bytes in front of frames and {} behind them, and buffers were made with {headroom_bytes} and \
                 {tailroom_bytes} when Godwit was started: start it again with this chain, or with more headroom_bytes and \
                 tailroom_bytes in [arena]",
                needed.headroom_bytes, needed.tailroom_bytes
            ));
        }
        let unopened = (0..ports.len()).find(|&port| feeds(&chain, port as u8) && !self.feeds_chain(port as u8));
        if let Some(port) = unopened {
            return refuse(format!(
                "port `{}` does not receive, since no edge took packets from it when Godwit was started: start it again with \
                 this chain",
                ports[port].name
            ));
        }
        Ok(ChainConfig { classifier: Classifier::new(&rules), chain, warnings })
    }
}
