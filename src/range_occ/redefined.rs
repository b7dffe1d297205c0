//! Tables whose definitions the present transaction has changed, with a lock that DDL takes and a
//! relcache invalidation for all backends.
//!
//! A transaction that has redefined, rewritten or refilled a table with ACCESS EXCLUSIVE counts as
//! having written all of it. With an exclusion window it also counts as having read all of it. A
//! later transaction sees the new definition, and finds no entries of transactions that wrote under
//! the old one. But it finds the entry for the whole table, and so takes no place before it in the
//! order.

use super::work::Change;
use super::{key, session, view};
use crate::pg::local::Local;
use crate::pg::lookup::is_locked;
use crate::pg::of_transaction::{self, OfTransaction};
use crate::pg::utility::{alters_storage, drops_temporary, is_made_temporary, is_temporary};
use crate::pg::{nodes, raw};
use pgrx::pg_sys::{self, CommandId, NodeTag, Oid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

struct Noted {
    /// The transaction of these changes: other invalidations come when a transaction has ended.
    of: Cell<u32>,
    /// With whether the list of partitions may have changed.
    tables: RefCell<BTreeMap<u32, bool>>,
    /// A utility statement has run, whose last invalidations may still be to come.
    after_utility: OfTransaction<bool>,
    utility: Cell<Utility>,
    /// The transaction in which that was last one by which lists of partitions change.
    lists_of: Cell<u32>,
    /// The transaction, and its command, in which a LOCK has run last.
    locked: Cell<(u32, CommandId)>,
}

/// What the last utility statement may do, with those inside it.
#[derive(Clone, Copy)]
struct Utility {
    /// It runs, and only takes locks: invalidations are of others' making.
    only_locks: bool,
    /// Under a lock beside which others use the table, it changes nothing that plans or errors
    /// depend on.
    is_harmless: bool,
    /// It, or one before it in the transaction, may change which partitions a table has.
    changes_lists: bool,
}
static NOTED: Local<Noted> = Local::new(Noted {
    of: Cell::new(0),
    tables: RefCell::new(BTreeMap::new()),
    after_utility: OfTransaction::new(false),
    utility: Cell::new(Utility {
        only_locks: false,
        is_harmless: false,
        changes_lists: false,
    }),
    lists_of: Cell::new(0),
    locked: Cell::new((0, 0)),
});

/// The present transaction, 0 for none.
fn present() -> u32 {
    // SAFETY: this process's own entry, null before it has one.
    unsafe { pg_sys::MyProc.as_ref() }.map_or(0, |own| own.lxid)
}

/// The present transaction and its command. What it has changed itself it hears of in a later one
/// (xact.c: CommandCounterIncrement).
fn now() -> (u32, CommandId) {
    // SAFETY: reads backend state.
    (present(), unsafe { raw::GetCurrentCommandId(false) })
}

/// Whether it may be redefining the table.
fn may_redefine(relation: Oid) -> bool {
    is_locked(relation, pg_sys::AccessExclusiveLock)
        || is_locked(relation, pg_sys::ShareUpdateExclusiveLock)
        || keeps_writers_out(relation)
}

/// A relcache entry is not valid any more.
pub fn note(relation: Oid) {
    let present = present();
    let is_users = u32::from(relation) >= pg_sys::FirstNormalObjectId;
    let utility = NOTED.utility.get();
    let has_changed_nothing = || utility.only_locks || NOTED.locked.get() == now();
    if present == 0 || !is_users || has_changed_nothing() || !may_redefine(relation) {
        return;
    }
    // SAFETY: a plain read of backend state.
    let process = unsafe { pg_sys::MyBackendType };
    let is_harmless = utility.is_harmless || process == pg_sys::BackendType::B_AUTOVAC_WORKER;
    if is_harmless && !is_locked(relation, pg_sys::AccessExclusiveLock) {
        return;
    }
    of_transaction::note();
    let mut tables = NOTED.tables.borrow_mut();
    if NOTED.of.replace(present) != present {
        tables.clear();
    }
    *tables.entry(relation.into()).or_default() |= utility.changes_lists;
}

/// Whether the table's definition is the present transaction's own, which has it locked, and others
/// had another one before.
///
/// # Safety
/// `rel` is open.
pub unsafe fn is_own(rel: pg_sys::Relation) -> bool {
    // SAFETY: the caller's relation is open.
    let (oid, is_new) = unsafe { ((*rel).rd_id, (*rel).rd_createSubid != 0) };
    NOTED.of.get() == present()
        && !is_new
        && NOTED.tables.borrow().contains_key(&oid.into())
        && is_locked(oid, pg_sys::AccessExclusiveLock)
}

/// Whether this process keeps all others from writing to the table.
pub fn keeps_writers_out(relation: Oid) -> bool {
    const STRONG: [u32; 4] = [
        pg_sys::ShareLock,
        pg_sys::ShareRowExclusiveLock,
        pg_sys::ExclusiveLock,
        pg_sys::AccessExclusiveLock,
    ];
    STRONG.iter().any(|&mode| is_locked(relation, mode))
}

/// A utility statement is about to run that may redefine something. Its success or its error tells
/// of what others have done, whatever the snapshot shows.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn note_utility(node: *const pg_sys::Node, is_top_level: bool) {
    // SAFETY: the caller's node is that of a utility statement, read as its tag says.
    let own = unsafe {
        Utility {
            only_locks: (*node).type_ == NodeTag::T_LockStmt,
            is_harmless: is_harmless(node),
            changes_lists: changes_lists(node),
        }
    };
    NOTED.after_utility.set(true);
    NOTED.locked.set((0, 0));
    let last = NOTED.utility.get();
    if own.changes_lists {
        NOTED.lists_of.set(present());
    }
    NOTED.utility.set(Utility {
        only_locks: own.only_locks && (is_top_level || last.only_locks),
        is_harmless: own.is_harmless && (is_top_level || last.is_harmless),
        changes_lists: own.changes_lists || last.changes_lists && NOTED.lists_of.get() == present(),
    });
    // SAFETY: the caller's node is that of a utility statement, read as its tag says.
    if session::is_validated() && unsafe { is_ddl(node) } {
        session::with(|work| work.saw_beyond = true);
    }
}

/// A utility statement has run, or failed: a LOCK has heard of all that others had done to its
/// tables before. What they do beside it, GRANT for one, is not the transaction's own as long as
/// that has done nothing else.
pub fn end_utility() {
    let last = NOTED.utility.get();
    if last.only_locks {
        NOTED.locked.set(now());
    }
    NOTED.utility.set(Utility {
        only_locks: false,
        ..last
    });
}

/// The transaction has ended.
pub fn forget() {
    NOTED.after_utility.clear();
}

/// Whether a statement that others can run beside changes nothing but statistics and storage.
unsafe fn is_harmless(node: *const pg_sys::Node) -> bool {
    // SAFETY: a utility statement's node, read as what its tag says.
    unsafe {
        match (*node).type_ {
            NodeTag::T_VacuumStmt
            | NodeTag::T_CreateStatsStmt
            | NodeTag::T_AlterStatsStmt
            | NodeTag::T_CommentStmt
            | NodeTag::T_GrantStmt
            | NodeTag::T_SecLabelStmt => true,
            NodeTag::T_AlterTableStmt => alters_storage(node.cast()),
            _ => false,
        }
    }
}

/// Whether a statement beside which others use the partitioned table may change which partitions
/// that has.
unsafe fn changes_lists(node: *const pg_sys::Node) -> bool {
    use pg_sys::AlterTableType as Kind;
    // SAFETY: a utility statement's node, read as what its tag says; a foreign table's begins as a
    // table's.
    unsafe {
        match (*node).type_ {
            NodeTag::T_CreateStmt | NodeTag::T_CreateForeignTableStmt => {
                !(*node.cast::<pg_sys::CreateStmt>()).partbound.is_null()
            }
            NodeTag::T_AlterTableStmt => {
                nodes::nodes((*node.cast::<pg_sys::AlterTableStmt>()).cmds).any(|command| {
                    matches!(
                        (*command.cast::<pg_sys::AlterTableCmd>()).subtype,
                        Kind::AT_AttachPartition
                            | Kind::AT_DetachPartition
                            | Kind::AT_DetachPartitionFinalize
                    )
                })
            }
            _ => false,
        }
    }
}

/// Whether a statement defines something for others, too, or tells of what they have defined.
unsafe fn is_ddl(node: *const pg_sys::Node) -> bool {
    // SAFETY: a utility statement's node, read as what its tag says.
    unsafe {
        let is_private = match (*node).type_ {
            NodeTag::T_CommentStmt => !is_part((*node.cast::<pg_sys::CommentStmt>()).objtype),
            NodeTag::T_SecLabelStmt => !is_part((*node.cast::<pg_sys::SecLabelStmt>()).objtype),
            NodeTag::T_GrantStmt => nodes::nodes((*node.cast::<pg_sys::GrantStmt>()).privileges)
                .all(|one| (*one.cast::<pg_sys::AccessPriv>()).cols.is_null()),
            NodeTag::T_GrantRoleStmt => true,
            NodeTag::T_CreateStmt => {
                let create = &*node.cast::<pg_sys::CreateStmt>();
                is_made_temporary(create.relation)
                    && nodes::nodes(create.tableElts)
                        .all(|element| (*element).type_ != NodeTag::T_TableLikeClause)
            }
            NodeTag::T_CreateTableAsStmt => {
                let into = (*node.cast::<pg_sys::CreateTableAsStmt>()).into;
                is_made_temporary((*into).rel) && !(*into).skipData
            }
            NodeTag::T_AlterSeqStmt => {
                is_temporary((*node.cast::<pg_sys::AlterSeqStmt>()).sequence)
            }
            NodeTag::T_RenameStmt => {
                let renamed = (*node.cast::<pg_sys::RenameStmt>()).relation;
                !renamed.is_null() && is_temporary(renamed)
            }
            NodeTag::T_CreateStatsStmt => {
                nodes::nodes((*node.cast::<pg_sys::CreateStatsStmt>()).relations).all(|table| {
                    (*table).type_ == NodeTag::T_RangeVar && is_temporary(table.cast())
                })
            }
            NodeTag::T_CreateSeqStmt => {
                is_made_temporary((*node.cast::<pg_sys::CreateSeqStmt>()).sequence)
            }
            NodeTag::T_IndexStmt => is_temporary((*node.cast::<pg_sys::IndexStmt>()).relation),
            NodeTag::T_AlterTableStmt => {
                is_temporary((*node.cast::<pg_sys::AlterTableStmt>()).relation)
            }
            NodeTag::T_TruncateStmt => {
                nodes::nodes((*node.cast::<pg_sys::TruncateStmt>()).relations)
                    .all(|table| is_temporary(table.cast()))
            }
            NodeTag::T_DropStmt => drops_temporary(node.cast()),
            _ => false,
        };
        let level = raw::GetCommandLogLevel(node.cast_mut());
        let is_truncate = (*node).type_ == NodeTag::T_TruncateStmt;
        !is_private && (is_truncate || level == raw::LOGSTMT_DDL)
    }
}

/// Whether that is a part of a table: its name says what the table has.
fn is_part(object: pg_sys::ObjectType::Type) -> bool {
    use pg_sys::ObjectType::*;
    matches!(
        object,
        OBJECT_COLUMN | OBJECT_TABCONSTRAINT | OBJECT_TRIGGER | OBJECT_RULE | OBJECT_POLICY
    )
}

/// The transaction is about to end: what it redefined becomes part of its work.
#[inline]
pub fn settle() {
    let after_utility = NOTED.after_utility.take();
    if after_utility || NOTED.of.get() == present() {
        settle_noted(after_utility);
    }
}

fn settle_noted(after_utility: bool) {
    if view::own_fxid() == 0 {
        return; // VACUUM takes such a lock, too
    }
    if after_utility {
        // SAFETY: between two statements; the invalidations of the last one are executed.
        unsafe { raw::CommandCounterIncrement() };
    }
    if NOTED.of.get() != present() {
        return;
    }
    loop {
        let Some((oid, changes_lists)) = NOTED.tables.borrow_mut().pop_first() else {
            return;
        };
        let oid = Oid::from(oid);
        if !may_redefine(oid) {
            continue; // a savepoint has taken it back
        }
        // SAFETY: the table is locked, or has been dropped and has no entry.
        unsafe {
            let rel = raw::RelationIdGetRelation(oid);
            let is_exclusive = is_locked(oid, pg_sys::AccessExclusiveLock);
            if rel.is_null() {
                session::with_present(|work| work.saw_beyond = true);
                continue;
            }
            let class = &*(*rel).rd_rel;
            let is_new = (*rel).rd_createSubid != 0; // InvalidSubTransactionId
            let is_temporary = class.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP;
            let is_parent = class.relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE;
            let own_method = raw::get_am_oid(c"txn_heap".as_ptr(), true);
            let is_ours = class.relam == own_method;
            raw::RelationClose(rel);
            if own_method == Oid::INVALID || is_temporary || !(is_parent || is_ours) {
                continue;
            }
            let changes_partitions =
                is_parent && changes_lists && is_locked(oid, pg_sys::ShareUpdateExclusiveLock);
            let change = match is_exclusive {
                true if is_ours && !is_new => Change::Rows,
                // A new table may have the name of another.
                true => Change::Whole,
                false if changes_partitions => Change::Whole,
                false => Change::Beside,
            };
            session::with(|work| work.redefine(key::relation_of(oid), change));
        }
    }
}
