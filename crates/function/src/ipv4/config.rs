//! What the operator writes.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::Spare;
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
    /// See [`Spare::next_hops`].
    spare_next_hops: Option<Spanned<usize>>,
    /// See [`Spare::groups`].
    spare_groups: Option<Spanned<usize>>,
}

/// As many as an entry of the widest kind can name.
const SPARE_MAX: usize = 1 << 24;

impl Config {
    /// Names of the next hops, in order.
    pub(super) fn names(&self) -> Vec<String> {
        self.next_hop.iter().map(|next_hop| next_hop.name.get_ref().clone()).collect()
    }

    /// The room that there is to be.
    pub(super) fn spare(&self) -> Result<Spare, Error> {
        let Spare { next_hops, groups } = Spare::default();
        let chosen = |key: &str, chosen: &Option<Spanned<usize>>, usual| match chosen {
            Some(count) if *count.get_ref() > SPARE_MAX => {
                Err(value(count.span(), format!("{key} is at most {SPARE_MAX}")))
            }
            Some(count) => Ok(*count.get_ref()),
            None => Ok(usual),
        };
        Ok(Spare {
            next_hops: chosen("spare_next_hops", &self.spare_next_hops, next_hops)?,
            groups: chosen("spare_groups", &self.spare_groups, groups)?,
        })
    }

    /// What follows this machine's routes, if asked for.
    pub(super) fn follower(&self, site: &BuildContext<'_>) -> Result<Option<Follower>, Error> {
        self.follow.as_ref().map(|follow| follow.resolve(site)).transpose()
    }

    /// Reads the routes and resolves all names.
    pub(super) fn resolve(&self, site: &BuildContext<'_>) -> Result<Resolved<u32>, Error> {
        let (routes, default_next_hop) = (self.routes.as_ref(), self.default_next_hop.as_ref());
        let stanza = Stanza { routes, default_next_hop, route: &self.route, next_hop: &self.next_hop };
        if self.follow.is_some() { stanza.resolve_beside_followed(site) } else { stanza.resolve(site) }
    }
}
