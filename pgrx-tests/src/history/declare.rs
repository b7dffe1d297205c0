//! Declarations for the transactions of a recording: most are of what they do, some of what they
//! do not.

use history::{Plan, Step};

use crate::Worker;

/// `txn.declare` for some of the keys that the plan uses, to read or to write, whichever comes; a
/// few with more keys than they should have, or others.
pub fn declaration(worker: &mut Worker, plan: &Plan) -> String {
    let mut lists = [Vec::new(), Vec::new()];
    for step in &plan.steps {
        let (items, mut writes) = items_of(step);
        for item in items {
            if worker.chance(10) {
                continue;
            }
            if worker.chance(10) {
                writes = !writes;
            }
            lists[usize::from(!writes)].push(item);
        }
    }
    if worker.chance(10) {
        let key = worker.below(8);
        lists[0].push(format!("registers({key})"));
    }
    if worker.chance(5) {
        lists[1].push("lists(*)".to_owned());
    }
    let array = |items: &Vec<String>| {
        let items: Vec<String> = items.iter().map(|item| format!("'{item}'")).collect();
        format!("ARRAY[{}]::text[]", items.join(", "))
    };
    format!(
        "SELECT txn.declare({}, {})",
        array(&lists[0]),
        array(&lists[1])
    )
}

/// The items that a step uses, and whether it writes to them.
fn items_of(step: &Step) -> (Vec<String>, bool) {
    let row = |table: &u32, key: &i64| format!("ranges_{table}({key})");
    match step {
        Step::Append { list, .. } => (vec![format!("lists({list})")], true),
        Step::ReadList { list } => (vec![format!("lists({list})")], false),
        Step::Write { register, .. } => (vec![format!("registers({register})")], true),
        Step::Read { register } => (vec![format!("registers({register})")], false),
        Step::Scan { table, .. } => (vec![format!("ranges_{table}(*)")], false),
        Step::Insert { table, key, .. }
        | Step::Upsert { table, key, .. }
        | Step::Update { table, key, .. }
        | Step::Delete { table, key } => (vec![row(table, key)], true),
        Step::Rekey {
            table, from, to, ..
        } => (vec![row(table, from), row(table, to)], true),
    }
}
