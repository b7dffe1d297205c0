//! What BEFORE triggers do with a row, as steps.

use crate::pg::raw;
use pgrx::pg_sys::{self, Expr, ExprState};
use std::ptr;

/// Steps that all triggers of a table may have together.
const STEPS: usize = 32;

/// In place of a step's number: where the present trigger ends.
const END: usize = usize::MAX;

/// A step. Expressions look at OLD as `INNER_VAR` and at NEW as `OUTER_VAR`, as those of WHEN do
/// in the executor (trigger.c: TriggerEnabled).
#[derive(Clone, Copy)]
pub enum Op {
    Set {
        column: i16,
        value: *mut Expr,
    },
    /// Goes on at `to` unless the condition holds.
    Unless {
        condition: *mut Expr,
        to: usize,
    },
    Go {
        to: usize,
    },
}

/// The steps of all triggers that fire for a statement, in their order. No step leads back.
pub struct Program {
    ops: [Op; STEPS],
    count: usize,
    /// The columns that may be set, offset by FirstLowInvalidHeapAttributeNumber.
    pub columns: *mut pg_sys::Bitmapset,
    /// What `noted::changes` said.
    pub(super) changes: u64,
    /// The expressions of the steps, compiled by `compile`.
    states: [*mut ExprState; STEPS],
}

impl Program {
    pub(super) fn empty(changes: u64) -> Program {
        Program {
            ops: [Op::Go { to: END }; STEPS],
            count: 0,
            columns: ptr::null_mut(),
            changes,
            states: [ptr::null_mut(); STEPS],
        }
    }

    /// The steps.
    pub fn ops(&self) -> &[Op] {
        &self.ops[..self.count]
    }

    /// Adds a step, and returns its number. None if there are too many.
    pub(super) fn add(&mut self, op: Op) -> Option<usize> {
        let n = self.count;
        *self.ops.get_mut(n)? = op;
        self.count += 1;
        Some(n)
    }

    pub(super) fn sets(&mut self, column: i16, value: *mut Expr) -> Option<()> {
        let number = i32::from(column) - pg_sys::FirstLowInvalidHeapAttributeNumber;
        // SAFETY: a set of this program's own, or null.
        self.columns = unsafe { raw::bms_add_member(self.columns, number) };
        self.add(Op::Set { column, value }).map(|_| ())
    }

    /// The trigger that fires under that condition.
    pub(super) fn fires_if(&mut self, condition: *mut Expr) -> Option<()> {
        self.add(Op::Unless { condition, to: END }).map(|_| ())
    }

    pub(super) fn returns(&mut self) -> Option<()> {
        self.add(Op::Go { to: END }).map(|_| ())
    }

    /// The steps that an earlier one leaves out end here.
    pub(super) fn ends_here(&mut self, n: usize) {
        let here = self.count;
        match &mut self.ops[n] {
            Op::Unless { to, .. } | Op::Go { to } => *to = here,
            Op::Set { .. } => {}
        }
    }

    /// The trigger that begins with that step ends here.
    pub(super) fn trigger_ends_here(&mut self, first: usize) {
        for n in first..self.count {
            match self.ops[n] {
                Op::Unless { to: END, .. } | Op::Go { to: END } => self.ends_here(n),
                _ => {}
            }
        }
    }

    /// Compiles the expressions, in the present memory context.
    ///
    /// # Safety
    /// As the program was made; a transaction runs. Raises what a user may not call.
    pub unsafe fn compile(&mut self) {
        for (state, op) in self.states.iter_mut().zip(&self.ops[..self.count]) {
            let (Op::Set { value: node, .. }
            | Op::Unless {
                condition: node, ..
            }) = *op
            else {
                continue;
            };
            // SAFETY: an expression as the planner leaves it, without parameters.
            *state = unsafe { raw::ExecInitExprWithParams(node, ptr::null_mut()) };
        }
    }

    /// The step's expression, after `compile`.
    pub fn state(&self, n: usize) -> *mut ExprState {
        self.states[n]
    }
}
