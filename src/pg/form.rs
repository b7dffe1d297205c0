//! The form of an UPDATE: what it does to its row, as bytes that two sessions can compare, and the arguments that make the
//! difference between them.
//!
//! Only what cannot depend on the session has a form: columns of the row, constants, parameters, PostgreSQL's own arithmetic,
//! comparisons and casts of plain types, and the conditionals around them. (Not any immutable function: `quote_ident` is
//! one, and looks at a setting.) Such an expression computes the same in every session, fast, needs no snapshot, reads no
//! table, and an error in it leaves nothing behind.

use super::builtin::{self, Known, is_builtin};
use super::plan::{Target, length, nodes, nth, relation_of, tag};
use super::raw;
use hotrow::{ARGUMENT_BYTES, FORM_BYTES};
use pgrx::pg_sys::{self, Datum, Node, NodeTag, Oid};
use std::cell::Cell;
use std::ffi::CStr;

/// Parameters that a statement may have.
const PARAMETERS: usize = 16;

/// How a value of one of the types that may occur becomes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    ByValue,
    Fixed(usize),
    Varlena,
}

fn shape(typ: Oid) -> Option<Shape> {
    Some(match typ {
        pg_sys::BOOLOID
        | pg_sys::INT2OID
        | pg_sys::INT4OID
        | pg_sys::INT8OID
        | pg_sys::FLOAT4OID
        | pg_sys::FLOAT8OID
        | pg_sys::OIDOID
        | pg_sys::DATEOID
        | pg_sys::TIMESTAMPOID
        | pg_sys::TIMESTAMPTZOID => Shape::ByValue,
        pg_sys::UUIDOID => Shape::Fixed(16),
        pg_sys::NUMERICOID | pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => {
            Shape::Varlena
        }
        _ => return None,
    })
}

/// The form of a statement.
#[derive(Clone, Copy)]
pub struct Form {
    bytes: Bytes<FORM_BYTES>,
    /// Ids of the parameters, in the order of the arguments.
    parameters: [(i32, Oid); PARAMETERS],
    parameter_count: usize,
    /// Columns that change, by number; bit 0 stands for all beyond the 63rd.
    pub changed: u64,
}

#[derive(Clone, Copy)]
struct Bytes<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Bytes<N> {
    const fn new() -> Self {
        Bytes {
            bytes: [0; N],
            length: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes
            .get_mut(self.length..self.length + bytes.len())?
            .copy_from_slice(bytes);
        self.length += bytes.len();
        Some(())
    }

    fn put_word(&mut self, word: u32) -> Option<()> {
        self.put(&word.to_le_bytes())
    }

    /// # Safety
    /// `value` is a value of that type.
    unsafe fn put_value(&mut self, typ: Oid, value: Datum, is_null: bool) -> Option<()> {
        let shape = shape(typ)?;
        if is_null {
            return self.put_word(u32::MAX);
        }
        // SAFETY: by the contract the datum has the type's representation.
        unsafe {
            match shape {
                Shape::ByValue => {
                    self.put_word(8)?;
                    self.put(&(value.value() as u64).to_le_bytes())
                }
                Shape::Fixed(length) => {
                    self.put_word(length as u32)?;
                    self.put(std::slice::from_raw_parts(value.cast_mut_ptr(), length))
                }
                Shape::Varlena => {
                    let given = value.cast_mut_ptr::<pg_sys::varlena>();
                    let plain = raw::pg_detoast_datum_packed(given);
                    let length = pgrx::varlena::varsize_any(plain);
                    let bytes = std::slice::from_raw_parts(plain.cast::<u8>(), length);
                    let done = self.put_word(length as u32).and_then(|()| self.put(bytes));
                    if plain != given {
                        raw::pfree(plain.cast());
                    }
                    done
                }
            }
        }
    }

    fn slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Form {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.slice()
    }

    /// A digest for a first comparison.
    pub fn digest(&self) -> u64 {
        self.bytes()
            .chunks(8)
            .fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                (hash ^ u64::from_le_bytes(word))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(23)
            })
    }

    /// The form of a plain `UPDATE ... WHERE key = value`, if it has one. Its scan must not have begun to read: an index scan
    /// or a sequential scan.
    ///
    /// # Safety
    /// `plan` is a valid plan and `target` is its target.
    pub unsafe fn of_plan(plan: *const pg_sys::PlannedStmt, target: &Target) -> Option<Form> {
        // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
        unsafe {
            let top = (*plan).planTree;
            if !target.is_only()
                || tag(top) != NodeTag::T_ModifyTable
                || (*plan).hasReturning
                || (*plan).hasModifyingCTE
                || (*plan).dependsOnRole
                || !(*plan).canSetTag
                || !(*plan).rowMarks.is_null()
            {
                return None;
            }
            let modify = top.cast::<pg_sys::ModifyTable>();
            let scan = (*top).lefttree;
            if (*modify).operation != pg_sys::CmdType::CMD_UPDATE
                || (*modify).rootRelation != 0
                || !(*modify).withCheckOptionLists.is_null()
                || !(*modify).returningLists.is_null()
                || !(*modify).rowMarks.is_null()
                || length((*modify).updateColnosLists) != 1
                || !(*scan).initPlan.is_null()
                || !(*top).initPlan.is_null()
            {
                return None;
            }
            let index_quals = match tag(scan) {
                NodeTag::T_IndexScan => (*scan.cast::<pg_sys::IndexScan>()).indexqualorig,
                NodeTag::T_SeqScan => std::ptr::null_mut(),
                _ => return None,
            };
            let mut form = Form {
                bytes: Bytes::new(),
                parameters: [(0, Oid::INVALID); PARAMETERS],
                parameter_count: 0,
                changed: 0,
            };
            let relation = relation_of(plan, (*scan.cast::<pg_sys::Scan>()).scanrelid);
            form.bytes.put_word(u32::from(relation))?;
            // Whoever does the update for others makes their commit record: it must ask standbys
            // for feedback if theirs would.
            let remote_apply = pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_REMOTE_APPLY as i32;
            form.bytes
                .put_word(u32::from(pg_sys::synchronous_commit >= remote_apply))?;
            let columns = nth::<pg_sys::List>((*modify).updateColnosLists, 0);
            form.bytes.put_word(length(columns) as u32)?;
            for n in 0..length(columns) {
                let number = (*(*columns).elements.add(n)).int_value;
                form.changed |= 1u64 << if number < 64 { number } else { 0 };
                form.bytes.put_word(number as u32)?;
            }
            for entry in nodes((*scan).targetlist) {
                let entry = entry.cast::<pg_sys::TargetEntry>();
                if (*entry).resjunk {
                    form.bytes.put_word(u32::MAX)?;
                } else {
                    form.expression((*entry).expr.cast())?;
                }
            }
            for list in [index_quals, (*scan).qual] {
                form.expressions(list)?;
            }
            Some(form)
        }
    }

    unsafe fn expressions(&mut self, list: *const pg_sys::List) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            self.bytes.put_word(length(list) as u32)?;
            nodes(list).try_for_each(|node| self.expression(node))
        }
    }

    unsafe fn expression(&mut self, node: *const Node) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            self.bytes.put_word(tag(node) as u32)?;
            match tag(node) {
                NodeTag::T_Var => {
                    let var = node.cast::<pg_sys::Var>();
                    shape((*var).vartype)?;
                    if (*var).varattno <= 0 || (*var).varlevelsup != 0 {
                        return None;
                    }
                    self.bytes.put_word((*var).varattno as u32)
                }
                NodeTag::T_Const => {
                    let constant = node.cast::<pg_sys::Const>();
                    self.bytes.put_word(u32::from((*constant).consttype))?;
                    self.bytes.put_word(u32::from((*constant).constcollid))?;
                    self.bytes.put_value(
                        (*constant).consttype,
                        (*constant).constvalue,
                        (*constant).constisnull,
                    )
                }
                NodeTag::T_Param => {
                    let param = node.cast::<pg_sys::Param>();
                    shape((*param).paramtype)?;
                    if (*param).paramkind != pg_sys::ParamKind::PARAM_EXTERN {
                        return None;
                    }
                    self.bytes.put_word((*param).paramid as u32)?;
                    self.bytes.put_word(u32::from((*param).paramtype))?;
                    self.parameter((*param).paramid, (*param).paramtype)
                }
                NodeTag::T_OpExpr => {
                    let op = node.cast::<pg_sys::OpExpr>();
                    if !is_plain_operator((*op).opno) || !is_portable_function((*op).opfuncid) {
                        return None;
                    }
                    shape((*op).opresulttype)?;
                    self.bytes.put_word(u32::from((*op).opfuncid))?;
                    self.bytes.put_word(u32::from((*op).opresulttype))?;
                    self.bytes.put_word(u32::from((*op).inputcollid))?;
                    self.expressions((*op).args)
                }
                NodeTag::T_FuncExpr => {
                    let call = node.cast::<pg_sys::FuncExpr>();
                    let casts = [
                        pg_sys::CoercionForm::COERCE_EXPLICIT_CAST,
                        pg_sys::CoercionForm::COERCE_IMPLICIT_CAST,
                    ];
                    if !casts.contains(&(*call).funcformat) || !is_portable_function((*call).funcid)
                    {
                        return None;
                    }
                    shape((*call).funcresulttype)?;
                    self.bytes.put_word(u32::from((*call).funcid))?;
                    self.bytes.put_word(u32::from((*call).funcresulttype))?;
                    self.bytes.put_word(u32::from((*call).inputcollid))?;
                    self.expressions((*call).args)
                }
                NodeTag::T_RelabelType => {
                    let relabel = node.cast::<pg_sys::RelabelType>();
                    shape((*relabel).resulttype)?;
                    self.bytes.put_word(u32::from((*relabel).resulttype))?;
                    self.expression((*relabel).arg.cast())
                }
                NodeTag::T_BoolExpr => {
                    let junction = node.cast::<pg_sys::BoolExpr>();
                    self.bytes.put_word((*junction).boolop)?;
                    self.expressions((*junction).args)
                }
                NodeTag::T_NullTest => {
                    let test = node.cast::<pg_sys::NullTest>();
                    if (*test).argisrow {
                        return None;
                    }
                    self.bytes.put_word((*test).nulltesttype)?;
                    self.expression((*test).arg.cast())
                }
                NodeTag::T_CoalesceExpr => {
                    let coalesce = node.cast::<pg_sys::CoalesceExpr>();
                    shape((*coalesce).coalescetype)?;
                    self.bytes.put_word(u32::from((*coalesce).coalescetype))?;
                    self.expressions((*coalesce).args)
                }
                NodeTag::T_CaseExpr => {
                    let case = node.cast::<pg_sys::CaseExpr>();
                    if !(*case).arg.is_null() {
                        return None;
                    }
                    shape((*case).casetype)?;
                    self.bytes.put_word(u32::from((*case).casetype))?;
                    self.bytes.put_word(length((*case).args) as u32)?;
                    for when in nodes((*case).args) {
                        let when = when.cast::<pg_sys::CaseWhen>();
                        self.expression((*when).expr.cast())?;
                        self.expression((*when).result.cast())?;
                    }
                    self.bytes
                        .put_word(u32::from((*case).defresult.is_null()))?;
                    if (*case).defresult.is_null() {
                        return Some(());
                    }
                    self.expression((*case).defresult.cast())
                }
                _ => None,
            }
        }
    }

    fn parameter(&mut self, id: i32, typ: Oid) -> Option<()> {
        let known = &self.parameters[..self.parameter_count];
        if !known.contains(&(id, typ)) {
            *self.parameters.get_mut(self.parameter_count)? = (id, typ);
            self.parameter_count += 1;
        }
        Some(())
    }

    fn parameters(&self) -> &[(i32, Oid)] {
        &self.parameters[..self.parameter_count]
    }

    /// The statement's arguments as bytes, if they fit and come as plain values.
    ///
    /// # Safety
    /// `query` is a query of this form.
    pub unsafe fn arguments(
        &self,
        query: *const pg_sys::QueryDesc,
    ) -> Option<([u8; ARGUMENT_BYTES], usize)> {
        let mut bytes = Bytes::<ARGUMENT_BYTES>::new();
        // SAFETY: the list has `numParams` parameters, and no hook makes others of them.
        unsafe {
            let list = (*query).params;
            for &(id, typ) in self.parameters() {
                if list.is_null()
                    || (*list).paramFetch.is_some()
                    || (*list).paramCompile.is_some()
                    || id <= 0
                    || id > (*list).numParams
                {
                    return None;
                }
                let value = (*list).params.as_ptr().add(id as usize - 1);
                if (*value).ptype != typ {
                    return None;
                }
                bytes.put_value(typ, (*value).value, (*value).isnull)?;
            }
        }
        Some((bytes.bytes, bytes.length))
    }
}

/// A query's own arguments, while it has those of another session.
pub struct Arguments {
    own: [pg_sys::ParamExternData; PARAMETERS],
}

/// The present arguments by reference, each at a multiple of 8.
struct Values([Cell<u64>; 2 * ARGUMENT_BYTES / 8]);
// SAFETY: a backend has one thread.
unsafe impl Sync for Values {}
static VALUES: Values = Values([const { Cell::new(0) }; 2 * ARGUMENT_BYTES / 8]);

impl Arguments {
    /// Keeps the query's own arguments.
    ///
    /// # Safety
    /// `query` has the form, and its `arguments` are some.
    pub unsafe fn save(form: &Form, query: *const pg_sys::QueryDesc) -> Self {
        let mut own = [pg_sys::ParamExternData::default(); PARAMETERS];
        for (place, &(id, _)) in own.iter_mut().zip(form.parameters()) {
            // SAFETY: by the contract.
            *place = unsafe { *(*(*query).params).params.as_ptr().add(id as usize - 1) };
        }
        Arguments { own }
    }

    /// Puts the query's own arguments back.
    ///
    /// # Safety
    /// As for `save`, with the same query.
    pub unsafe fn restore(&self, form: &Form, query: *const pg_sys::QueryDesc) {
        for (own, &(id, _)) in self.own.iter().zip(form.parameters()) {
            // SAFETY: by the contract.
            unsafe { *(*(*query).params).params.as_mut_ptr().add(id as usize - 1) = *own };
        }
    }

    /// Gives the query these arguments, which another session has made by `Form::arguments` with the same form. They are
    /// valid until the next ones.
    ///
    /// # Safety
    /// As for `save`, with the same query.
    pub unsafe fn replace(
        &self,
        form: &Form,
        query: *const pg_sys::QueryDesc,
        bytes: &[u8],
    ) -> Option<()> {
        let mut at = 0;
        let mut used = 0;
        for &(id, typ) in form.parameters() {
            let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
            at += 4;
            let (value, is_null) = if length == u32::MAX {
                (Datum::from(0), true)
            } else {
                let value = bytes.get(at..at + length as usize)?;
                at += length as usize;
                if shape(typ)? == Shape::ByValue {
                    let word = u64::from_le_bytes(*value.first_chunk()?);
                    (Datum::from(word), false)
                } else {
                    let words = value.len().div_ceil(8);
                    let place = VALUES.0.get(used..used + words)?;
                    for (word, chunk) in place.iter().zip(value.chunks(8)) {
                        let mut whole = [0; 8];
                        whole[..chunk.len()].copy_from_slice(chunk);
                        word.set(u64::from_ne_bytes(whole));
                    }
                    used += words;
                    (Datum::from(place.as_ptr().cast_mut()), false)
                }
            };
            // SAFETY: by the contract the parameter is there, with this type.
            unsafe {
                let param = (*(*query).params).params.as_mut_ptr().add(id as usize - 1);
                (*param).value = value;
                (*param).isnull = is_null;
            }
        }
        Some(())
    }
}

/// Whether an expression of the catalogs (a CHECK constraint) has a form: it may be evaluated for another session.
///
/// # Safety
/// `text` is an expression as the catalogs keep it.
pub unsafe fn is_portable(text: *const std::ffi::c_char) -> bool {
    // SAFETY: by the contract; function numbers are filled in as the planner does.
    unsafe {
        let node = raw::stringToNode(text).cast::<Node>();
        raw::fix_opfuncids(node);
        let mut form = Form {
            bytes: Bytes::new(),
            parameters: [(0, Oid::INVALID); PARAMETERS],
            parameter_count: 0,
            changed: 0,
        };
        form.expression(node).is_some()
    }
}

/// Whether an operator compares, computes or concatenates.
fn is_plain_operator(operator: Oid) -> bool {
    const NAMES: [&[u8]; 17] = [
        b"=", b"<>", b"<", b"<=", b">", b">=", b"+", b"-", b"*", b"/", b"%", b"&", b"|", b"#",
        b"<<", b">>", b"||",
    ];
    static KNOWN: Known<64> = Known::new();
    is_builtin(operator)
        && KNOWN.get(operator, || {
            // SAFETY: a catalog look-up; the name is a palloc'd string or null.
            unsafe {
                let name = raw::get_opname(operator);
                !name.is_null() && NAMES.contains(&CStr::from_ptr(name).to_bytes())
            }
        })
}

/// Whether a function is one of PostgreSQL's own, immutable and written in C.
fn is_portable_function(function: Oid) -> bool {
    static KNOWN: Known<64> = Known::new();
    is_builtin(function)
        && KNOWN.get(function, || {
            // SAFETY: a catalog look-up.
            unsafe { builtin::ask_function(function, builtin::is_immutable_internal) == Some(true) }
        })
}
