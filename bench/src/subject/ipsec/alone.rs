//! Any IPsec suite on packets in memory, in both directions.

use godwit_function::ipsec::suite::Protocol;

use super::whole::{direction, whole};
use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::frames::Random;
use crate::progress::Progress;
use crate::run::call::measure;
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::row::{Details, Row};
use crate::run::workload::Workload;

/// Measures the suites and SAs of the request.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = LaneOptions::parse(context)?;
    let choice = choice(&context.values)?;
    let associations = Associations::of(&choice)?;
    let details = Details::default().with("suite", associations.name()).with("direction", direction(choice.decrypt));
    if options.through_lane() {
        progress(&format!("ipsec: {}, {} SAs, {}", associations.name(), associations.sas, direction(choice.decrypt)));
        let any = |random: &mut Random| associations.any(random);
        let details = details.with("sas", u64::from(associations.sas));
        let workload = Workload { job: Some(&any), details, ..Workload::new(associations.function(1)?) };
        return measure(workload, &options, progress);
    }
    if choice.sas.is_some() {
        let message = "--sas: a number of SAs can be measured through the lane of a device only; add --mode launch";
        return Err(Error::Setup(message.to_owned()));
    }
    // One suite of ESP has a peer.
    if let Some(suite) = associations.only().filter(|suite| suite.protocol == Protocol::Esp) {
        return whole(suite, choice.decrypt, &options, progress);
    }
    if choice.decrypt {
        let message =
            "--decrypt: AH and several suites can be measured through the lane of a device only; add --mode launch";
        return Err(Error::Setup(message.to_owned()));
    }
    measure(Workload { details, ..Workload::new(associations.with(1).function(1)?) }, &options, progress)
}
