//! Runs of an engine with a control socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use godwit_test_support::{Folder, SetOnDrop};

use super::common::LIMIT;

/// Runs an engine with a control socket until `body` returns. `body` gets the path of the socket.
pub(crate) fn run_with_socket(config: Config, options: Options, body: impl FnOnce(&Path) + Send) -> Report {
    let folder = Folder::new();
    let path = folder.join("control");
    let engine = Engine::new(config, &Options { control: Some(path.clone()), ..options }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            // Ends the run even if `body` panics.
            let _stop = SetOnDrop(&stop);
            body(&path);
        });
        let report = engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap();
        client.join().unwrap();
        report
    });
    assert!(!path.exists(), "the socket must be removed at the end");
    assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
    report
}
