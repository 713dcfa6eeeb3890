//! What the operator writes.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::{Form, Spare};
use crate::config::value;
use crate::routes::{NextHopConfig, Resolved, RouteConfig, Stanza};
use crate::routing::{FollowConfig, Follower};
use crate::{BuildContext, Error};

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A text file of routes.
    routes: Option<PathBuf>,
    /// Next hop of the routes that name none.
    default_next_hop: Option<Spanned<String>>,
    /// Routes in place, which come after those of the file.
    #[serde(default)]
    route: Vec<RouteConfig>,
    /// Where packets go.
    #[serde(default)]
    next_hop: Vec<NextHopConfig>,
    /// What of this machine's routes the table follows.
    follow: Option<FollowConfig>,
    /// How the longest prefix is found.
    lookup: Option<Spanned<String>>,
    /// See [`Spare::next_hops`].
    spare_next_hops: Option<Spanned<usize>>,
    /// See [`Spare::lines`].
    spare_lines: Option<Spanned<usize>>,
}

/// As many as an entry can name.
const SPARE_MAX: usize = 1 << 23;

impl Config {
    /// What follows this machine's routes, if asked for.
    pub(super) fn follower(&self, site: &BuildContext<'_>) -> Result<Option<Follower>, Error> {
        self.follow.as_ref().map(|follow| follow.resolve(site)).transpose()
    }

    /// Reads the routes and resolves all names.
    pub(super) fn resolve(&self, site: &BuildContext<'_>) -> Result<Resolved<u128>, Error> {
        let (routes, default_next_hop) = (self.routes.as_ref(), self.default_next_hop.as_ref());
        let stanza = Stanza { routes, default_next_hop, route: &self.route, next_hop: &self.next_hop };
        if self.follow.is_some() { stanza.resolve_beside_followed(site) } else { stanza.resolve(site) }
    }

    /// Names of the next hops, in order.
    pub(super) fn names(&self) -> Vec<String> {
        self.next_hop.iter().map(|next_hop| next_hop.name.get_ref().clone()).collect()
    }

    /// The room that there is to be.
    pub(super) fn spare(&self) -> Result<Spare, Error> {
        let chosen = |key: &str, chosen: &Option<Spanned<usize>>| match chosen {
            Some(count) if *count.get_ref() > SPARE_MAX => {
                Err(value(count.span(), format!("{key} is at most {SPARE_MAX}")))
            }
            chosen => Ok(chosen.as_ref().map(|count| *count.get_ref())),
        };
        let next_hops = chosen("spare_next_hops", &self.spare_next_hops)?;
        let usual = Spare::default();
        Ok(Spare { next_hops: next_hops.unwrap_or(usual.next_hops), lines: chosen("spare_lines", &self.spare_lines)? })
    }

    /// The form of the table; `None`: the faster one.
    pub(super) fn form(&self) -> Result<Option<Form>, Error> {
        let Some(lookup) = &self.lookup else { return Ok(None) };
        match lookup.get_ref().as_str() {
            "auto" => Ok(None),
            "trie" => Ok(Some(Form::Trie)),
            "hash" => Ok(Some(Form::Hash)),
            other => {
                let message = format!("lookup is \"trie\", \"hash\" or \"auto\", not \"{other}\"");
                Err(value(lookup.span(), message))
            }
        }
    }
}
