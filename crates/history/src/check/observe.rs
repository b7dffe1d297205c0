//! What each transaction saw of others and did to them, with its own writes set apart.
use crate::check::report::Report;
use crate::check::store::{INITIAL, Place, Store};
use crate::check::verdict::Class;
use crate::model::{History, Object, Op, Range, Value};

/// A version of a register or row that was read, not one's own.
pub struct Read {
    pub place: Place,
    pub version: u32,
}

/// A list that was read: the elements up to `length` are not the reader's own.
pub struct ListRead {
    pub place: Place,
    pub list: u32,
    pub length: usize,
}

/// A version that was replaced by another one or, with `by: None`, removed.
pub struct Replaced {
    pub place: Place,
    pub version: u32,
    pub by: Option<u32>,
}

/// A key that had no row.
pub struct Absence {
    pub place: Place,
    pub slot: u32,
    pub kind: Glance,
}

/// How an absence was noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Glance {
    /// By a statement that only reads.
    Read,
    /// By a write that found nothing to change. (At READ COMMITTED that says little: it may have
    /// waited for the row, and lost it.)
    Miss,
    /// By a transaction that put a row there and removed it again.
    Write,
}

/// Everything that ties the transactions that count to each other.
#[derive(Default)]
pub struct Observations {
    pub reads: Vec<Read>,
    pub lists: Vec<ListRead>,
    pub replaced: Vec<Replaced>,
    /// Rows that came where none was: the version and its writer.
    pub begun: Vec<(u32, Place)>,
    pub absences: Vec<Absence>,
}

/// What a transaction has done to one object so far.
struct Own {
    object: Object,
    /// The version it found; `None`: no row.
    found: Option<u32>,
    now: Option<Value>,
    op: u32,
}

/// Walks through one transaction after the other.
struct Walk<'a> {
    store: &'a mut Store,
    counted: &'a [bool],
    report: &'a mut Report,
    out: Observations,
    own: Vec<Own>,
    appended: Vec<(u32, Value)>,
    place: Place,
}

/// What the transactions that count saw and did; what is wrong with it already goes to `report`.
pub fn observe(
    history: &History,
    counted: &[bool],
    store: &mut Store,
    report: &mut Report,
) -> Observations {
    let mut walk = Walk {
        store,
        counted,
        report,
        out: Observations::default(),
        own: Vec::new(),
        appended: Vec::new(),
        place: Place {
            transaction: 0,
            op: 0,
        },
    };
    for (number, transaction) in history.transactions.iter().enumerate() {
        if !counted[number] {
            continue;
        }
        walk.own.clear();
        walk.appended.clear();
        for (op, event) in transaction.events.iter().enumerate() {
            walk.place = Place {
                transaction: number as u32,
                op: op as u32,
            };
            walk.step(&event.op);
        }
        walk.finish();
    }
    walk.out
}

impl Walk<'_> {
    fn step(&mut self, op: &Op) {
        match op {
            Op::Append { list, value } => self.appended.push((*list, *value)),
            Op::ReadList { list, values } => self.read_list(*list, values),
            Op::Write {
                register,
                value,
                replaced,
            } => {
                let object = Object::Register(*register);
                self.replace(object, *replaced, Some(*value));
            }
            Op::Read { register, value } => self.read(Object::Register(*register), *value),
            Op::Scan { table, range, rows } => self.scan(*table, *range, rows),
            Op::Insert { table, key, value } => self.insert(Object::Key(*table, *key), *value),
            Op::Upsert {
                table,
                key,
                value,
                replaced,
            } => match replaced {
                None => self.insert(Object::Key(*table, *key), *value),
                _ => self.replace(Object::Key(*table, *key), *replaced, Some(*value)),
            },
            Op::Update {
                table,
                key,
                value,
                replaced,
            } => match replaced {
                None => self.miss(Object::Key(*table, *key)),
                _ => self.replace(Object::Key(*table, *key), *replaced, Some(*value)),
            },
            Op::Delete {
                table,
                key,
                removed,
            } => match removed {
                None => self.miss(Object::Key(*table, *key)),
                _ => self.replace(Object::Key(*table, *key), *removed, None),
            },
            Op::Rekey {
                table,
                from,
                to,
                value,
                replaced,
            } => match replaced {
                None => self.miss(Object::Key(*table, *from)),
                _ => {
                    self.replace(Object::Key(*table, *from), *replaced, None);
                    self.insert(Object::Key(*table, *to), *value);
                }
            },
        }
    }

    fn own(&self, object: Object) -> Option<usize> {
        self.own.iter().position(|own| own.object == object)
    }

    /// The version that others may have left in `object`; nothing if something is wrong with it.
    fn foreign(&mut self, object: Object, value: Option<Value>) -> Option<u32> {
        let id = match (object, value) {
            (Object::Register(register), None) => Some(self.store.unset(register)),
            (_, value) => value.and_then(|value| self.store.find(value)),
        };
        let Some(id) = id.filter(|id| self.store.version(*id).object == object) else {
            self.report.garbage(self.place, object, value);
            return None;
        };
        let version = self.store.version(id);
        let writer = version.writer;
        if writer == INITIAL {
            return Some(id);
        }
        if writer == self.place.transaction {
            let text = format!("{object} = {value:?} before writing it");
            self.report.single(Class::Internal, self.place, &text);
            return None;
        }
        if !self.counted[writer as usize] {
            self.report.tainted(Class::G1a, self.place, version);
            return None;
        }
        if !version.last && !matches!(object, Object::List(_)) {
            self.report.tainted(Class::G1b, self.place, version);
            return None;
        }
        Some(id)
    }

    fn expect(&mut self, own: usize, seen: Option<Value>) -> bool {
        let own = &self.own[own];
        if own.now == seen {
            return true;
        }
        let text = format!("{} is {seen:?} after writing {:?}", own.object, own.now);
        self.report.single(Class::Internal, self.place, &text);
        false
    }

    fn read(&mut self, object: Object, seen: Option<Value>) {
        match self.own(object) {
            Some(own) => drop(self.expect(own, seen)),
            None => {
                if let Some(version) = self.foreign(object, seen) {
                    self.out.reads.push(Read {
                        place: self.place,
                        version,
                    });
                }
            }
        }
    }

    fn read_list(&mut self, list: u32, values: &[Value]) {
        let own = self.appended.iter().filter(|(of, _)| *of == list);
        let own: Vec<Value> = own.map(|(_, value)| *value).collect();
        if !values.ends_with(&own) {
            let text = format!("list {list} does not end with its own {own:?}");
            self.report.single(Class::Internal, self.place, &text);
            return;
        }
        self.out.lists.push(ListRead {
            place: self.place,
            list,
            length: values.len() - own.len(),
        });
        for value in &values[..values.len() - own.len()] {
            self.foreign(Object::List(list), Some(*value));
        }
    }

    fn replace(&mut self, object: Object, replaced: Option<Value>, by: Option<Value>) {
        match self.own(object) {
            Some(own) => {
                if self.expect(own, replaced) {
                    self.own[own].now = by;
                }
            }
            None => {
                if let Some(version) = self.foreign(object, replaced) {
                    self.own.push(Own {
                        object,
                        found: Some(version),
                        now: by,
                        op: self.place.op,
                    });
                }
            }
        }
    }

    fn insert(&mut self, object: Object, value: Value) {
        match self.own(object) {
            Some(own) => {
                if self.expect(own, None) {
                    self.own[own].now = Some(value);
                }
            }
            None => self.own.push(Own {
                object,
                found: None,
                now: Some(value),
                op: self.place.op,
            }),
        }
    }

    fn miss(&mut self, object: Object) {
        match self.own(object) {
            Some(own) => drop(self.expect(own, None)),
            None => self.absent(object, Glance::Miss),
        }
    }

    fn absent(&mut self, object: Object, kind: Glance) {
        if let Some(slot) = self.store.slot(object) {
            self.out.absences.push(Absence {
                place: self.place,
                slot,
                kind,
            });
        }
    }

    fn scan(&mut self, table: u32, range: Range, rows: &[(i64, Value)]) {
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            let text = format!("two rows with one key in {range} of table {table}: {rows:?}");
            self.report.single(Class::Malformed, self.place, &text);
            return;
        }
        if rows.iter().any(|(key, _)| !range.contains(*key)) {
            let text = format!("rows outside of {range} of table {table}: {rows:?}");
            self.report.single(Class::Malformed, self.place, &text);
            return;
        }
        for (key, value) in &sorted {
            self.read(Object::Key(table, *key), Some(*value));
        }
        let keys = self.store.used_keys(table);
        let first = keys.partition_point(|used| range.above(used.key));
        let end = keys.partition_point(|used| !range.below(used.key));
        let mut seen = sorted.iter().map(|(key, _)| *key).peekable();
        let mut missing = Vec::new();
        for used in keys.get(first..end).unwrap_or_default() {
            while seen.next_if(|key| *key < used.key).is_some() {}
            if seen.peek() != Some(&used.key) {
                missing.push(*used);
            }
        }
        for used in missing {
            match self.own(Object::Key(table, used.key)) {
                Some(own) => drop(self.expect(own, None)),
                None => self.out.absences.push(Absence {
                    place: self.place,
                    slot: used.slot,
                    kind: Glance::Read,
                }),
            }
        }
    }

    /// What is left of a transaction's writes at its end.
    fn finish(&mut self) {
        for own in std::mem::take(&mut self.own) {
            self.place.op = own.op;
            let now = own.now.and_then(|value| self.store.find(value));
            match (own.found, now) {
                (Some(version), by) => self.out.replaced.push(Replaced {
                    place: self.place,
                    version,
                    by,
                }),
                (None, Some(version)) => self.out.begun.push((version, self.place)),
                (None, None) => self.absent(own.object, Glance::Write),
            }
        }
    }
}
