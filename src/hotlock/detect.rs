//! Which rows are hot: promotion by contention, cooling by disuse.

use super::hotlog;
use super::session::{SESSION, memory};
use super::settings;
use crate::pg::buffer::Page;
use crate::pg::relation::Key;
use crate::pg::tuple;
use crate::pg::{process, raw, xact};
use hotrow::{Directory, Identity, LABEL_BYTES, Promotion, Row, Slot};
use pgrx::pg_sys::{self, Oid};

/// A hot row that nobody has waited for in this time (microseconds) is an ordinary row again.
const COOL_AFTER: u64 = 5_000_000;

/// The hot row with that identity, if it is one for this session. Cools a row that has not been
/// contended for a while.
///
/// A row that another role has made hot with a smaller `hot_threshold` is ordinary here at first.
/// It is hot once as many transactions have waited for it as this session's threshold says. But a
/// row of which this transaction is a member stays hot for it.
#[inline]
pub fn find(identity: &Identity) -> Option<Slot> {
    match memory().directory.used.get() {
        0 => None,
        _ => find_used(identity),
    }
}

fn find_used(identity: &Identity) -> Option<Slot> {
    let memory = memory();
    let slot = memory.directory.find(identity)?;
    let row = &memory.directory.rows[slot as usize];
    let threshold = settings::of(Oid::from(identity.relation)).hot_threshold();
    if row.is_idle() && is_cold(row, process::now()) && threshold > 0 && cool(slot) {
        return None;
    }
    let is_hot = row.is_hot_for(role(), threshold as u32) || SESSION.in_row(slot).is_some();
    is_hot.then_some(slot)
}

/// To whose share the rows count that this session makes hot: who has logged in. (A role may change
/// to many others.)
fn role() -> u32 {
    // SAFETY: a plain read of a variable of the backend.
    u32::from(unsafe { raw::GetSessionUserId() })
}

/// Hot rows that a role without superuser rights may have in the directory.
fn share() -> u32 {
    (memory().directory.rows.len() as u32).div_ceil(2)
}

/// Whether this session may make another row hot: there is a place, and its role has not used up
/// its share.
pub fn has_room() -> bool {
    let role = role();
    // SAFETY: a look-up of this session's own role.
    let is_superuser = unsafe { raw::superuser_arg(Oid::from(role)) };
    let directory = memory().directory;
    let can_go = |may_go: &dyn Fn(&Row) -> bool| {
        directory
            .rows
            .iter()
            .any(|row| row.is_used() && row.is_idle() && may_go(row))
    };
    let is_free = (directory.used.get() as usize) < directory.rows.len();
    let has_share = is_superuser || directory.held_by(role) < share();
    has_share && (is_free || can_go(&|_| true)) || can_go(&|row| row.owner() == role)
}

fn is_cold(row: &Row, now: u64) -> bool {
    now.saturating_sub(row.contended_at.get()) > COOL_AFTER
}

/// Removes a cold row that nobody refers to.
fn cool(slot: Slot) -> bool {
    let now = process::now();
    let removed = memory().with_directory(|directory| remove(directory, slot, now, is_cold));
    if let Some(life) = &removed {
        is_over(life);
    }
    removed.is_some()
}

/// Takes a row out of the directory that nobody refers to, if it `may_go`.
fn remove(
    directory: Directory<'static>,
    slot: Slot,
    now: u64,
    may_go: impl Fn(&Row, u64) -> bool,
) -> Option<hotlog::Life> {
    memory().with_row(slot, |row, _| {
        let removable = row.is_used() && row.is_idle() && may_go(row, now);
        removable.then(|| {
            let life = hotlog::Life::of(row, now);
            directory.remove(slot);
            life
        })
    })
}

/// A row has left the directory. No lock is held.
fn is_over(life: &hotlog::Life) {
    if life.is_of_row() {
        memory().totals.coolings.add(1);
        life.log();
    }
}

/// Removes all rows that have cooled down.
pub fn sweep() {
    let now = process::now();
    let rows = memory().directory.rows;
    for (slot, row) in rows.iter().enumerate() {
        if row.is_used() && row.is_idle() && is_cold(row, now) {
            cool(slot as Slot);
        }
    }
}

/// The version to which committed updates lead from this one.
///
/// # Safety
/// `rel` is open, and a scan has found the version; a snapshot of this transaction keeps the
/// version from being pruned.
pub unsafe fn last_version(rel: pg_sys::Relation, mut version: u64) -> u64 {
    // SAFETY: by the contract; heap's chain of versions (heapam.c: heap_get_latest_tid).
    unsafe {
        while let Some(next) = next_version(rel, version) {
            version = next;
        }
    }
    version
}

unsafe fn next_version(rel: pg_sys::Relation, version: u64) -> Option<u64> {
    // SAFETY: as for `last_version`; headers are read under the buffers' share locks.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let replaced = page.tuple(version).and_then(|(header, _)| {
            Some((tuple::remover(header)?, tuple::pack(&(*header).t_ctid)))
        });
        page.release();
        let (by, next) = replaced?;
        let is_last = next == version || tuple::block_of(next) == pg_sys::InvalidBlockNumber;
        if is_last || !xact::has_committed(by.into()) {
            return None;
        }
        let page = Page::pin(rel, next);
        page.share();
        let is_next = page
            .tuple(next)
            .is_some_and(|(header, _)| tuple::raw_xmin(header) == by);
        page.release();
        is_next.then_some(next)
    }
}

/// Whether nobody removes the row, changes its key, or keeps others from locking its key, now or as
/// far as is committed after that version.
///
/// # Safety
/// As for `last_version`.
pub unsafe fn keeps_key(rel: pg_sys::Relation, mut version: u64) -> bool {
    // SAFETY: the caller's relation is open, and a snapshot of this transaction keeps the version.
    unsafe {
        while is_key_kept(rel, version) {
            match next_version(rel, version) {
                Some(next) => version = next,
                None => return true,
            }
        }
    }
    false
}

unsafe fn is_key_kept(rel: pg_sys::Relation, version: u64) -> bool {
    // SAFETY: as for `keeps_key`; the header is read under the buffer's share lock.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let found = page.tuple(version).map(|(header, _)| {
            let masks = ((*header).t_infomask, (*header).t_infomask2);
            (masks, tuple::raw_xmax(header))
        });
        page.release();
        let Some(((mask, mask2), xmax)) = found else {
            return false;
        };
        let was_locked = tuple::is_locked_only(mask)
            && !tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI)
            && !raw::TransactionIdIsInProgress(xmax);
        tuple::has(mask, pg_sys::HEAP_XMAX_INVALID)
            || u32::from(mask2) & pg_sys::HEAP_KEYS_UPDATED == 0
            || was_locked
    }
}

/// Counts this session among those that wait for a row that is not hot. True when the threshold is
/// reached.
pub fn count_waiter(identity: &Identity) -> bool {
    let threshold = settings::of(Oid::from(identity.relation))
        .hot_threshold()
        .max(1) as u32;
    let counter = memory().directory.contention(identity);
    // It may come to the row twice before it waits (an upsert).
    uncount_waiter();
    SESSION.counted.set(identity.hash() | 1 << 63);
    counter.add(1) + 1 >= threshold
}

/// Runs a wait of this session before it takes that row. If `hot_threshold` sessions, and at least
/// two, wait so at a time, the session makes the row hot when it comes to it.
pub fn while_waiting_for(identity: &Identity, wait: impl FnOnce()) {
    let relation = Oid::from(identity.relation);
    if !settings::uses(relation) || SESSION.has_locked(identity) {
        return wait();
    }
    let is_hot = count_waiter(identity) && memory().directory.contention(identity).get() > 1;
    wait();
    uncount_waiter();
    if is_hot {
        SESSION.ripe.set(identity.hash());
    }
}

/// Whether so many have waited before they took that row that it is to be hot.
pub fn is_ripe(identity: &Identity) -> bool {
    SESSION.ripe.get() == identity.hash()
}

/// Takes the session off the count. Also called at abort.
#[inline]
pub fn uncount_waiter() {
    let counted = SESSION.counted.take();
    if counted != 0 {
        uncount(counted);
    }
}

fn uncount(counted: u64) {
    let counters = memory().directory.contention;
    counters[((counted >> 32) & 0x7fff_ffff) as usize & (counters.len() - 1)].sub(1);
}

/// Makes the row hot. None when there is no room for it: in the directory, or in this role's share.
///
/// # Safety
/// `rel` is open with key `key`, and `version` is a version of that row which a scan has found.
pub unsafe fn promote(
    rel: pg_sys::Relation,
    key: &Key,
    identity: &Identity,
    version: u64,
) -> Option<Slot> {
    let mut label = [0; LABEL_BYTES];
    // SAFETY: by the contract; the tuple stays in place while its page is pinned, so that output
    // functions run unlocked.
    let length = unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let tuple = page.heap_tuple(rel, version);
        page.unlock();
        let length = match tuple {
            Some(mut tuple) => key.label(&mut tuple, (*rel).rd_att, &mut label),
            None => 0,
        };
        page.unpin();
        length
    };
    let promotion = Promotion {
        label: &label[..length],
        columns: key.columns_of_label(),
        owner: role(),
        earned: settings::of(Oid::from(identity.relation)).hot_threshold() as u32,
        now: process::now(),
    };
    match place_of(identity, &promotion) {
        Some((slot, is_new)) => {
            if is_new {
                memory().totals.promotions.add(1);
                hotlog::became_hot(identity, promotion.label);
            }
            Some(slot)
        }
        None => {
            memory().totals.table_full.add(1);
            None
        }
    }
}

/// The place of that gate in the directory; it is made if need be. None when there is no room.
pub fn place_of_gate(identity: &Identity) -> Option<Slot> {
    let promotion = Promotion {
        label: &[],
        columns: Default::default(),
        owner: role(),
        earned: 0,
        now: process::now(),
    };
    place_of(identity, &promotion).map(|(slot, _)| slot)
}

fn place_of(identity: &Identity, promotion: &Promotion) -> Option<(Slot, bool)> {
    // SAFETY: a look-up of this session's own role.
    let share = if unsafe { raw::superuser_arg(Oid::from(promotion.owner)) } {
        u32::MAX
    } else {
        share()
    };
    let mut gone = None;
    let placed = memory()
        .with_directory(|directory| place(directory, identity, promotion, share, &mut gone));
    if let Some(life) = &gone {
        is_over(life);
    }
    placed
}

/// Finds or makes the row's place in the directory, whose lock is held. Returns the place and
/// whether it is new. Where there is no room, an idle row is removed. It is a cold one; one of the
/// role's own, if its share is used up; or one of a role that has more of them.
fn place(
    directory: Directory<'static>,
    identity: &Identity,
    promotion: &Promotion,
    share: u32,
    gone: &mut Option<hotlog::Life>,
) -> Option<(Slot, bool)> {
    let (role, now) = (promotion.owner, promotion.now);
    let held = directory.held_by(role);
    let found = directory.find(identity);
    if let Some(slot) = found.filter(|&slot| directory.rows[slot as usize].is(identity)) {
        directory.earn(slot, role, promotion.earned, held < share);
        return Some((slot, false));
    }
    let free = (held < share).then(|| directory.free_slot()).flatten();
    let slot = free.or_else(|| {
        let has_more = |row: &Row| directory.held_by(row.owner()) > held;
        let may_go =
            |row: &Row| row.owner() == role || held < share && (is_cold(row, now) || has_more(row));
        let slot = directory.dispensable(may_go)?;
        *gone = remove(directory, slot, now, |row, _| may_go(row));
        gone.is_some().then_some(slot)
    })?;
    memory().with_row(slot, |_, _| directory.insert(slot, identity, promotion));
    Some((slot, true))
}
