//! Which of the pairs that an order decides stand the other way round.
//!
//! A variable of a SAT solver for each pair that was part of a cycle. A cycle is a clause: one of
//! its pairs stands the other way round. Where nothing speaks against it the solver takes what the
//! times suggest.
use std::collections::HashMap;

use batsat::{BasicSolver, Lit, SolverInterface, Var, lbool};

use crate::check::gaps::{Pin, Slots};

/// The pairs met so far, and what is known of them.
#[derive(Default)]
pub struct Choice {
    solver: BasicSolver,
    /// The pairs as the times suggest them.
    pairs: Vec<(Pin, Var)>,
    variables: HashMap<Pin, Var>,
}

impl Choice {
    /// An order of all pairs met so far that nothing speaks against; `None`: there is none.
    pub fn next(&mut self) -> Option<Vec<Pin>> {
        if self.solver.solve_limited(&[]) != lbool::TRUE {
            return None;
        }
        let pins = self.pairs.iter().map(|(pin, variable)| {
            match self.solver.value_var(*variable) == lbool::FALSE {
                true => swapped(*pin),
                false => *pin,
            }
        });
        Some(pins.collect())
    }

    /// Not all of `pins` can be as they are.
    pub fn refuse(&mut self, slots: &Slots, pins: &[Pin]) {
        let clause = pins.iter().map(|pin| !self.literal(slots, *pin));
        let mut clause: Vec<Lit> = clause.collect();
        self.solver.add_clause_reuse(&mut clause);
    }

    /// What says that `pin` is so.
    fn literal(&mut self, slots: &Slots, pin: Pin) -> Lit {
        let suggested = slots.suggests(pin);
        let pair = if suggested { pin } else { swapped(pin) };
        let variable = *self.variables.entry(pair).or_insert_with(|| {
            let variable = self.solver.new_var(lbool::TRUE, true);
            self.pairs.push((pair, variable));
            variable
        });
        Lit::new(variable, suggested)
    }
}

fn swapped(pin: Pin) -> Pin {
    Pin {
        first: pin.second,
        second: pin.first,
        ..pin
    }
}
