//! Configuration keys of `ipv4`.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::Spare;
use crate::config::value;
use crate::routes::{NextHopConfig, Resolved, RouteConfig, Stanza};
use crate::routing::{KernelRoutes, KernelRoutesConfig, ReversePath, ReversePathConfig};
use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `ipv4`.
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
    /// Number of spare next hops, as in [`Spare::next_hops`].
    spare_next_hops: Option<Spanned<usize>>,
    /// Number of spare groups, as in [`Spare::groups`].
    spare_groups: Option<Spanned<usize>>,
    /// Mode of the reverse-path filter for each filtered port.
    reverse_path: Option<ReversePathConfig>,
}

/// Maximum spare capacity that can be configured, for next hops and for groups. It is the number of
/// /24 address blocks, each of which uses at most one group.
const SPARE_MAX: usize = 1 << 24;

impl Config {
    /// Returns the names of the next hops, by index.
    pub(super) fn names(&self) -> Vec<String> {
        self.next_hop.iter().map(|next_hop| next_hop.name.get_ref().clone()).collect()
    }

    /// Returns the configured spare capacity.
    pub(super) fn spare(&self) -> Result<Spare, Error> {
        let Spare { next_hops, groups } = Spare::default();
        let count = |key: &str, configured: &Option<Spanned<usize>>, default| match configured {
            Some(count) if *count.get_ref() > SPARE_MAX => {
                Err(value(count.span(), format!("{key} must be at most {SPARE_MAX}")))
            }
            Some(count) => Ok(*count.get_ref()),
            None => Ok(default),
        };
        Ok(Spare {
            next_hops: count("spare_next_hops", &self.spare_next_hops, next_hops)?,
            groups: count("spare_groups", &self.spare_groups, groups)?,
        })
    }

    /// Returns the configured source of routes that the function follows.
    pub(super) fn kernel_routes(&self, context: &BuildContext<'_>) -> Result<Option<KernelRoutes>, Error> {
        self.follow.as_ref().map(|follow| follow.resolve(context)).transpose()
    }

    /// Returns the reverse-path filter if one is configured.
    pub(super) fn reverse_path(&self, context: &BuildContext<'_>) -> Result<Option<ReversePath>, Error> {
        self.reverse_path.as_ref().map(|config| ReversePath::resolve(config, context)).transpose()
    }

    /// Reads the configured routes, and replaces next hop and port names with numbers.
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<Resolved<u32>, Error> {
        let (routes, default_next_hop) = (self.routes.as_ref(), self.default_next_hop.as_ref());
        let stanza = Stanza { routes, default_next_hop, route: &self.route, next_hop: &self.next_hop };
        if self.follow.is_some() { stanza.resolve_with_kernel_routes(context) } else { stanza.resolve(context) }
    }
}
