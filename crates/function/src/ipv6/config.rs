//! Configuration keys of `ipv6`.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::{Form, Spare};
use crate::config::value;
use crate::routes::{NextHopConfig, Resolved, RouteConfig, Stanza};
use crate::routing::{KernelRoutes, KernelRoutesConfig, ReversePath, ReversePathConfig};
use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `ipv6`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of a text file that contains routes.
    routes: Option<PathBuf>,
    /// Next hop of the routes that name no next hop.
    default_next_hop: Option<Spanned<String>>,
    /// Routes that are added after those of the file.
    #[serde(default)]
    route: Vec<RouteConfig>,
    /// Named next hops, which routes refer to by their names.
    #[serde(default)]
    next_hop: Vec<NextHopConfig>,
    /// Source of routes that the function follows: the kernel or a routing daemon.
    follow: Option<KernelRoutesConfig>,
    /// Lookup structure of the table.
    lookup: Option<Spanned<String>>,
    /// Number of spare next hops, as in [`Spare::next_hops`].
    spare_next_hops: Option<Spanned<usize>>,
    /// Spare memory for lookup structures, in lines of 64 bytes.
    spare_lines: Option<Spanned<usize>>,
    /// Mode of the reverse-path filter for each filtered port.
    reverse_path: Option<ReversePathConfig>,
}

/// Maximum of `spare_next_hops` and `spare_lines`. A table entry can hold this number of different
/// indices.
const SPARE_MAX: usize = 1 << 23;

impl Config {
    /// Returns the configured source of routes that the function follows.
    pub(super) fn kernel_routes(&self, context: &BuildContext<'_>) -> Result<Option<KernelRoutes>, Error> {
        self.follow.as_ref().map(|follow| follow.resolve(context)).transpose()
    }

    /// Returns the reverse-path filter if one is configured.
    pub(super) fn reverse_path(&self, context: &BuildContext<'_>) -> Result<Option<ReversePath>, Error> {
        self.reverse_path.as_ref().map(|config| ReversePath::resolve(config, context)).transpose()
    }

    /// Reads the configured routes, and replaces next hop and port names with numbers.
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<Resolved<u128>, Error> {
        let (routes, default_next_hop) = (self.routes.as_ref(), self.default_next_hop.as_ref());
        let stanza = Stanza { routes, default_next_hop, route: &self.route, next_hop: &self.next_hop };
        if self.follow.is_some() { stanza.resolve_with_kernel_routes(context) } else { stanza.resolve(context) }
    }

    /// Returns the names of the next hops, by index.
    pub(super) fn names(&self) -> Vec<String> {
        self.next_hop.iter().map(|next_hop| next_hop.name.get_ref().clone()).collect()
    }

    /// Returns the configured spare capacity.
    pub(super) fn spare(&self) -> Result<Spare, Error> {
        let count = |key: &str, configured: &Option<Spanned<usize>>| match configured {
            Some(count) if *count.get_ref() > SPARE_MAX => {
                Err(value(count.span(), format!("{key} must be at most {SPARE_MAX}")))
            }
            configured => Ok(configured.as_ref().map(|count| *count.get_ref())),
        };
        let next_hops = count("spare_next_hops", &self.spare_next_hops)?.unwrap_or(Spare::default().next_hops);
        Ok(Spare { next_hops, lines: count("spare_lines", &self.spare_lines)? })
    }

    /// Returns the configured lookup structure. With `None`, the function measures both structures
    /// and chooses the faster one.
    pub(super) fn form(&self) -> Result<Option<Form>, Error> {
        let Some(lookup) = &self.lookup else { return Ok(None) };
        match lookup.get_ref().as_str() {
            "auto" => Ok(None),
            "trie" => Ok(Some(Form::Trie)),
            "hash" => Ok(Some(Form::Hash)),
            other => {
                let message = format!("lookup = \"{other}\" is unknown; write \"trie\", \"hash\" or \"auto\"");
                Err(value(lookup.span(), message))
            }
        }
    }
}
