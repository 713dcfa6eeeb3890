//! The gateway with one thread for input and output, and with two (PIPSEA, figure 13).
//!
//! Both models use the same cores. With two threads, half of the cores run workers and the other
//! half send for them.

use super::gateway::{Gateway, associations};
use super::gateway_rows::row;
use crate::error::Error;
use crate::progress::Progress;
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::row::Row;
use crate::run::{cores, lane};

/// Measures both models at each size. The detail `io` names the model.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let associations = &associations(&choice(&context.values)?)?;
    let implementation = lane::implementation(options)?;
    let devices = &options.devices()[..1];
    let cores = cores::count();
    if cores < 2 {
        return Err(Error::Setup("the comparison needs two cores".to_owned()));
    }
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        let expected = Gateway::new(options, associations, size).expected()?;
        for (io, dual, workers) in [("single", false, cores), ("dual", true, cores / 2)] {
            let gateway =
                Gateway { workers, dual, implementation, devices, ..Gateway::new(options, associations, size) };
            gateway.verify(&expected, progress)?;
            let (chunk_packets, report) = gateway.time(options.common.time)?;
            let mut row = row(options, devices, size, chunk_packets, &report, None);
            row.details = row.details.with("io", io).with("cores", cores);
            rows.push(row);
        }
    }
    Ok(rows)
}
