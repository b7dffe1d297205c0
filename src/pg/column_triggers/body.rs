//! What a trigger's function does, from PL/pgSQL's compiled statements. An allowlist: assignments
//! to columns of NEW, IF around them, and RETURN NEW.
//!
//! All expressions are those that PL/pgSQL has planned and would evaluate next, with OLD and NEW in
//! place of its variables. PL/pgSQL's parser has put the cast to the column's type around each
//! assigned value.

use super::program::{Op, Program};
use crate::pg::nodes::{nodes, tag};
use crate::pg::plpgsql_layout::{Assign, Elsif, Expression, Function, If, Return, Statement, kind};
use crate::pg::raw;
use pgrx::pg_sys::{self, Node, NodeTag, Oid};
use std::ffi::{CStr, c_char, c_void};

/// A function that is being looked at.
struct Body<'a> {
    function: &'a Function,
    columns: &'a [pg_sys::FormData_pg_attribute],
    program: &'a mut Program,
}

/// Adds what that function does with a row of the table. None if it may do anything else.
///
/// # Safety
/// The function is in force, and has run for that table's trigger.
pub(super) unsafe fn add(
    program: &mut Program,
    function: &Function,
    rel: pg_sys::Relation,
) -> Option<()> {
    // SAFETY: PL/pgSQL's own structures; the relcache's description of the columns.
    unsafe {
        let descriptor = (*rel).rd_att;
        let block = &*function.action;
        if block.variables_with_defaults != 0 || !block.exceptions.is_null() {
            return None;
        }
        let last = nodes(block.body).last()?.cast::<Statement>();
        if (*last).kind != kind::RETURN {
            return None;
        }
        let mut body = Body {
            function,
            columns: (*descriptor).attrs.as_slice((*descriptor).natts as usize),
            program,
        };
        body.statements(block.body)
    }
}

impl Body<'_> {
    unsafe fn statements(&mut self, list: *const pg_sys::List) -> Option<()> {
        // SAFETY: a list of statements, each read as what its kind says.
        unsafe {
            nodes(list).try_for_each(|node| {
                let statement = node.cast::<Statement>();
                match (*statement).kind {
                    kind::ASSIGN => self.assignment(&*statement.cast()),
                    kind::IF => {
                        let branches = &*statement.cast::<If>();
                        let mut others = nodes(branches.elsif);
                        self.branch(
                            branches.condition,
                            branches.then,
                            &mut others,
                            branches.otherwise,
                        )
                    }
                    kind::RETURN => {
                        let returns = &*statement.cast::<Return>();
                        if !returns.expression.is_null() || returns.variable != self.function.new {
                            return None;
                        }
                        self.program.returns()
                    }
                    _ => None,
                }
            })
        }
    }

    unsafe fn assignment(&mut self, assign: &Assign) -> Option<()> {
        // SAFETY: PL/pgSQL's own structures.
        unsafe {
            let field = self.function.field(assign.variable)?;
            if field.record != self.function.new {
                return None;
            }
            let column = self.column(field.name)?;
            let (value, typ, typmod) = (*assign.expression).planned()?;
            // PL/pgSQL would cast it otherwise (pl_exec.c: exec_cast_value).
            let is_cast =
                typ == column.atttypid && (column.atttypmod == -1 || column.atttypmod == typmod);
            // A value of these types may be one that functions change in place.
            let may_be_expanded = raw::get_element_type(column.atttypid) != Oid::INVALID;
            if !is_cast || may_be_expanded || column.attgenerated != 0 {
                return None;
            }
            let number = column.attnum;
            let value = self.translated(value)?;
            self.program.sets(number, value)
        }
    }

    /// IF with its first condition, then the others.
    unsafe fn branch(
        &mut self,
        condition: *const Expression,
        then: *const pg_sys::List,
        others: &mut impl Iterator<Item = *mut Node>,
        otherwise: *const pg_sys::List,
    ) -> Option<()> {
        // SAFETY: PL/pgSQL's own structures.
        unsafe {
            let (condition, typ, _) = (*condition).planned()?;
            if typ != pg_sys::BOOLOID {
                return None;
            }
            let condition = self.translated(condition)?;
            match known(condition.cast()) {
                // The other branches are never taken: nothing need be known of them.
                Some(true) => return self.statements(then),
                Some(false) => return self.other_branches(others, otherwise),
                None => {}
            }
            let unless = self.program.add(Op::Unless { condition, to: 0 })?;
            self.statements(then)?;
            let go = self.program.add(Op::Go { to: 0 })?;
            self.program.ends_here(unless);
            self.other_branches(others, otherwise)?;
            self.program.ends_here(go);
            Some(())
        }
    }

    unsafe fn other_branches(
        &mut self,
        others: &mut impl Iterator<Item = *mut Node>,
        otherwise: *const pg_sys::List,
    ) -> Option<()> {
        // SAFETY: PL/pgSQL's own structures.
        unsafe {
            match others.next() {
                Some(other) => {
                    let other = &*other.cast::<Elsif>();
                    self.branch(other.condition, other.then, others, otherwise)
                }
                None => self.statements(otherwise),
            }
        }
    }

    /// The table's column of that name.
    unsafe fn column(&self, name: *const c_char) -> Option<pg_sys::FormData_pg_attribute> {
        // SAFETY: names end with a zero.
        unsafe {
            let name = CStr::from_ptr(name);
            let mut columns = self.columns.iter().filter(|column| !column.attisdropped);
            columns
                .find(|column| CStr::from_ptr(column.attname.data.as_ptr()) == name)
                .copied()
        }
    }

    /// A copy of the expression with columns of OLD and NEW in place of PL/pgSQL's variables. None
    /// if it has others.
    unsafe fn translated(&self, expression: *mut pg_sys::Expr) -> Option<*mut pg_sys::Expr> {
        let mut context = Translation {
            body: self,
            is_whole: true,
        };
        // SAFETY: a planned expression. PL/pgSQL's plan may be freed before the copy is evaluated,
        // so its constants are copied, too, which `translate` does not do.
        let copy = unsafe {
            let own = raw::copyObjectImpl(expression.cast());
            translate(own.cast(), (&raw mut context).cast())
        };
        context.is_whole.then_some(copy.cast())
    }

    /// The column that a parameter of PL/pgSQL's stands for: parameters are numbered as variables,
    /// from 1 (pl_comp.c: make_datum_param).
    unsafe fn variable(&self, param: &pg_sys::Param) -> Option<*mut Node> {
        // SAFETY: PL/pgSQL's own structures; zeroed memory is a node without a tag.
        unsafe {
            if param.paramkind != pg_sys::ParamKind::PARAM_EXTERN {
                return None;
            }
            let number = param.paramid - 1;
            if self.function.is_operation(number) && param.paramtype == pg_sys::TEXTOID {
                return Some(operation(param.paramcollid));
            }
            let field = self.function.field(number)?;
            let row = if field.record == self.function.new {
                pg_sys::OUTER_VAR
            } else if field.record == self.function.old {
                pg_sys::INNER_VAR
            } else {
                return None;
            };
            let column = self.column(field.name)?;
            if column.atttypid != param.paramtype || column.attcollation != param.paramcollid {
                return None;
            }
            let var = raw::palloc0(size_of::<pg_sys::Var>()).cast::<pg_sys::Var>();
            (*var).xpr.type_ = NodeTag::T_Var;
            (*var).varno = row;
            (*var).varattno = column.attnum;
            (*var).vartype = column.atttypid;
            (*var).vartypmod = column.atttypmod;
            (*var).varcollid = column.attcollation;
            (*var).location = -1;
            Some(var.cast())
        }
    }
}

/// What TG_OP says in an UPDATE.
unsafe fn operation(collation: Oid) -> *mut Node {
    // SAFETY: zeroed memory is a node without a tag.
    unsafe {
        let constant = raw::palloc0(size_of::<pg_sys::Const>()).cast::<pg_sys::Const>();
        (*constant).xpr.type_ = NodeTag::T_Const;
        (*constant).consttype = pg_sys::TEXTOID;
        (*constant).consttypmod = -1;
        (*constant).constcollid = collation;
        (*constant).constlen = -1;
        (*constant).constvalue = pg_sys::Datum::from(raw::cstring_to_text(c"UPDATE".as_ptr()));
        (*constant).location = -1;
        constant.cast()
    }
}

/// Whether a condition like `TG_OP = 'INSERT'` holds: it compares two texts that are known. None
/// for others.
unsafe fn known(condition: *mut Node) -> Option<bool> {
    // SAFETY: nodes are read as what their tags say; an operator's arguments.
    unsafe {
        if tag(condition) != NodeTag::T_OpExpr {
            return None;
        }
        let op = &*condition.cast::<pg_sys::OpExpr>();
        let wants_equal = match u32::from(op.opfuncid) {
            pg_sys::F_TEXTEQ => true,
            pg_sys::F_TEXTNE => false,
            _ => return None,
        };
        // Under this collation texts are equal only if their bytes are.
        if op.inputcollid != pg_sys::DEFAULT_COLLATION_OID {
            return None;
        }
        let mut texts = nodes(op.args).map(|node| known_text(node));
        Some((texts.next()?? == texts.next()??) == wants_equal)
    }
}

/// The text that an expression is, if it is a constant and not null.
unsafe fn known_text<'a>(node: *mut Node) -> Option<&'a [u8]> {
    // SAFETY: a constant of that type is a varlena; one that is not compressed or elsewhere has its
    // bytes behind its header.
    unsafe {
        if tag(node) != NodeTag::T_Const {
            return None;
        }
        let constant = &*node.cast::<pg_sys::Const>();
        let is_text = constant.consttype == pg_sys::TEXTOID && !constant.constisnull;
        let value = constant.constvalue.cast_mut_ptr::<pg_sys::varlena>();
        if !is_text || !is_in_line(value) {
            return None;
        }
        let length = pgrx::varlena::varsize_any_exhdr(value);
        Some(std::slice::from_raw_parts(
            pgrx::varlena::vardata_any(value).cast(),
            length,
        ))
    }
}

/// Whether a value is neither compressed nor elsewhere.
unsafe fn is_in_line(value: *const pg_sys::varlena) -> bool {
    // SAFETY: by the caller, a value of a type of variable length.
    unsafe { !pgrx::varlena::varatt_is_1b_e(value) && !pgrx::varlena::varatt_is_4b_c(value) }
}

struct Translation<'a> {
    body: &'a Body<'a>,
    is_whole: bool,
}

/// Copies an expression, but for the values of its constants (nodeFuncs.c:
/// expression_tree_mutator).
unsafe extern "C-unwind" fn translate(node: *mut Node, context: *mut c_void) -> *mut Node {
    // SAFETY: the caller's context is a `Translation`, and the walker gives nodes that are valid or
    // null.
    unsafe {
        if tag(node) == NodeTag::T_Param {
            let translation = &mut *context.cast::<Translation>();
            return match translation.body.variable(&*node.cast()) {
                Some(variable) => variable,
                None => {
                    translation.is_whole = false;
                    node
                }
            };
        }
        if node.is_null() {
            return node;
        }
        raw::expression_tree_mutator_impl(node, Some(translate), context)
    }
}
