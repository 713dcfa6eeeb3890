//! Built-in functions that consist of their folder in `kernels/`: their captures give the expected
//! outcomes, in all forms for the CPU.

use std::path::Path;

use godwit_abi::{Descriptor, Outcome};
use godwit_custom::checked::Answer;
use godwit_custom::expect;
use godwit_declare::{Contract, Declaration, TestDeclaration};
use godwit_function::{BuildContext, Function};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_test_support::{capture, repository};
use toml::de::DeTable;

use super::whole_bin::run_bin;

/// Frames of a function's test, copied to buffers, with their expected outcomes.
struct Case<'a> {
    contract: &'a Contract,
    test: &'a TestDeclaration,
    frames: Vec<Vec<u8>>,
    expected: String,
    region: Region,
}

impl Case<'_> {
    /// Copies the frames to buffers of the region.
    fn receive(&mut self) -> Vec<Descriptor> {
        let copy = |frame: &Vec<u8>| {
            let descriptor = self.region.allocate(frame.len()).unwrap();
            self.region.frame_mut(&descriptor).copy_from_slice(frame);
            descriptor
        };
        self.frames.iter().map(copy).collect()
    }

    /// Compares the results of a form with the expected outcomes, and releases the buffers.
    fn check(&mut self, before: &[Descriptor], after: &[Descriptor], outcomes: Vec<Outcome>, form: &str) {
        let mut lines = String::new();
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let moved = i32::from(after[index].head) - i32::from(before[index].head);
            let frame = self.region.frame_mut(&after[index]).to_vec();
            self.region.release(&after[index]);
            let answer = Answer { outcome, moved, frame, parameter: None, is_new: false };
            lines += &(expect::line(self.contract, &self.test.ports, &self.frames[index], &answer) + "\n");
        }
        assert_eq!(lines, self.expected, "{}, {form}", self.contract.kind);
    }

    /// Checks that the capture reaches every verdict and every drop reason.
    fn check_coverage(&self) {
        let reached = |name: &str| self.expected.lines().any(|line| line.split(' ').take(2).any(|word| word == name));
        let verdicts = self.contract.verdicts.iter().map(|verdict| verdict.name);
        for name in verdicts.chain(self.contract.drops.iter().map(|drop| drop.name)) {
            assert!(reached(name), "{}: no frame reaches `{name}`", self.contract.kind);
        }
    }
}

fn build(contract: &Contract, test: &TestDeclaration, folder: &Path) -> std::sync::Arc<dyn Function> {
    let context = BuildContext { name: contract.kind, ports: &test.ports, directory: folder };
    let stanza = DeTable::parse(&test.stanza).unwrap();
    godwit_function::build(contract.kind, stanza, &context).unwrap()
}

#[test]
fn captures_give_the_expected_outcomes_in_all_forms() {
    for (contract, text) in godwit_function::built_in_without_host_half() {
        let declaration = Declaration::parse(text).unwrap();
        let Some(test) = &declaration.test else { panic!("{} has no `[test]`", contract.kind) };
        let folder = repository().join("kernels").join(contract.kind);
        let function = build(contract, test, &folder);
        let frames = capture::read(&folder.join(&test.frames));
        let expected = std::fs::read_to_string(folder.join(&test.expect)).unwrap();
        let region = Arena::new(ArenaConfig::default(), 1).unwrap().split().remove(0);
        let mut case = Case { contract, test, frames, expected, region };
        case.check_coverage();
        for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
            for group in [0, 1, 7, 64] {
                let before = case.receive();
                let mut after = before.clone();
                let outcomes = run_bin(level, group, &*function, &mut case.region, &mut after);
                case.check(&before, &after, outcomes, &format!("{} in groups of {group}", level.name));
            }
        }
        let before = case.receive();
        let mut after = before.clone();
        let run = |descriptor: &mut Descriptor| {
            let buffer = case.region.buffer_mut(descriptor);
            function.run_ref(buffer, descriptor, 0, 0)
        };
        let outcomes = after.iter_mut().map(run).collect();
        case.check(&before, &after, outcomes, "ref");
    }
}
