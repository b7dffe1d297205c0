//! Values on their way to a node, as text that means the same there.

use crate::pg::nodes::{nodes, nth};
use crate::pg::slot;
use pgrx::pg_sys::{self, Datum, FmgrInfo, Oid};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};

/// Settings under which output functions write what every node reads (postgres_fdw.c:
/// set_transmission_modes), until it is dropped. An ERROR puts them back by itself.
pub struct Plain(i32);

impl Plain {
    pub fn begin() -> Plain {
        // SAFETY: guc.c: what a function with SET does.
        unsafe {
            let level = pg_sys::NewGUCNestLevel();
            if pg_sys::DateStyle as u32 != pg_sys::USE_ISO_DATES {
                set(c"datestyle", c"ISO");
            }
            if pg_sys::IntervalStyle as u32 != pg_sys::INTSTYLE_POSTGRES {
                set(c"intervalstyle", c"postgres");
            }
            if pg_sys::extra_float_digits < 3 {
                set(c"extra_float_digits", c"3");
            }
            set(c"search_path", c"pg_catalog");
            Plain(level)
        }
    }
}

fn set(name: &CStr, value: &CStr) {
    // SAFETY: as a function's SET does.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: ends the level that was begun.
            unsafe { pg_sys::AtEOXact_GUC(true, self.0) };
        }
    }
}

/// The output function of a type. What it remembers lives in the memory context that was current
/// when it was made.
pub struct Output(UnsafeCell<FmgrInfo>);

impl Output {
    pub fn of(of_type: Oid) -> Output {
        let (mut function, mut is_varlena) = (Oid::INVALID, false);
        let mut info = FmgrInfo::default();
        // SAFETY: catalog look-ups.
        unsafe {
            pg_sys::getTypeOutputInfo(of_type, &mut function, &mut is_varlena);
            pg_sys::fmgr_info(function, &mut info);
        }
        Output(UnsafeCell::new(info))
    }

    /// A value as text.
    pub fn text(&self, value: Datum) -> CString {
        // SAFETY: the type's output function, which gives a C string. Nothing else has a reference
        // to what it remembers.
        unsafe {
            let text = pg_sys::OutputFunctionCall(self.0.get(), value);
            let owned = CStr::from_ptr(text).to_owned();
            pg_sys::pfree(text.cast());
            owned
        }
    }
}

/// Expressions whose values are sent with a statement.
pub struct Parameters {
    outputs: Vec<Output>,
    states: *mut pg_sys::List,
}

impl Parameters {
    /// # Safety
    /// The expressions of a plan node, and its state, which outlives this.
    pub unsafe fn new(
        expressions: *mut pg_sys::List,
        parent: *mut pg_sys::PlanState,
    ) -> Parameters {
        // SAFETY: the caller's expressions are those of a plan node whose state outlives this.
        unsafe {
            Parameters {
                outputs: nodes(expressions)
                    .map(|node| Output::of(pg_sys::exprType(node)))
                    .collect(),
                states: pg_sys::ExecInitExprList(expressions, parent),
            }
        }
    }

    /// Their present values.
    ///
    /// # Safety
    /// The expression context of the node's state.
    pub unsafe fn evaluate(&self, context: *mut pg_sys::ExprContext) -> Vec<Option<CString>> {
        if self.outputs.is_empty() {
            return Vec::new();
        }
        let _plain = Plain::begin();
        let one = |(n, output): (usize, &Output)| {
            // SAFETY: by the contract; as many states as outputs.
            let value = unsafe { slot::evaluate(nth(self.states, n), context) };
            value.map(|value| output.text(value))
        };
        self.outputs.iter().enumerate().map(one).collect()
    }
}

/// Whether a scan has a value of the running plan in what it sends or checks: it may be run again.
/// (The plan's own set of parameters has that of EvalPlanQual in it, too.)
///
/// # Safety
/// `plan` is a node of a plan.
pub unsafe fn repeats(plan: *const pg_sys::ForeignScan) -> bool {
    unsafe extern "C-unwind" fn look(node: *mut pg_sys::Node, arg: *mut std::ffi::c_void) -> bool {
        // SAFETY: called by the walker.
        unsafe {
            if node.is_null() {
                return false;
            }
            if (*node).type_ == pg_sys::NodeTag::T_Param {
                let parameter = node.cast::<pg_sys::Param>();
                return (*parameter).paramkind == pg_sys::ParamKind::PARAM_EXEC;
            }
            pg_sys::expression_tree_walker_impl(node, Some(look), arg)
        }
    }
    // SAFETY: the caller's node is a scan of a plan, whose lists hold expressions.
    unsafe {
        [(*plan).fdw_exprs, (*plan).scan.plan.qual]
            .into_iter()
            .any(|list| look(list.cast(), std::ptr::null_mut()))
    }
}
