//! Divides the packets of functions between devices with a linear program.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};

use super::super::model::Table;
use super::super::placement::Choice;
use super::super::policy::Splits;
use super::Problem;
use super::eighths::idle_shares;

/// Smallest fraction of a function's packets that a device receives. Smaller fractions go to other
/// devices.
const SHARE_MIN: f64 = 0.01;
/// Number of linear programs that are solved if functions slow each other down. Each program takes
/// the slowdown from the solution of the previous one.
const ROUNDS: usize = 3;
/// Smallest coefficient that is kept in a constraint, relative to the largest coefficient. The
/// solver requires a ratio below 10^6.
const COEFFICIENT_MIN: f64 = 1e-6;

/// Returns the division of packets between devices with the largest capacity or, for policies about
/// power, with the lowest power that processes the load. Returns `None` if the solver fails.
pub(super) fn solve(problem: &Problem<'_>, table: &Table) -> Option<Choice> {
    let machine = problem.machine;
    let mut choice = idle_shares(machine, table.setting());
    let rounds = if machine.gamma.is_empty() { 1 } else { ROUNDS };
    let mut factors = vec![1.0; machine.costs.len()];
    for _ in 0..rounds {
        let power = (problem.goal.policy.splits == Splits::Power).then(|| program(problem, table, &factors, true));
        let shares = power.flatten().or_else(|| program(problem, table, &factors, false))?;
        choice.shares.copy_from_slice(&shares);
        if rounds > 1 {
            table.interference(machine, &choice, &mut factors);
        }
    }
    Some(choice)
}

/// Solves one linear program. The variables are the fractions of each function's packets on each
/// device. To maximise the capacity, each variable is multiplied by the growth factor of the load,
/// which is another variable.
fn program(problem: &Problem<'_>, table: &Table, factors: &[f64], by_power: bool) -> Option<Vec<f64>> {
    let machine = problem.machine;
    let places = machine.places.len();
    let direction = if by_power { OptimizationDirection::Minimize } else { OptimizationDirection::Maximize };
    let mut program = Program::new(direction);
    let mut variables: Vec<(usize, Variable)> = Vec::new();
    let active: Vec<usize> = (0..machine.functions.len()).filter(|&function| table.is_active(function)).collect();
    // All coefficients are divided by the largest one.
    let ways =
        || active.iter().flat_map(|&f| machine.allowed[f].common(table.setting().on).iter().map(move |p| (f, p)));
    let largest = ways().flat_map(|(f, p)| table.row(f, p)).fold(0.0_f64, |max, value| max.max(*value));
    if largest <= 0.0 {
        return None;
    }
    let growth = (!by_power).then(|| program.add_var(1.0, (0.0, f64::INFINITY)));
    let mut constraints: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); machine.resources()];
    for &function in &active {
        let mut sum: Vec<(Variable, f64)> = Vec::new();
        for place in machine.allowed[function].common(table.setting().on).iter() {
            let way = function * places + place;
            let row = table.row(function, place);
            let weight = if by_power { table.power_of(machine, function, place) } else { 0.0 };
            let variable = program.add_var(weight, (0.0, f64::INFINITY));
            variables.push((way, variable));
            sum.push((variable, 1.0));
            let own = table.own_resource(machine, place);
            for (resource, value) in row.iter().enumerate() {
                let factor = if resource == own { factors[way] } else { 1.0 };
                let scaled = value * factor / largest;
                if scaled > COEFFICIENT_MIN {
                    constraints[resource].push((variable, scaled));
                }
            }
        }
        let total = match growth {
            Some(growth) => {
                sum.push((growth, -1.0));
                0.0
            }
            None => 1.0,
        };
        program.add_constraint(sum.as_slice(), ComparisonOp::Eq, total);
    }
    let limit = if by_power { problem.goal.limits.carry / largest } else { 1.0 };
    for constraint in constraints.iter().filter(|constraint| !constraint.is_empty()) {
        program.add_constraint(constraint.as_slice(), ComparisonOp::Le, limit);
    }
    let solution = program.solve().ok()?.into_solution().ok()?;
    let mut shares = idle_shares(machine, table.setting()).shares;
    for &function in &active {
        shares[function * places..][..places].fill(0.0);
    }
    for (way, variable) in variables {
        shares[way] = solution.var_value(variable).max(0.0);
    }
    for &function in &active {
        tidy(&mut shares[function * places..][..places]);
    }
    Some(shares)
}

/// Removes fractions of packets that are too small, and scales the remaining fractions to a sum of
/// 1.
fn tidy(shares: &mut [f64]) {
    let total: f64 = shares.iter().sum();
    shares.iter_mut().filter(|share| **share < SHARE_MIN * total).for_each(|share| *share = 0.0);
    let total: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= total);
}
