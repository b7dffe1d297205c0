//! The declaration of a procedure: a security label, which PostgreSQL dumps with the procedure and
//! drops with it.
//!
//! Read once per procedure and session, and again when a label has been changed, a procedure, a
//! schema, or one of the tables.

use super::target::{self, Names, Target};
use crate::hotlock::settings::PROVIDER;
use crate::pg::local::Local;
use crate::pg::{error, label, raw};
use ::lane::{Form, Mode, parse_declaration};
use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::rc::Rc;

/// One item of a procedure's declaration.
pub struct Part {
    pub form: Form,
    pub mode: Mode,
    pub target: Target,
}

/// What a CALL declares.
pub struct Plan {
    pub parts: Vec<Part>,
    /// With whose rights the procedure runs, if not with the caller's.
    pub owner: Option<Oid>,
}

/// What is known of a procedure.
enum Known {
    Undeclared,
    /// It has a declaration that cannot be used.
    Unfit,
    Declared(Rc<Plan>),
}

/// What a procedure declares, as far as a CALL is concerned.
pub enum Declared {
    Nothing,
    /// What cannot be used.
    Unfit,
    /// Good until the next question.
    Plan(&'static Plan),
}

struct Cache {
    procedures: RefCell<BTreeMap<u32, Known>>,
    /// Counts invalidations.
    forgotten: Cell<u64>,
    /// The plan that was asked for last, kept alive.
    last: RefCell<Option<Rc<Plan>>>,
    /// What is being read.
    forms: RefCell<Vec<(Form, Mode)>>,
    parts: RefCell<Vec<Part>>,
}

static CACHE: Local<Cache> = Local::new(Cache {
    procedures: RefCell::new(BTreeMap::new()),
    forgotten: Cell::new(0),
    last: RefCell::new(None),
    forms: RefCell::new(Vec::new()),
    parts: RefCell::new(Vec::new()),
});

fn forget_all() {
    CACHE.forgotten.set(CACHE.forgotten.get() + 1);
    CACHE.procedures.borrow_mut().clear();
}

unsafe extern "C-unwind" fn forget(_arg: Datum, relation: Oid) {
    target::note_change();
    let uses = |known: &Known| match known {
        Known::Undeclared => false,
        // The name may lead to another table now.
        Known::Unfit => true,
        Known::Declared(plan) => plan.parts.iter().any(|part| part.target.is_of(relation)),
    };
    let concerns = relation == Oid::INVALID
        || relation == pg_sys::SecLabelRelationId
        || CACHE.procedures.borrow().values().any(uses);
    if concerns {
        forget_all();
    }
}

unsafe extern "C-unwind" fn forget_names(_arg: Datum, _cache: c_int, _hash: pg_sys::uint32) {
    target::note_change();
    forget_all();
}

/// Registers the invalidation callbacks. Once, from `_PG_init`.
pub fn init() {
    // SAFETY: the callbacks touch only process-local cells.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(forget), Datum::from(0));
        // A schema of another name has other tables.
        for cache in [
            SysCacheIdentifier::PROCOID,
            SysCacheIdentifier::NAMESPACEOID,
        ] {
            pg_sys::CacheRegisterSyscacheCallback(
                cache as c_int,
                Some(forget_names),
                Datum::from(0),
            );
        }
    }
}

/// What that procedure declares.
///
/// # Safety
/// In a transaction; nothing with a destructor is alive in the callers.
pub unsafe fn declared(function: Oid) -> Declared {
    if u32::from(function) < pg_sys::FirstNormalObjectId {
        return Declared::Nothing;
    }
    if !CACHE.procedures.borrow().contains_key(&u32::from(function)) {
        let before = CACHE.forgotten.get();
        // SAFETY: the caller is in a transaction, and no frame above has a destructor.
        let known = unsafe { read(function) };
        if CACHE.forgotten.get() != before {
            // What was read may be of the state before: good for this once.
            return known.told();
        }
        CACHE.procedures.borrow_mut().insert(function.into(), known);
    }
    let procedures = CACHE.procedures.borrow();
    procedures
        .get(&u32::from(function))
        .map_or(Declared::Nothing, Known::told)
}

impl Known {
    fn told(&self) -> Declared {
        match self {
            Known::Undeclared => Declared::Nothing,
            Known::Unfit => Declared::Unfit,
            Known::Declared(plan) => {
                let kept = Rc::as_ptr(plan);
                *CACHE.last.borrow_mut() = Some(Rc::clone(plan));
                // SAFETY: kept alive until another one takes its place.
                Declared::Plan(unsafe { &*kept })
            }
        }
    }
}

/// # Safety
/// As for `declared`.
unsafe fn read(function: Oid) -> Known {
    CACHE.forms.borrow_mut().clear();
    CACHE.parts.borrow_mut().clear();
    let mut is_declaration = false;
    label::of_procedure(function, PROVIDER, |text| {
        let text = text.to_string_lossy();
        if let Ok(declaration) = parse_declaration(&text) {
            let writes = declaration
                .writes
                .into_iter()
                .map(|form| (form, Mode::Write));
            let reads = declaration.reads.into_iter().map(|form| (form, Mode::Read));
            CACHE.forms.borrow_mut().extend(writes.chain(reads));
        }
        is_declaration = true;
    });
    if !is_declaration {
        return Known::Undeclared;
    }
    let count = CACHE.forms.borrow().len();
    for n in 0..count {
        // SAFETY: by the contract; the text is PostgreSQL's.
        let found = unsafe {
            let name = error::in_c(&(&*CACHE.forms.as_ptr())[n].0.table);
            target::find(name, Names::InFull)
        };
        let checked = found.and_then(|target| {
            let (form, mode) = CACHE.forms.borrow()[n].clone();
            target.check(&form)?;
            CACHE.parts.borrow_mut().push(Part { form, mode, target });
            Ok(())
        });
        if checked.is_err() {
            return Known::Unfit;
        }
    }
    if count == 0 {
        return Known::Unfit;
    }
    // SAFETY: the caller is in a transaction, and no frame above has a destructor.
    let owner = unsafe { owner_of(function) };
    Known::Declared(Rc::new(Plan {
        parts: CACHE.parts.take(),
        owner,
    }))
}

/// The owner of a procedure that runs with the owner's rights.
///
/// # Safety
/// As for `declared`.
unsafe fn owner_of(function: Oid) -> Option<Oid> {
    // SAFETY: a catalog look-up.
    unsafe {
        let cache = SysCacheIdentifier::PROCOID as c_int;
        let row = raw::SearchSysCache1(cache, Datum::from(function));
        if row.is_null() {
            return None;
        }
        let header = (*row).t_data;
        let form = header
            .cast::<u8>()
            .add((*header).t_hoff as usize)
            .cast::<pg_sys::FormData_pg_proc>();
        let owner = (*form).prosecdef.then_some((*form).proowner);
        raw::ReleaseSysCache(row);
        owner
    }
}
