//! Scans that look for the row of one key: `column = value` for each column of the key, with
//! constants or parameters.

use crate::pg::builtin::Known;
use crate::pg::nodes::{length, nodes, nth, relation_of, tag};
use crate::pg::raw;
use crate::pg::relation::key_of_locked;
use hotrow::Identity;
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};

/// A scan of one table by its key.
pub(super) struct Scanned {
    pub(super) identity: Identity,
    /// An index finds the row, by all columns of the key.
    pub(super) by_index: bool,
    /// It asks for nothing but the key.
    pub(super) nothing_else: bool,
    pub(super) is_bytewise: bool,
}

pub(super) unsafe fn scanned(
    query: *const pg_sys::QueryDesc,
    scan: *mut pg_sys::Plan,
) -> Option<Scanned> {
    // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
    unsafe {
        let (index_quals, by_index) = match tag(scan) {
            NodeTag::T_IndexScan => ((*scan.cast::<pg_sys::IndexScan>()).indexqualorig, true),
            NodeTag::T_BitmapHeapScan => (
                (*scan.cast::<pg_sys::BitmapHeapScan>()).bitmapqualorig,
                false,
            ),
            NodeTag::T_SeqScan => (std::ptr::null_mut(), false),
            _ => return None,
        };
        let scan_relation = (*scan.cast::<pg_sys::Scan>()).scanrelid;
        let relation = relation_of((*query).plannedstmt, scan_relation);
        if u32::from(relation) < pg_sys::FirstNormalObjectId {
            return None;
        }
        let key = key_of_locked(relation)?;
        let mut values = [(Datum::from(0), Oid::INVALID); 8];
        let mut known = 0;
        let mut found_by_index = by_index && key.is_of((*scan.cast::<pg_sys::IndexScan>()).indexid);
        let mut nothing_else = true;
        for (list, is_by_index) in [(index_quals, true), ((*scan).qual, false)] {
            for qual in nodes(list) {
                let place = equality(query, qual).and_then(|(number, value, typ)| {
                    let position = key.position(number)?;
                    let fits = values[position].1 == Oid::INVALID && key.takes(position, typ);
                    fits.then_some((position, value, typ))
                });
                match place {
                    Some((position, value, typ)) => {
                        values[position] = (value, typ);
                        known += 1;
                        found_by_index &= is_by_index;
                    }
                    None => nothing_else = false,
                }
            }
        }
        (known == key.len()).then(|| Scanned {
            identity: key.of_values(&values[..known]),
            by_index: found_by_index,
            nothing_else,
            is_bytewise: key.is_bytewise(),
        })
    }
}

/// `column = constant or parameter`: the column's number, the value and its type.
unsafe fn equality(
    query: *const pg_sys::QueryDesc,
    qual: *mut pg_sys::Node,
) -> Option<(i16, Datum, Oid)> {
    // SAFETY: as in `scanned`.
    unsafe {
        if tag(qual) != NodeTag::T_OpExpr {
            return None;
        }
        let op = qual.cast::<pg_sys::OpExpr>();
        if length((*op).args) != 2 {
            return None;
        }
        let (left, right) = (plain(nth((*op).args, 0)), plain(nth((*op).args, 1)));
        let (var, other) = if tag(left) == NodeTag::T_Var {
            (left, right)
        } else {
            (right, left)
        };
        if tag(var) != NodeTag::T_Var {
            return None;
        }
        let var = var.cast::<pg_sys::Var>();
        let (value, typ) = value_of(query, other)?;
        is_equality((*op).opno, (*var).vartype).then_some(((*var).varattno, value, typ))
    }
}

/// The node without RelabelTypes, which change no bytes.
pub(super) unsafe fn plain(mut node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: as in `scanned`.
    unsafe {
        while tag(node) == NodeTag::T_RelabelType {
            node = (*node.cast::<pg_sys::RelabelType>()).arg.cast();
        }
        node
    }
}

pub(super) unsafe fn value_of(
    query: *const pg_sys::QueryDesc,
    node: *mut pg_sys::Node,
) -> Option<(Datum, Oid)> {
    // SAFETY: as in `scanned`; parameters are fetched as ExecEvalParamExtern does.
    unsafe {
        match tag(node) {
            NodeTag::T_Const => {
                let constant = node.cast::<pg_sys::Const>();
                (!(*constant).constisnull)
                    .then_some(((*constant).constvalue, (*constant).consttype))
            }
            NodeTag::T_Param => {
                let param = node.cast::<pg_sys::Param>();
                let list = (*query).params;
                if (*param).paramkind != pg_sys::ParamKind::PARAM_EXTERN
                    || list.is_null()
                    || (*param).paramid <= 0
                    || (*param).paramid > (*list).numParams
                {
                    return None;
                }
                let mut room = pg_sys::ParamExternData::default();
                let value = match (*list).paramFetch {
                    Some(fetch) => fetch(list, (*param).paramid, false, &mut room),
                    None => (*list)
                        .params
                        .as_mut_ptr()
                        .add((*param).paramid as usize - 1),
                };
                (!(*value).isnull && (*value).ptype == (*param).paramtype)
                    .then_some(((*value).value, (*value).ptype))
            }
            _ => None,
        }
    }
}

/// Whether an operator is a btree equality; the answers are remembered.
fn is_equality(operator: Oid, left: Oid) -> bool {
    /// catalog/pg_operator_d.h: of these the types of elements or columns decide.
    const OF_PARTS: [u32; 2] = [pg_sys::ARRAY_EQ_OP, pg_sys::RECORD_EQ_OP];
    static KNOWN: Known<64> = Known::new();
    if OF_PARTS.contains(&u32::from(operator)) {
        // SAFETY: a catalog look-up.
        return unsafe { raw::op_mergejoinable(operator, left) };
    }
    // SAFETY: a catalog look-up.
    KNOWN.get(operator, || unsafe {
        raw::op_mergejoinable(operator, left)
    })
}
