//! Waits of hotlock: first on the process latch, which is cheap, then in PostgreSQL's lock manager,
//! where the deadlock detector, `lock_timeout`, `pg_locks`, `pg_blocking_pids` and `log_lock_waits`
//! see them.

use super::errors;
use super::later_check;
use super::session::{SESSION, memory};
use super::text::{Text, may_see_key};
use crate::pg::cancel::Watch;
use crate::pg::catch::{Code, catching};
use crate::pg::context::with_context;
use crate::pg::raw::{self, TimeoutId};
use crate::pg::{process, xact};
use crate::shared::fault::{Fault, planted};
use crate::shared::guc;
use crate::shared::wait;
use hotrow::{BackendId, Slot};
use pgrx::pg_sys;
use std::cell::Cell;

/// SQLSTATE of a deadlock.
const DEADLOCK: Code = *b"40P01";

/// Why a session waits; the numbers stand in shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    Ticket = 1,
    Commit = 2,
    Read = 3,
    Fallback = 4,
    Order = 5,
    Stream = 6,
    Gate = 7,
    Lane = 8,
}

impl Reason {
    /// The name in `txn.waits`.
    pub fn name(number: u32) -> &'static str {
        match number {
            1 => "ticket",
            2 => "commit",
            3 => "read",
            5 => "order",
            6 => "stream",
            7 => "gate",
            8 => "lane",
            _ => "fallback",
        }
    }
}

impl Reason {
    /// What a session waits for, in messages.
    fn whom(self) -> &'static str {
        match self {
            Reason::Ticket | Reason::Gate => "its turn to update",
            Reason::Commit => "a predecessor to commit on",
            Reason::Order => "a predecessor to go first on",
            Reason::Read | Reason::Fallback | Reason::Stream => "a predecessor to end on",
            Reason::Lane => "its turn in the lane",
        }
    }
}

/// How a time on the latch went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Nap {
    /// Woken, or something else happened.
    Over,
    /// None: `txn.hot_wait_timeout` is over.
    Late,
    /// None: it is time to go to the lock manager.
    Long,
}

/// How long a wait may still take.
struct Rest {
    /// Milliseconds, 0 for no limit.
    ms: i32,
    /// Because of `txn.hot_wait_timeout`.
    is_own: bool,
}

/// One wait, from its beginning to its end; `txn.waits` shows it.
pub struct Wait {
    reason: Reason,
    /// The hot row; none in the lane.
    slot: Option<Slot>,
    started: u64,
    /// When the present time on the latch began.
    latch_since: Cell<u64>,
    limit_us: u64,
    /// How many deadlocks are still left to others (`leaving_to_others`).
    left_to_others: Cell<u32>,
}

impl Wait {
    /// Begins a wait for that row.
    pub fn begin(reason: Reason, slot: Slot) -> Wait {
        Self::begin_on(reason, Some(slot))
    }

    /// Begins a wait for keys that the transaction has declared.
    pub fn begin_in_lane() -> Wait {
        Self::begin_on(Reason::Lane, None)
    }

    fn begin_on(reason: Reason, slot: Option<Slot>) -> Wait {
        let backend = &memory().backends[process::me() as usize];
        let started = process::now();
        SESSION.published.set(true);
        backend.wait_reason.set(reason as u32);
        backend.wait_row.set(slot.map_or(0, |slot| slot + 1));
        backend.wait_since.set(started);
        // A timer of a wait in the lock manager may have fired in that one's last moment. It is
        // heard in this wait, under its own name: arming it again would make its interrupt look
        // like a user's.
        // SAFETY: plain reads; arming a timer of PostgreSQL's, disarmed in `finish` or at abort.
        unsafe {
            let has_fired =
                process::is_to_fail() && raw::get_timeout_indicator(TimeoutId::LockTimeout, false);
            if has_fired {
                raw::SetLatch(pg_sys::MyLatch);
            } else if pg_sys::LockTimeout > 0 {
                SESSION.lock_timeout.set(Some(pg_sys::LockTimeout));
                raw::enable_timeout_after(TimeoutId::LockTimeout, pg_sys::LockTimeout);
            }
        }
        Wait {
            reason,
            slot,
            started,
            latch_since: Cell::new(started),
            limit_us: guc::HOT_WAIT_TIMEOUT.get().max(0) as u64 * 1000,
            left_to_others: Cell::new(0),
        }
    }

    /// So many deadlocks that the slices in the lock manager find are left to the others in them:
    /// a slice ends then, and another one may follow.
    pub fn leaving_to_others(self, deadlocks: u32) -> Wait {
        self.left_to_others.set(deadlocks);
        self
    }

    fn is_left_to_others(&self, code: Code) -> bool {
        let left = self.left_to_others.get();
        let is_left = code == DEADLOCK && left > 0;
        self.left_to_others.set(left - u32::from(is_left));
        is_left
    }

    /// Ends it without a word about timers and other interrupts: the transaction is as good as
    /// committed.
    pub fn finish_in_silence(self) {
        clear();
    }

    /// Ends it. A timer that fired in the last moment is heard here.
    pub fn finish(self) {
        clear();
        process::check_for_interrupts();
    }

    fn waited_us(&self) -> u64 {
        process::now().saturating_sub(self.started)
    }

    /// Sleeps on the latch once. False when it is time to go to the lock manager.
    pub fn doze(&self) -> bool {
        match self.nap() {
            Nap::Over => process::check_for_interrupts(),
            Nap::Late => errors::WAIT_TIMEOUT.raise(),
            Nap::Long => return false,
        }
        true
    }

    /// Sleeps on the latch once, and raises nothing.
    pub fn nap(&self) -> Nap {
        let waited = self.waited_us();
        if self.is_late_after(waited) {
            return Nap::Late;
        }
        // SAFETY: a plain read of a setting.
        let patience = unsafe { pg_sys::DeadlockTimeout }.max(1) as u64 * 1000;
        let on_latch = process::now().saturating_sub(self.latch_since.get());
        if on_latch >= patience {
            return Nap::Long;
        }
        let mut rest = patience - on_latch;
        if self.limit_us > 0 {
            rest = rest.min(self.limit_us.saturating_sub(waited));
        }
        wait::doze(rest.div_ceil(1000), pg_sys::PG_WAIT_EXTENSION);
        Nap::Over
    }

    fn is_late_after(&self, waited: u64) -> bool {
        self.limit_us > 0 && waited >= self.limit_us
    }

    /// Whether `txn.hot_wait_timeout` is over.
    pub fn is_late(&self) -> bool {
        self.limit_us > 0 && self.is_late_after(self.waited_us())
    }

    /// Sleeps for so long, or until it is woken, for what comes in a while by itself.
    pub fn pause(&self, ms: u64) {
        if self.is_late() {
            errors::WAIT_TIMEOUT.raise();
        }
        wait::sleep(ms, pg_sys::PG_WAIT_EXTENSION);
    }

    /// Milliseconds until then, at most `most`.
    pub fn rest_or(&self, most: u64) -> u64 {
        if self.limit_us == 0 {
            return most;
        }
        let rest = self.limit_us.saturating_sub(self.waited_us());
        rest.div_ceil(1000).clamp(1, most)
    }

    fn check_limit(&self, waited: u64) {
        if self.is_late_after(waited) {
            errors::WAIT_TIMEOUT.raise();
        }
    }

    /// Runs a wait of the lock manager under what is left of `lock_timeout` and
    /// `txn.hot_wait_timeout`.
    pub fn in_lock_manager(&self, body: impl FnOnce()) {
        let rest = self.rest();
        if rest.ms == 0 {
            return self.with_lock_timeout(0, body);
        }
        let is_left = Cell::new(false);
        let heard = |watch: &Watch, code| {
            is_left.set(self.is_left_to_others(code));
            if is_left.get() {
                return true;
            }
            if rest.is_own {
                return watch.is_timeout(code);
            }
            if watch.is_misnamed(code) {
                with_context(self.told().as_c_str(), || errors::LOCK_TIMEOUT.raise());
            }
            false
        };
        if self.ends_in_time(rest.ms, body, heard) && !is_left.get() {
            errors::WAIT_TIMEOUT.raise();
        }
    }

    /// Waits in the lock manager for as long as the deadlock detector needs to look at it: what is
    /// waited for may come in another way. Not always for as long: of two waiters in step, each
    /// would look while the other is on its latch, for ever.
    pub fn slice_in_lock_manager(&self, body: impl FnOnce()) {
        // SAFETY: a plain read of a setting.
        let patience = unsafe { pg_sys::DeadlockTimeout }.max(1);
        let slice = patience
            .saturating_mul(2)
            .saturating_add(10)
            .saturating_add((process::random() % patience as u32) as i32);
        let rest = self.rest();
        if rest.ms > 0 && rest.ms <= slice {
            self.in_lock_manager(body);
        } else {
            self.ends_in_time(slice, body, |watch, code| {
                watch.is_timeout(code) || self.is_left_to_others(code)
            });
        }
        self.hear_for_a_moment();
    }

    /// Runs a wait of the lock manager for at most that time. `heard` is told of its error, and
    /// says whether that is to be forgotten, because only the time was over. Returns whether it
    /// was.
    fn ends_in_time(
        &self,
        ms: i32,
        body: impl FnOnce(),
        heard: impl FnOnce(&Watch, Code) -> bool,
    ) -> bool {
        let watch = Watch::begin(ms);
        // SAFETY: nothing here has a destructor. The error of a lock wait that timed out may be
        // forgotten: PostgreSQL has taken us off the queue before it raised it (LockErrorCleanup).
        // LockReleaseAll expects to find an unused LOCALLOCK after a failed wait.
        let is_over = unsafe {
            catching(
                || {
                    self.with_lock_timeout(ms, body);
                    // The time may have been over just when the lock was granted.
                    process::check_for_interrupts();
                },
                |code| heard(&watch, code),
            )
        };
        watch.end();
        self.restore_lock_timeout();
        is_over
    }

    /// The next time on the latch is a short one: a cycle is only seen while all of its waiters
    /// are in the lock manager.
    pub fn hear_for_a_moment(&self) {
        // SAFETY: a plain read of a setting.
        let patience = unsafe { pg_sys::DeadlockTimeout }.max(1) as u64 * 1000;
        self.latch_since.set(process::now() - patience / 4 * 3);
    }

    fn rest(&self) -> Rest {
        let waited = self.waited_us();
        self.check_limit(waited);
        // SAFETY: a plain read of a setting.
        let configured = SESSION
            .lock_timeout
            .get()
            .unwrap_or(unsafe { pg_sys::LockTimeout });
        let left = |limit_us: u64| (limit_us.saturating_sub(waited) / 1000).max(1) as i32;
        let by_setting = (configured > 0).then(|| left(configured as u64 * 1000));
        let by_own = (self.limit_us > 0).then(|| left(self.limit_us));
        match (by_setting, by_own) {
            (setting, Some(own)) if setting.is_none_or(|setting| own < setting) => Rest {
                ms: own,
                is_own: true,
            },
            (setting, _) => Rest {
                ms: setting.unwrap_or(0),
                is_own: false,
            },
        }
    }

    fn with_lock_timeout(&self, timeout_ms: i32, body: impl FnOnce()) {
        // SAFETY: LockTimeout is read by ProcSleep; it is put back here, or by `clear` after an
        // ERROR.
        unsafe {
            let configured = SESSION.lock_timeout.get().unwrap_or(pg_sys::LockTimeout);
            SESSION.lock_timeout.set(Some(configured));
            raw::disable_timeout(TimeoutId::LockTimeout, true);
            pg_sys::LockTimeout = timeout_ms;
        }
        process::check_for_interrupts();
        with_context(self.told().as_c_str(), body);
        self.restore_lock_timeout();
    }

    /// What messages about the wait say of it: PostgreSQL's own only name a transaction
    /// (`log_lock_waits`, timeouts).
    fn told(&self) -> Text {
        let mut text = Text::new();
        let Some(slot) = self.slot else {
            text.add(format_args!("while waiting for {}", self.reason.whom()));
            return text;
        };
        let row = &memory().directory.rows[slot as usize];
        let (label, mut length) = row.label();
        if !may_see_key(row) {
            length = 0;
        }
        text.add(format_args!(
            "while waiting for {} hot ",
            self.reason.whom()
        ));
        text.add_row(row.database(), row.relation(), &label[..length]);
        text
    }

    fn restore_lock_timeout(&self) {
        if let Some(configured) = SESSION.lock_timeout.get() {
            // SAFETY: puts the setting's value back.
            unsafe { pg_sys::LockTimeout = configured };
        }
    }
}

/// Waits until the present transaction of that process ends. What is waited for may come earlier,
/// so this is done in slices.
pub fn await_process(backend: BackendId) {
    await_end_of(process::transaction_of(backend));
}

/// Waits until that transaction ends, in the lock manager.
pub fn await_end_of(vxid: pg_sys::VirtualTransactionId) {
    // SAFETY: of a transaction that has ended VirtualXactLock returns at once.
    unsafe {
        if vxid.localTransactionId == 0 || vxid.backendId <= 0 {
            wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
        } else {
            raw::VirtualXactLock(vxid, true);
        }
    }
}

/// Whether that process waits for another transaction: what the deadlock detector, or `txn.waits`,
/// would say of it. Read without locks, so it may be wrong by a moment.
pub fn is_blocked(backend: BackendId) -> bool {
    // SAFETY: `backend` is a pgprocno, so within allProcs; a lock stays mapped when it is freed.
    let in_lock_manager = unsafe {
        let lock = (*(*pg_sys::ProcGlobal).allProcs.add(backend as usize)).waitLock;
        !lock.is_null()
            && u32::from((*lock).tag.locktag_type) != pg_sys::LockTagType::LOCKTAG_RELATION_EXTEND
    };
    in_lock_manager || memory().backends[backend as usize].wait_since.get() != 0
}

/// Whether that process waits for that reason. What is set before a row's lock is taken is seen by
/// who takes it later.
pub fn waits_for(backend: BackendId, reason: Reason) -> bool {
    let backend = &memory().backends[backend as usize];
    backend.wait_since.get() != 0 && backend.wait_reason.get() == reason as u32
}

/// Takes back what a wait has set up, after its end or after an ERROR in it.
#[inline]
pub fn clear() {
    if SESSION.published.get() {
        let backend = &memory().backends[process::me() as usize];
        backend.wait_since.set(0);
        backend.wait(None);
    }
    restore_timeouts();
}

/// Puts the settings back that a wait has changed.
#[inline]
pub fn restore_timeouts() {
    later_check::restore();
    xact::restore_lock_timeout();
    if let Some(configured) = SESSION.lock_timeout.take() {
        // SAFETY: disarming a timer and putting a setting back.
        unsafe {
            raw::disable_timeout(TimeoutId::LockTimeout, true);
            pg_sys::LockTimeout = configured;
        }
    }
}

/// Raises 40001 if the transaction must not go on: a predecessor has rolled back; another
/// transaction has taken the version that this one has built on; or its reads were refused.
#[inline]
pub fn check_doomed() {
    if SESSION.is_member() {
        check_member();
    }
    check_refused();
}

/// Does so for the first two reasons.
pub fn check_member() {
    if is_doomed() {
        errors::DOOMED.raise();
    }
    if has_lost_base() {
        errors::BASE_TAKEN.raise();
    }
}

fn has_lost_base() -> bool {
    SESSION.all().any(|(_, m)| m.has_lost_base())
}

/// Whether `check_doomed` raises.
#[inline]
pub fn is_to_fail() -> bool {
    SESSION.is_member() && (is_doomed() || has_lost_base()) || SESSION.refusal.get().is_some()
}

/// Fails with 40001 if the transaction was refused, and has caught that error.
#[inline]
pub fn check_refused() {
    if let Some(refusal) = SESSION.refusal.get() {
        refusal.raise();
    }
}

pub fn is_doomed() -> bool {
    SESSION.all().any(|(n, m)| {
        m.is_listed()
            && !planted(Fault::DoomedFollowerCommits)
            && memory().members[super::session::member_id(n) as usize].is_doomed()
    })
}
