//! Statement hooks: before ExecutorStart, after it, before ExecutorRun, at ExecutorEnd.

use super::check;
use super::combine;
use super::definitions;
use super::dependency;
use super::dependent;
use super::detect;
use super::early_reads;
use super::fk_check;
use super::gate;
use super::handover;
use super::order;
use super::predecessors;
use super::quietness;
use super::readguard;
use super::repeatable;
use super::session::{SESSION, is_enabled, memory, statement_of};
use super::settings;
use super::streaming;
use super::ticket::{self, Turn};
use super::waiting::{self, Reason};
use super::whole;
use crate::pg::plan::{self, OnConflict, Target};
use crate::pg::pre_lock_effects;
use crate::pg::relation::key_of;
use crate::pg::{nesting, nodes, plpgsql, process, raw, snapshot, xact};
use crate::tam::swap::{self, Use};
use hotrow::{Contention, Identity, Slot};
use pgrx::pg_sys::{self, CmdType, Oid};

/// Before a statement of an idle session starts.
///
/// # Safety
/// ExecutorStart's argument.
#[inline]
pub unsafe fn before_idle_start(query: *const pg_sys::QueryDesc) {
    check::forget_asking();
    fk_check::end(query);
    quietness::forget(query as usize);
    // SAFETY: by the contract.
    unsafe {
        if plan::may_lock(query) {
            SESSION.note_locked_something();
        }
    }
}

/// Before a statement starts: doomed transactions end here, members that read let their
/// predecessors end, and an update of a hot row queues up, all with the snapshot let go. Returns
/// whether the statement is certain (fk_check.rs).
///
/// `is_first` says that the transaction has not used its snapshot before.
///
/// # Safety
/// ExecutorStart's argument.
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc, is_first: bool) -> bool {
    check::forget_asking();
    fk_check::end(query);
    quietness::forget(query as usize);
    let member = SESSION.is_member();
    let enabled = if member {
        is_enabled()
    } else {
        // SAFETY: by the contract.
        unsafe { settings::concern(query) }
    };
    if enabled {
        plpgsql::watch();
    }
    if !member && !enabled {
        waiting::check_refused();
        // SAFETY: by the contract.
        unsafe {
            if plan::may_lock(query) {
                check::take_for(query);
                note_unconcerned(query);
            }
        }
        return false;
    }
    // SAFETY: by the contract.
    unsafe {
        waiting::check_doomed();
        if (*query).operation == CmdType::CMD_UPDATE && SESSION.is_to_update() {
            handover::come_back();
        }
        definitions::note_analyzed();
        if check::has_deferred() {
            check::before_inserts(query);
        }
        let asked = if member || enabled && memory().directory.used.get() > 0 {
            plan::existence(query)
        } else {
            None
        };
        if let Some(asked) = &asked {
            check::consider(query, asked);
            if member && fk_check::is_certain(query, asked, |probe| after_start(probe, false)) {
                check::forget_asking();
                return true;
            }
        }
        whole::note(query);
        let locks = matches!(
            (*query).operation,
            CmdType::CMD_UPDATE | CmdType::CMD_INSERT
        ) || !(*(*query).plannedstmt).rowMarks.is_null();
        let target = if locks && (member || memory().directory.used.get() > 0) {
            plan::target(query)
        } else {
            None
        };
        let mut replaced = Replaced {
            query,
            let_go: false,
        };
        if dependent::is_to_settle() {
            // The snapshot may be older than their end.
            replaced.let_go();
            dependent::let_predecessors_end();
        }
        if SESSION.has_followed()
            && !dependent::may_go_on(query, comes_by_key(query, target.as_ref()))
        {
            if SESSION.is_dependent() {
                replaced.let_go();
                if !replaced.let_go || predecessors::have_ended() || !early_reads::may_go_on(query)
                {
                    dependent::let_predecessors_end();
                }
            }
            if !replaced.let_go {
                dependent::before_reading(query);
            }
        }
        if member && streaming::must_wait(query, target.as_ref()) {
            replaced.let_go();
            predecessors::wait(Reason::Stream);
        }
        if enabled && let Some(target) = &target {
            let relation = Oid::from(target.identity.relation);
            let slot = if settings::uses(relation) {
                detect::find(&target.identity)
            } else {
                None
            };
            match slot {
                Some(slot) if !xact::is_read_committed() => {
                    if is_first && !pre_lock_effects::locks_first(query) {
                        repeatable::queue(query, slot, &target.identity);
                    }
                }
                Some(slot)
                    if !pre_lock_effects::locks_first(query)
                        && !combine::consider(query, target) =>
                {
                    queue_early(&mut replaced, slot, &target.identity, ticket::acquire_turn);
                }
                Some(_) => {}
                None => {
                    if order::may_overtake_in(relation, Contention::Row) {
                        replaced.let_go();
                        detect::while_waiting_for(&target.identity, || {
                            predecessors::wait(Reason::Order);
                        });
                    }
                }
            }
        }
        if member
            && (*query).operation == CmdType::CMD_INSERT
            && nodes::oids((*(*query).plannedstmt).relationOids)
                .any(|relation| order::may_overtake_in(relation, Contention::Value))
        {
            replaced.let_go();
            predecessors::wait(Reason::Order);
        }
        replaced.finish();
        false
    }
}

/// Before a statement runs: one that may be combined with others queues up now. True when another
/// session has done it.
///
/// # Safety
/// ExecutorRun's argument.
pub unsafe fn before_run(query: *mut pg_sys::QueryDesc) -> bool {
    if fk_check::was_certain(query) {
        // SAFETY: by the contract; the query has started.
        unsafe { fk_check::answer(query) };
        return true;
    }
    // SAFETY: as above.
    unsafe { dependent::before_run(query) };
    let Some(identity) = combine::considered(query as usize) else {
        return false;
    };
    let Some(slot) = detect::find(&identity) else {
        return false;
    };
    // SAFETY: by the contract; the query has started.
    unsafe {
        let watch = (*query).totaltime;
        if !watch.is_null() {
            raw::InstrStartNode(watch);
        }
        let mut replaced = Replaced {
            query,
            let_go: false,
        };
        let acquire = if combine::pack(query) {
            ticket::acquire_or_combine
        } else {
            ticket::acquire_turn
        };
        let turn = queue_early(&mut replaced, slot, &identity, acquire);
        let done = match turn {
            Some(Turn::Done { rows, durable_at }) => {
                combine::report(query, rows);
                readguard::note_read_until(durable_at);
                replaced.finish_with_none();
                true
            }
            _ => {
                replaced.finish();
                false
            }
        };
        if !watch.is_null() {
            raw::InstrStopNode(watch, 0.0);
        }
        done
    }
}

/// A statement's snapshot, let go at most once.
struct Replaced {
    query: *mut pg_sys::QueryDesc,
    let_go: bool,
}

impl Replaced {
    unsafe fn let_go(&mut self) {
        // SAFETY: the query is about to be started.
        unsafe {
            if !self.let_go && snapshot::is_replaceable(self.query) {
                snapshot::let_go(self.query);
                self.let_go = true;
            }
        }
    }

    unsafe fn finish(&self) {
        if self.let_go {
            // SAFETY: after `let_go`.
            unsafe { snapshot::take(self.query) }
        }
    }

    unsafe fn finish_with_none(&self) {
        if self.let_go {
            // SAFETY: after `let_go`.
            unsafe { snapshot::take_none() }
        }
    }
}

/// Whether the statement reads only one row of that table, by its key, and we are no member of that
/// row.
fn passes_by(target: Option<&Target>, relation: Oid) -> bool {
    target.is_some_and(|target| {
        target.identity.relation == u32::from(relation)
            && target.is_alone()
            && !SESSION
                .all()
                .any(|(_, m)| memory().directory.rows[m.slot() as usize].is(&target.identity))
    })
}

/// Whether the statement reads only one row, by its key and nothing else (other conditions would be
/// asked of the version that its snapshot shows, not of the one that we have locked), and we have
/// that row's ticket and its lock (rule "FOR UPDATE, then UPDATE").
fn is_locked_by_us(target: &Target) -> bool {
    target.is_unconditional()
        && SESSION.all().any(|(_, m)| {
            let row = &memory().directory.rows[m.slot() as usize];
            m.has_locked() && !m.has_version() && row.is(&target.identity)
        })
}

/// Whether the statement comes to one row only, by its key: another one than ours, or one that we
/// have locked and now update.
unsafe fn comes_by_key(query: *const pg_sys::QueryDesc, target: Option<&Target>) -> bool {
    // SAFETY: as in `before_start`.
    target.is_some_and(|target| unsafe {
        passes_by(Some(target), Oid::from(target.identity.relation))
            || (*query).operation == CmdType::CMD_UPDATE && is_locked_by_us(target)
    })
}

/// Whether a statement that now runs may come upon a version that is not committed, or not durable.
/// Which tables the functions will use that it calls, and with which settings, is not known before.
pub fn is_watched() -> bool {
    process::is_backend() && (xact::is_read_committed() || readguard::is_used())
}

/// Takes the ticket of the row that the statement is going to update or lock, before it has cost
/// anything.
unsafe fn queue_early(
    replaced: &mut Replaced,
    slot: Slot,
    identity: &Identity,
    acquire: impl FnOnce(Slot, &Identity) -> Option<Turn>,
) -> Option<Turn> {
    if SESSION.in_row(slot).is_some() || SESSION.has_locked(identity) {
        return None;
    }
    // SAFETY: as in `before_start`.
    unsafe {
        if order::may_overtake_at(slot) {
            replaced.let_go();
        }
        let turn = match ticket::try_acquire(slot, identity) {
            Some(n) => Some(Turn::Own(n)),
            // Who may not do it does not wait for it.
            None if !plan::is_allowed(replaced.query) => {
                gate::leave_if_alone();
                return None;
            }
            None => {
                replaced.let_go();
                acquire(slot, identity)
            }
        };
        let Some(Turn::Own(n)) = turn else {
            return turn;
        };
        let query = replaced.query as usize;
        SESSION.step(n, |m| m.claimed_by(statement_of(query)));
        let row = &memory().directory.rows[slot as usize];
        let last = row.last_xid.get();
        if !replaced.let_go
            && last != 0
            && row.listed() == 0
            && snapshot::is_replaceable(replaced.query)
            && snapshot::misses(replaced.query, last)
        {
            replaced.let_go();
        }
        turn
    }
}

/// After a statement has started: gets in front of the heap for the tables whose rows it changes or
/// locks.
///
/// # Safety
/// ExecutorStart's argument, started.
pub unsafe fn after_start(query: *mut pg_sys::QueryDesc, certain: bool) {
    if certain {
        return fk_check::note_certain(query);
    }
    // SAFETY: by the contract.
    if !SESSION.is_member() && !check::has_deferred() && !unsafe { settings::concern(query) } {
        return;
    }
    // SAFETY: the executor state's lists of open relations.
    unsafe {
        let estate = (*query).estate;
        let operation = (*query).operation;
        let on_conflict = plan::on_conflict((*query).plannedstmt);
        for node in nodes::nodes((*estate).es_opened_result_relations) {
            let result = node.cast::<pg_sys::ResultRelInfo>();
            let rel = (*result).ri_RelationDesc;
            if is_stocks((*rel).rd_id) {
                continue;
            }
            if let Some(key) = key_of(rel) {
                let updated = raw::ExecGetUpdatedCols(result, estate);
                let updates = operation == CmdType::CMD_UPDATE && !key.has_deferrable_triggers()
                    || (operation == CmdType::CMD_MERGE || on_conflict == OnConflict::Update)
                        && !key.has_row_triggers();
                let may_follow = updates && !key.touched_by(updated);
                let usage = Use {
                    query: query as usize,
                    may_follow,
                    on_conflict,
                    only_locks: false,
                };
                if !swap::put(rel, usage) {
                    check::take_for(query);
                }
            }
        }
        if !(*estate).es_rowmarks.is_null() {
            for n in 0..(*estate).es_range_table_size as usize {
                let mark = *(*estate).es_rowmarks.add(n);
                if !mark.is_null()
                    && !(*mark).relation.is_null()
                    && (*mark).markType <= pg_sys::RowMarkType::ROW_MARK_KEYSHARE
                    && !is_stocks((*mark).relid)
                    && key_of((*mark).relation).is_some()
                {
                    swap::put(
                        (*mark).relation,
                        Use {
                            query: query as usize,
                            may_follow: false,
                            on_conflict: OnConflict::Fail,
                            only_locks: true,
                        },
                    );
                }
            }
        }
    }
}

/// Whether the statement changes or locks rows of that table in stock PostgreSQL's own way,
/// unnoticed by us.
fn is_stocks(relation: Oid) -> bool {
    if settings::uses(relation) {
        return false;
    }
    SESSION.note_locked_in(relation);
    !SESSION.is_member() && !check::has_deferred()
}

/// When a statement ends: what it read and wrote is noted, unused tickets go on, an offer that
/// ended in nothing makes this transaction a reader.
///
/// # Safety
/// ExecutorEnd's argument, before the executor's clean-up.
#[inline]
pub unsafe fn end(query: *mut pg_sys::QueryDesc) {
    if !combine::is_done() {
        // SAFETY: by the contract.
        unsafe { readguard::note_statement(query) };
    }
    combine::end(query as usize);
    fk_check::end(query);
    quietness::forget(query as usize);
    swap::end_of_statement(query as usize);
    dependency::drop_unused(query as usize);
    if whole::is(query) && !SESSION.is_member() {
        whole::forget();
    }
    // Last, because it may wait: the ticket that came to nothing has gone on.
    // SAFETY: by the contract.
    unsafe { check::end_of_statement(query) };
}

/// A statement has run. The client's own settles what was read beside predecessors. If the client
/// has to send more, it keeps its tickets until then.
#[inline]
pub fn has_run() {
    if nesting::is_outermost() {
        dependent::settle();
    }
    if SESSION.is_member() && nesting::is_outermost() && xact::is_in_block() && !whole::is_running()
    {
        handover::go_away();
    }
}

/// Notes that a statement that does not concern us may lock rows of its tables.
///
/// # Safety
/// As for `settings::concern`.
unsafe fn note_unconcerned(query: *const pg_sys::QueryDesc) {
    if settings::exist() {
        // SAFETY: by the contract.
        unsafe { nodes::oids((*(*query).plannedstmt).relationOids) }
            .for_each(|relation| SESSION.note_locked_in(relation));
    } else {
        SESSION.note_locked_something();
    }
}
