//! What a statement does at which node: on which connection its scans run, and which leave
//! together.
//!
//! At READ COMMITTED each command at a node has a snapshot of its own. A SELECT that sends more
//! than one to the same node would see two, so it reads in a transaction of its own there.
//!
//! The parts of an Append leave together: one round trip for all of them. (PostgreSQL's own
//! asynchronous Append waits where no cancel is heard.)

use super::exchange::{Command, Request, Role};
use super::failure::{Failure, NOT_SUPPORTED, Outcome};
use super::last;
use super::node::Use;
use super::nodes::{self, NodeId};
use super::record;
use super::schedule::{self, Sent};
use crate::pg::local::Local;
use crate::pg::nodes::{length, nodes as elements, nth, tag};
use crate::pg::xact;
use pgrx::pg_sys::{self, ForeignScanState, NodeTag, Oid, Plan, PlanState};
use std::cell::RefCell;
use std::ffi::c_void;

/// A statement in progress.
struct Statement {
    estate: usize,
    /// Server and user, once for each command that may be sent.
    scans: Vec<(Oid, Oid)>,
    /// Its number, once it reads in transactions of its own.
    number: Option<usize>,
    parts: Vec<Part>,
}

/// Sends the command of a part, unless that has been done.
pub type Start = unsafe fn(*mut ForeignScanState) -> Outcome<Option<Sent>>;

/// A scan or direct modification.
#[derive(Clone, Copy)]
struct Part {
    node: *mut ForeignScanState,
    server: Oid,
    repeats: bool,
    start: Start,
}

static STATEMENTS: Local<RefCell<Vec<Statement>>> = Local::new(RefCell::new(Vec::new()));

/// A part of the statement is going to run at that server, as that user; more than once if it
/// `repeats`.
///
/// # Safety
/// The state of a part of a statement that starts.
pub unsafe fn note(node: *mut ForeignScanState, scanned: (Oid, Oid), repeats: bool, start: Start) {
    // SAFETY: the caller's state is that of a part, and leads to its statement's.
    let estate = unsafe { (*node).ss.ps.state };
    let is_new = {
        let mut statements = STATEMENTS.borrow_mut();
        let at = statements
            .iter()
            .position(|one| one.estate == estate as usize);
        let place = at.unwrap_or_else(|| {
            statements.push(Statement {
                estate: estate as usize,
                scans: Vec::new(),
                number: None,
                parts: Vec::new(),
            });
            statements.len() - 1
        });
        let times = if repeats { 2 } else { 1 };
        let statement = &mut statements[place];
        statement.scans.extend(std::iter::repeat_n(scanned, times));
        statement.parts.push(Part {
            node,
            server: scanned.0,
            repeats,
            start,
        });
        at.is_none()
    };
    if is_new {
        // SAFETY: mcxt.c: the callback is allocated in the context at whose end it is called.
        unsafe {
            let context = (*estate).es_query_cxt;
            let size = size_of::<pg_sys::MemoryContextCallback>();
            let callback: *mut pg_sys::MemoryContextCallback =
                pg_sys::MemoryContextAllocZero(context, size).cast();
            (*callback).func = Some(on_end);
            (*callback).arg = estate.cast();
            pg_sys::MemoryContextRegisterResetCallback(context, callback);
        }
    }
}

/// The statement is over: so are its transactions at nodes.
unsafe extern "C-unwind" fn on_end(estate: *mut c_void) {
    let Ok(mut statements) = STATEMENTS.try_borrow_mut() else {
        return;
    };
    let Some(at) = statements
        .iter()
        .position(|one| one.estate == estate as usize)
    else {
        return;
    };
    if let Some(number) = statements.remove(at).number {
        nodes::for_each(|_, node| {
            if node.for_use == Use::Reads(number) && node.is_in_transaction() {
                node.send(&Request::of(Command::new(Role::Ending, "COMMIT")), None);
                node.end_transaction();
            }
        });
    }
}

/// Whether the statement only reads and locks nothing.
///
/// # Safety
/// `estate` is the state of a statement that runs.
unsafe fn only_reads(estate: *const pg_sys::EState) -> bool {
    // SAFETY: the caller's statement runs, so its plan is valid or null.
    unsafe {
        let plan = (*estate).es_plannedstmt;
        !plan.is_null()
            && (*plan).commandType == pg_sys::CmdType::CMD_SELECT
            && !(*plan).hasModifyingCTE
            && (*plan).rowMarks.is_null()
    }
}

/// The connection for a scan of that statement.
///
/// # Safety
/// `estate` is the state of a statement that runs.
pub unsafe fn connection(estate: *const pg_sys::EState, server: Oid, user: Oid) -> Outcome<NodeId> {
    // SAFETY: the caller's statement runs.
    let needs_one_snapshot = xact::is_read_committed() && unsafe { only_reads(estate) };
    let number = if needs_one_snapshot {
        number(estate, server, user)
    } else {
        None
    };
    let Some(number) = number else {
        return nodes::find(server, user, Use::Work);
    };
    let has_written = nodes::all(|node| {
        node.for_use == Use::Work && node.server.server == server && node.has_written()
    });
    if let Some(&id) = has_written.first() {
        let name = nodes::with(id, |node| node.server.name.clone());
        return Err(Failure::new(
            NOT_SUPPORTED,
            format!("cannot read several times from server \"{name}\" with one snapshot"),
        )
        .detail("The transaction has written to the server, at READ COMMITTED.")
        .hint("Use REPEATABLE READ, or read one table of the server at a time."));
    }
    nodes::find(server, user, Use::Reads(number))
}

/// The statement's number, if it sends more than one command to that server.
fn number(estate: *const pg_sys::EState, server: Oid, user: Oid) -> Option<usize> {
    let mut statements = STATEMENTS.borrow_mut();
    let at = statements
        .iter()
        .position(|one| one.estate == estate as usize)?;
    let times = statements[at]
        .scans
        .iter()
        .filter(|&&one| one == (server, user))
        .count();
    if times < 2 {
        return None;
    }
    let taken: Vec<usize> = statements.iter().filter_map(|one| one.number).collect();
    let free = (0..).find(|n| !taken.contains(n));
    statements[at].number = statements[at].number.or(free);
    statements[at].number
}

/// The servers and users of a statement that consists of nothing but modifications which nodes do
/// by themselves, at one node each. After them nothing of the statement can use a node again. None
/// for any other statement.
///
/// # Safety
/// `estate` is the state of a statement that runs.
pub unsafe fn writes_alone(estate: *const pg_sys::EState) -> Option<Vec<(Oid, Oid)>> {
    let statements = STATEMENTS.borrow();
    let statement = statements
        .iter()
        .find(|one| one.estate == estate as usize)?;
    let mut servers = statement.scans.clone();
    servers.sort_unstable_by_key(|&(server, user)| (u32::from(server), u32::from(user)));
    servers.dedup();
    if servers.len() != statement.scans.len() {
        return None;
    }
    // SAFETY: the caller's statement runs, so the states of its parts are valid.
    let is_it =
        unsafe { statement.parts.iter().all(|part| changes_once(part)) && changes_alone(estate) };
    is_it.then_some(servers)
}

/// Whether the statement changes by this part only, and uses nodes by no other.
///
/// # Safety
/// `node` is the state of a part that was noted.
pub unsafe fn is_alone(node: *const ForeignScanState) -> bool {
    // SAFETY: the caller's part was noted, so its statement runs.
    let estate: *const pg_sys::EState = unsafe { (*node).ss.ps.state };
    let has_one_part = {
        let statements = STATEMENTS.borrow();
        let found = statements.iter().find(|one| one.estate == estate as usize);
        found.is_some_and(|one| one.parts.len() == 1 && !one.parts[0].repeats)
    };
    // SAFETY: the caller's part was noted, so its statement runs.
    has_one_part && unsafe { is_only_child(last::plan_state(estate), node) }
}

/// Whether the plan is a ModifyTable whose rows all come from this scan.
unsafe fn is_only_child(top: *const PlanState, scan: *const ForeignScanState) -> bool {
    // SAFETY: null or the state of a plan, whose tag says what it is.
    unsafe {
        if tag(top) != NodeTag::T_ModifyTableState {
            return false;
        }
        let mut child = (*top).lefttree;
        loop {
            child = match tag(child) {
                NodeTag::T_ForeignScanState => return child.cast_const().cast() == scan,
                NodeTag::T_ResultState => (*child).lefttree,
                NodeTag::T_AppendState => {
                    let append = child.cast::<pg_sys::AppendState>();
                    if (*append).as_nplans != 1 {
                        return false;
                    }
                    *(*append).appendplans
                }
                _ => return false,
            };
        }
    }
}

/// Whether the part changes rows, without RETURNING, and runs once.
unsafe fn changes_once(part: &Part) -> bool {
    // SAFETY: the executor's state of a part that was noted.
    unsafe {
        let result = (*part.node).resultRelInfo;
        !part.repeats && !result.is_null() && (*result).ri_projectReturning.is_null()
    }
}

/// Whether what the statement changes otherwise, it changes here, and without triggers. (Those that
/// are left to the commit may use nodes, too.)
unsafe fn changes_alone(estate: *const pg_sys::EState) -> bool {
    // SAFETY: the executor's list of tables that a running statement changes, which are open.
    unsafe {
        let in_with = (*(*estate).es_plannedstmt).hasModifyingCTE;
        elements((*estate).es_opened_result_relations).all(|result| {
            let result = result.cast::<pg_sys::ResultRelInfo>();
            let kind = (*(*(*result).ri_RelationDesc).rd_rel).relkind as u8;
            let is_here = match kind {
                pg_sys::RELKIND_FOREIGN_TABLE => (*result).ri_usesFdwDirectModify,
                // An INSERT into it may come to any partition.
                pg_sys::RELKIND_PARTITIONED_TABLE => !in_with,
                _ => true,
            };
            is_here && (*result).ri_TrigDesc.is_null()
        })
    }
}

/// A part sends its command, and those beside it in the same Append send theirs.
///
/// # Safety
/// `node` is the state of a part that was noted.
pub unsafe fn start_together(node: *mut ForeignScanState) -> Outcome<()> {
    // SAFETY: the caller's part was noted, so its statement runs.
    let parts = unsafe { together(node) };
    // SAFETY: `together` gives states of parts of this statement.
    let is_scheduled = parts.iter().all(|part| unsafe { takes_locks(part) });
    let part = |one: Part| {
        let mut records = Vec::new();
        if is_scheduled {
            // SAFETY: it takes locks, and its statement runs.
            records = unsafe { record::of(one.node) };
            records.extend(nodes::deferred_records(one.server));
        }
        schedule::Part::new(one.server, records, one)
    };
    let parts = parts.into_iter().map(part).collect();
    // SAFETY: the state of a part that was noted.
    let round = schedule::send_each(parts, is_scheduled, |part: Part| unsafe {
        (part.start)(part.node)
    })?;
    // Reads are waited for one by one, where their rows are wanted.
    if is_scheduled { round.finish() } else { Ok(()) }
}

/// Whether the part changes rows, or locks them once, as one who is going to, and waits for them.
unsafe fn takes_locks(part: &Part) -> bool {
    // SAFETY: the executor's state of a part that was noted, and its plan.
    unsafe {
        let plan = (*part.node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let statement = (*(*part.node).ss.ps.state).es_plannedstmt;
        if (*plan).operation != pg_sys::CmdType::CMD_SELECT {
            return true;
        }
        if statement.is_null() || part.repeats {
            return false;
        }
        let table = (*plan).scan.scanrelid;
        elements((*statement).rowMarks).any(|mark| {
            let mark = &*mark.cast::<pg_sys::PlanRowMark>();
            mark.rti == table
                && mark.strength >= pg_sys::LockClauseStrength::LCS_FORNOKEYUPDATE
                && mark.waitPolicy == pg_sys::LockWaitPolicy::LockWaitBlock
        })
    }
}

/// The part and those beside it, if they may leave together.
unsafe fn together(node: *mut ForeignScanState) -> Vec<Part> {
    // SAFETY: the executor's state, whose plans live as long as it.
    unsafe {
        let estate = (*node).ss.ps.state;
        let statement = (*estate).es_plannedstmt;
        let parts: Vec<Part> = STATEMENTS
            .borrow()
            .iter()
            .filter(|one| one.estate == estate as usize)
            .flat_map(|one| one.parts.iter().copied())
            .collect();
        let own = |part: &Part| part.node == node;
        let is_alone = statement.is_null()
            || !(*statement).rowMarks.is_null()
            || parts.len() < 2
            || !last::runs_to_its_end(estate);
        if is_alone {
            return parts.into_iter().filter(own).collect();
        }
        let mut beside = Vec::new();
        let plan = (*node).ss.ps.plan;
        let mut trees = vec![(*statement).planTree];
        trees.extend(elements((*statement).subplans).map(|plan| plan.cast::<Plan>()));
        for tree in trees {
            find_beside(tree, plan, &mut beside);
        }
        let leaves =
            |part: &Part| own(part) || !part.repeats && beside.contains(&(*part.node).ss.ps.plan);
        parts.into_iter().filter(leaves).collect()
    }
}

/// Collects the foreign scans that are children of the Append of which `own` is one.
unsafe fn find_beside(plan: *mut Plan, own: *mut Plan, found: &mut Vec<*mut Plan>) {
    // SAFETY: null or a plan's node.
    unsafe {
        // What is below a Limit may not be asked for at all.
        if plan.is_null() || tag(plan) == NodeTag::T_Limit {
            return;
        }
        let children = children(plan);
        let prunes = match tag(plan) {
            NodeTag::T_Append => (*plan.cast::<pg_sys::Append>()).part_prune_info,
            NodeTag::T_MergeAppend => (*plan.cast::<pg_sys::MergeAppend>()).part_prune_info,
            _ => std::ptr::null_mut(),
        };
        if matches!(tag(plan), NodeTag::T_Append | NodeTag::T_MergeAppend) {
            let scans: Vec<_> = children
                .iter()
                .filter_map(|&child| foreign_scan(child))
                .collect();
            if scans.contains(&own) && !prunes_while_running(prunes) {
                found.extend(scans);
            }
        }
        for child in children
            .into_iter()
            .chain([(*plan).lefttree, (*plan).righttree])
        {
            find_beside(child, own, found);
        }
    }
}

/// The plans that a node runs beside its left and right one.
unsafe fn children(plan: *mut Plan) -> Vec<*mut Plan> {
    // SAFETY: a plan's node.
    unsafe {
        let list = match tag(plan) {
            NodeTag::T_Append => (*plan.cast::<pg_sys::Append>()).appendplans,
            NodeTag::T_MergeAppend => (*plan.cast::<pg_sys::MergeAppend>()).mergeplans,
            NodeTag::T_CustomScan => (*plan.cast::<pg_sys::CustomScan>()).custom_plans,
            NodeTag::T_SubqueryScan => {
                return vec![(*plan.cast::<pg_sys::SubqueryScan>()).subplan];
            }
            _ => return Vec::new(),
        };
        elements(list).map(|plan| plan.cast()).collect()
    }
}

/// The foreign scan that a child of an Append is, perhaps below a Result.
unsafe fn foreign_scan(mut plan: *mut Plan) -> Option<*mut Plan> {
    // SAFETY: a plan's node.
    unsafe {
        while tag(plan) == NodeTag::T_Result {
            plan = (*plan).lefttree;
        }
        (tag(plan) == NodeTag::T_ForeignScan).then_some(plan)
    }
}

/// Whether some children are left out only while the plan runs.
unsafe fn prunes_while_running(info: *mut pg_sys::PartitionPruneInfo) -> bool {
    // SAFETY: null or a node of a plan: lists of lists of PartitionedRelPruneInfo.
    unsafe {
        !info.is_null()
            && elements((*info).prune_infos).any(|list| {
                let list = list.cast::<pg_sys::List>();
                (0..length(list)).any(|n| {
                    let one: *mut pg_sys::PartitionedRelPruneInfo = nth(list, n);
                    !(*one).exec_pruning_steps.is_null()
                })
            })
    }
}
