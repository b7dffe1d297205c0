//! The arguments of a CALL, as far as they are known before it runs. They are computed once: the
//! CALL that runs has their values in place of the expressions.

use crate::pg::builtin::{self, Known, is_builtin};
use crate::pg::{nodes, raw};
use pgrx::pg_sys::{
    self, CallStmt, CoerceToDomain, Datum, FormData_pg_proc, FuncCall, FuncExpr, NodeTag, Oid,
};
use pgrx::pg_sys::{Node, PlannedStmt};

/// An argument of a CALL.
#[derive(Clone, Copy)]
pub enum Found {
    Value(Datum, Oid),
    Null,
    /// It is known when the CALL computes it.
    Unknown,
}

impl Found {
    fn of(datum: Datum, is_null: bool, typ: Oid) -> Found {
        if is_null {
            return Found::Null;
        }
        // SAFETY: a catalog look-up.
        Found::Value(datum, unsafe { raw::getBaseType(typ) })
    }
}

/// The argument with that number, from 1 on, as the CALL is going to compute it.
///
/// # Safety
/// `list` has the arguments of a CALL about to run, and `params` its parameters or is null. Nothing
/// with a destructor is alive in the callers: an argument may raise.
pub unsafe fn argument(
    list: *const pg_sys::List,
    number: u16,
    params: pg_sys::ParamListInfo,
) -> Found {
    let at = usize::from(number) - 1;
    // SAFETY: the caller's list has the arguments of a CALL; its length is compared first.
    unsafe {
        if at >= nodes::length(list) {
            return Found::Unknown;
        }
        let node = within_domains(nodes::nth::<Node>(list, at));
        let found = plain(node, params);
        if !matches!(found, Found::Unknown) {
            return found;
        }
        if is_computable(node, params) {
            return computed(node, params);
        }
        plain(folded(node, params), std::ptr::null_mut())
    }
}

/// The CALL to run in place of that one: it has the arguments that are known, and is nobody else's,
/// so that PostgreSQL needs no copy of it.
///
/// # Safety
/// `statement` is a CALL about to run, and `known` are its arguments as `argument` has found them.
pub unsafe fn settled(statement: *const PlannedStmt, known: &[Found]) -> *mut PlannedStmt {
    // SAFETY: the caller's nodes are of the types that they are read as. All copies stand in the
    // current memory context, which ends with the command.
    unsafe {
        let own = own_copy(statement);
        let call = own_copy((*statement).utilityStmt.cast::<CallStmt>());
        let function = own_copy((*call).funcexpr);
        (*own).utilityStmt = call.cast();
        (*call).funcexpr = function;
        // What the parser made of the arguments: only the analysis reads that, and it is over.
        let parsed = own_copy((*call).funccall);
        (*parsed).args = std::ptr::null_mut();
        (*call).funccall = raw::copyObjectImpl(parsed.cast()).cast();
        (*call).outargs = raw::copyObjectImpl((*call).outargs.cast()).cast();
        let list = raw::list_copy((*function).args);
        for n in 0..nodes::length(list) {
            let place = (*list).elements.add(n);
            let node = (*place).ptr_value.cast::<Node>();
            let found = known.get(n).copied().unwrap_or(Found::Unknown);
            (*place).ptr_value = match constant(within_domains(node), found) {
                Some(constant) => with_value(node, constant).cast(),
                None => raw::copyObjectImpl(node.cast()),
            };
        }
        (*function).args = list;
        own
    }
}

/// The value that an expression puts into domains, whose checks leave it as it is.
///
/// # Safety
/// An expression.
unsafe fn within_domains(mut node: *mut Node) -> *mut Node {
    // SAFETY: nodes are read as what their tags say.
    unsafe {
        while nodes::tag(node) == NodeTag::T_CoerceToDomain {
            node = (*node.cast::<CoerceToDomain>()).arg.cast();
        }
    }
    node
}

/// The expression with that value in its domains: the CALL checks them.
///
/// # Safety
/// As for `within_domains`.
unsafe fn with_value(node: *mut Node, value: *mut pg_sys::Const) -> *mut Node {
    // SAFETY: nodes are read as what their tags say.
    unsafe {
        if nodes::tag(node) != NodeTag::T_CoerceToDomain {
            return value.cast();
        }
        let domain = own_copy(node.cast::<CoerceToDomain>());
        (*domain).arg = with_value((*domain).arg.cast(), value).cast();
        domain.cast()
    }
}

/// # Safety
/// A node of that type.
unsafe fn own_copy<T: OwnNode>(node: *const T) -> *mut T {
    // SAFETY: by the contract; the copy has room for it.
    unsafe {
        let copy = raw::palloc(size_of::<T>()).cast::<T>();
        copy.copy_from_nonoverlapping(node, 1);
        copy
    }
}

/// Nodes that are copied here, without what they point to.
trait OwnNode {}
impl OwnNode for PlannedStmt {}
impl OwnNode for CallStmt {}
impl OwnNode for FuncExpr {}
impl OwnNode for FuncCall {}
impl OwnNode for CoerceToDomain {}

/// A constant of the expression's type, if its value is known.
///
/// # Safety
/// An expression, and what it has been found to be.
unsafe fn constant(node: *const Node, found: Found) -> Option<*mut pg_sys::Const> {
    let (datum, is_null) = match found {
        Found::Value(datum, _) => (datum, false),
        Found::Null => (Datum::from(0), true),
        Found::Unknown => return None,
    };
    // SAFETY: the value is of the expression's type.
    unsafe {
        let typ = raw::exprType(node);
        let (mut length, mut by_value, mut align) = (0, false, 0);
        raw::get_typlenbyvalalign(typ, &mut length, &mut by_value, &mut align);
        let (modifier, collation) = (raw::exprTypmod(node), raw::exprCollation(node));
        let length = length.into();
        Some(raw::makeConst(
            typ, modifier, collation, length, datum, is_null, by_value,
        ))
    }
}

/// PostgreSQL's own functions that `computed` may call.
static COMPUTABLE: Known<64> = Known::new();

/// Whether it is an immutable function of PostgreSQL's own, in C, that takes all its arguments from
/// the caller: the planner puts omitted ones in, which does not come here.
fn is_computable_function(function: Oid) -> bool {
    let is_plain =
        |row: &FormData_pg_proc| builtin::is_immutable_internal(row) && row.pronargdefaults == 0;
    // SAFETY: a transaction runs, and `is_plain` raises nothing.
    let find_out = || unsafe { builtin::ask_function(function, is_plain) == Some(true) };
    is_builtin(function) && COMPUTABLE.get(function, find_out)
}

/// Whether the expression can be computed as it stands: it has nothing but constants, parameters
/// that are known, array constructors, and functions and operators of PostgreSQL's own. What else
/// may be computed is for `folded`.
///
/// # Safety
/// As for `plain`.
unsafe fn is_computable(node: *const Node, params: pg_sys::ParamListInfo) -> bool {
    // SAFETY: nodes are read as what their tags say.
    unsafe {
        let are = |list: *const pg_sys::List| {
            let mut all = nodes::nodes(list);
            all.all(|one| is_computable(one, params))
        };
        // A strict function of a constant NULL is not called, and what else it is given is not
        // computed: the planner sees to that.
        let is_null = |one: *mut Node| {
            nodes::tag(one) == NodeTag::T_Const && (*one.cast::<pg_sys::Const>()).constisnull
        };
        let may_call = |function, arguments: *const pg_sys::List| {
            is_computable_function(function)
                && are(arguments)
                && !nodes::nodes(arguments).any(is_null)
        };
        match nodes::tag(node) {
            NodeTag::T_Const => true,
            NodeTag::T_Param => given(node, params).is_some(),
            NodeTag::T_RelabelType => {
                is_computable((*node.cast::<pg_sys::RelabelType>()).arg.cast(), params)
            }
            NodeTag::T_ArrayExpr => are((*node.cast::<pg_sys::ArrayExpr>()).elements),
            NodeTag::T_FuncExpr => {
                let call = &*node.cast::<FuncExpr>();
                may_call(call.funcid, call.args)
            }
            NodeTag::T_OpExpr => {
                let call = &*node.cast::<pg_sys::OpExpr>();
                may_call(call.opfuncid, call.args)
            }
            _ => false,
        }
    }
}

/// The value of such an expression. To fold it would set an executor up for each function in it.
///
/// # Safety
/// `is_computable`. An error in it is one that the CALL itself would raise.
unsafe fn computed(node: *mut Node, params: pg_sys::ParamListInfo) -> Found {
    // SAFETY: an expression that the executor takes as it is. The value and the state stand in the
    // current memory context, which ends with the command.
    unsafe {
        let context = raw::CreateStandaloneExprContext();
        (*context).ecxt_param_list_info = params;
        let state = raw::ExecInitExprWithParams(node.cast(), params);
        let mut is_null = false;
        let Some(evaluate) = (*state).evalfunc else {
            return Found::Unknown;
        };
        let datum = evaluate(state, context, &mut is_null);
        raw::FreeExprContext(context, true);
        Found::of(datum, is_null, raw::exprType(node))
    }
}

/// What an argument is that is a constant or a parameter.
///
/// # Safety
/// `node` is an expression, and `params` has its parameters or is null.
unsafe fn plain(node: *const Node, params: pg_sys::ParamListInfo) -> Found {
    // SAFETY: by the contract.
    let given = unsafe { given(node, params) };
    given.map_or(Found::Unknown, |(datum, is_null, typ)| {
        Found::of(datum, is_null, typ)
    })
}

/// The value of a constant or a parameter, whether it is NULL, and the type.
///
/// # Safety
/// As for `plain`.
unsafe fn given(node: *const Node, params: pg_sys::ParamListInfo) -> Option<(Datum, bool, Oid)> {
    // SAFETY: nodes are read as what their tags say.
    unsafe {
        match nodes::tag(node) {
            NodeTag::T_Const => {
                let constant = &*node.cast::<pg_sys::Const>();
                Some((
                    constant.constvalue,
                    constant.constisnull,
                    constant.consttype,
                ))
            }
            NodeTag::T_RelabelType => {
                let relabel = &*node.cast::<pg_sys::RelabelType>();
                let (datum, is_null, _) = given(relabel.arg.cast(), params)?;
                Some((datum, is_null, relabel.resulttype))
            }
            NodeTag::T_Param if !params.is_null() => {
                let param = &*node.cast::<pg_sys::Param>();
                let is_known = param.paramkind == pg_sys::ParamKind::PARAM_EXTERN
                    && (*params).paramFetch.is_none()
                    && (1..=(*params).numParams).contains(&param.paramid);
                if !is_known {
                    return None;
                }
                let given = &*(*params).params.as_ptr().add(param.paramid as usize - 1);
                let is_its = given.ptype == param.paramtype;
                is_its.then_some((given.value, given.isnull, given.ptype))
            }
            _ => None,
        }
    }
}

/// The expression with its parameters put in and its immutable functions computed.
///
/// # Safety
/// As for `plain`. An error in it is the one that the CALL itself would raise.
unsafe fn folded(node: *mut Node, params: pg_sys::ParamListInfo) -> *const Node {
    // SAFETY: eval_const_expressions looks at nothing else of the planner's state (clauses.c).
    unsafe {
        let room = |size: usize| raw::palloc0(size);
        let global = room(size_of::<pg_sys::PlannerGlobal>()).cast::<pg_sys::PlannerGlobal>();
        (*global).type_ = NodeTag::T_PlannerGlobal;
        (*global).boundParams = params;
        let root = room(size_of::<pg_sys::PlannerInfo>()).cast::<pg_sys::PlannerInfo>();
        (*root).type_ = NodeTag::T_PlannerInfo;
        (*root).glob = global;
        raw::eval_const_expressions(root, node)
    }
}
