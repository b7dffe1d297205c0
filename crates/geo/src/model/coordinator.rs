//! The coordinator: what is in its memory, what is on its disk, and what its clients were told.

use super::NODES;
use crate::fault::{Fault, planted};
use crate::{Active, Decision, Gid, Prepared, Slot};
use shuttle::sync::{Arc, Mutex};
use std::collections::BTreeSet;

const UUID: u128 = 1;
const FIRST_MAPPING: u32 = 10;

/// Shared memory: gone when the coordinator dies.
pub struct Memory {
    pub incarnation: u64,
    /// How often the coordinator has died before.
    life: u64,
    pub slots: Vec<Slot>,
    /// What sessions have handed over to the resolver, at a node each.
    handed: Mutex<BTreeSet<(usize, Gid)>>,
}

impl Memory {
    /// The resolver commits it at that node.
    pub fn hand_over(&self, node: usize, gid: Gid) {
        self.handed.lock().unwrap().insert((node, gid));
    }

    /// It is acknowledged, or a pass has to end it.
    pub fn take_back(&self, node: usize, gid: Gid) {
        self.handed.lock().unwrap().remove(&(node, gid));
    }

    pub fn handed(&self) -> BTreeSet<(usize, Gid)> {
        self.handed.lock().unwrap().clone()
    }

    /// The transactions that passes leave alone.
    pub fn active(&self) -> Active {
        let active = crate::active(&self.slots);
        let handed = self.handed();
        active.and(handed.into_iter().map(|(_, gid)| gid.sequence))
    }
}

/// A decision row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub decision: Decision,
    /// What else the row has: where the PREPARE stands.
    pub prepared: Prepared,
}

/// What is known of a transaction from outside.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    Running,
    /// Its rows are visible.
    Decided,
    /// Its rows are durable.
    Durable,
    /// It cannot commit any more.
    Failed,
}

pub struct Transaction {
    sequence: (u64, u64),
    pub fate: Fate,
    /// Whether its client was told that it is committed, or that it is not.
    pub told: Option<bool>,
}

struct State {
    memory: Arc<Memory>,
    sequence: u64,
    rows: Vec<Row>,
    transactions: Vec<Transaction>,
}

/// The state that all sessions of one life share. A session of an earlier life can do nothing.
pub struct Coordinator(Mutex<State>);

/// The coordinator, held by a session that is alive.
pub struct Held<'a>(&'a mut State);

fn memory(incarnation: u64, life: u64, sessions: usize) -> Arc<Memory> {
    Arc::new(Memory {
        incarnation,
        life,
        slots: (0..sessions).map(|_| Slot::default()).collect(),
        handed: Mutex::default(),
    })
}

/// The name of a transaction at a node.
pub fn gid_at(node: usize, (incarnation, sequence): (u64, u64)) -> Gid {
    Gid {
        coordinator: UUID,
        incarnation,
        sequence,
        mapping: FIRST_MAPPING + node as u32,
    }
}

impl Coordinator {
    pub fn new(sessions: usize) -> Coordinator {
        Coordinator(Mutex::new(State {
            memory: memory(1, 0, sessions),
            sequence: 0,
            rows: Vec::new(),
            transactions: Vec::new(),
        }))
    }

    pub fn memory(&self) -> Arc<Memory> {
        self.0.lock().unwrap().memory.clone()
    }

    /// Does something as a session of that life. None if the coordinator has died since.
    pub fn alive<R>(&self, memory: &Memory, body: impl FnOnce(&mut Held) -> R) -> Option<R> {
        let mut state = self.0.lock().unwrap();
        (state.memory.life == memory.life).then(|| body(&mut Held(&mut state)))
    }

    /// Dies, and starts again.
    pub fn crash(&self) {
        let mut state = self.0.lock().unwrap();
        let was = state.memory.clone();
        let incarnation = was.incarnation + u64::from(!planted(Fault::IncarnationKept));
        state.memory = memory(incarnation, was.life + 1, was.slots.len());
        state.sequence = 0;
        state.rows.retain(|row| row.decision.confirmed);
        for row in &mut state.rows {
            row.decision.acknowledged = false;
        }
        for transaction in &mut state.transactions {
            if matches!(transaction.fate, Fate::Running | Fate::Decided) {
                transaction.fate = Fate::Failed;
            }
        }
    }

    /// The coordinator, when all is over.
    pub fn at_the_end(&self, body: impl FnOnce(&[Row], &[Transaction], &Memory)) {
        let state = self.0.lock().unwrap();
        body(&state.rows, &state.transactions, &state.memory);
    }
}

impl Held<'_> {
    /// A new transaction: its number in the model, and its sequence with the incarnation.
    pub fn begin(&mut self) -> (usize, (u64, u64)) {
        let state = &mut *self.0;
        state.sequence += 1;
        let sequence = (state.memory.incarnation, state.sequence);
        state.transactions.push(Transaction {
            sequence,
            fate: Fate::Running,
            told: None,
        });
        (state.transactions.len() - 1, sequence)
    }

    /// The decision rows get visible.
    pub fn decide(&mut self, number: usize, prepared: [Prepared; NODES]) {
        let transaction = &mut self.0.transactions[number];
        assert_eq!(transaction.fate, Fate::Running);
        transaction.fate = Fate::Decided;
        let sequence = transaction.sequence;
        let rows = (0..).zip(prepared).map(|(node, prepared)| Row {
            decision: Decision {
                gid: gid_at(node, sequence),
                acknowledged: false,
                confirmed: false,
                lost: false,
            },
            prepared,
        });
        self.0.rows.extend(rows);
    }

    pub fn fail(&mut self, number: usize) {
        self.0.transactions[number].fate = Fate::Failed;
        self.0.transactions[number].told = Some(false);
    }

    pub fn tell(&mut self, number: usize) {
        self.0.transactions[number].told = Some(true);
    }

    /// All rows that there are get durable.
    pub fn flush(&mut self) {
        for row in &mut self.0.rows {
            row.decision.confirmed = true;
        }
        for transaction in &mut self.0.transactions {
            if transaction.fate == Fate::Decided {
                transaction.fate = Fate::Durable;
            }
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.0.rows
    }

    pub fn acknowledge(&mut self, gid: Gid) {
        for row in &mut self.0.rows {
            row.decision.acknowledged |= row.decision.gid == gid;
        }
    }

    pub fn erase(&mut self, gid: Gid) {
        self.0.rows.retain(|row| row.decision.gid != gid);
    }

    /// What has become of the transaction with that name.
    pub fn fate_of(&self, gid: Gid) -> Fate {
        let mut all = self.0.transactions.iter().rev();
        let named =
            |transaction: &&Transaction| transaction.sequence == (gid.incarnation, gid.sequence);
        all.find(named).unwrap().fate
    }
}

/// The scope of the resolver's pass over a node.
pub fn scope(node: usize, memory: &Memory) -> crate::Scope {
    crate::Scope {
        coordinator: UUID,
        incarnation: memory.incarnation,
        mappings: vec![FIRST_MAPPING + node as u32],
    }
}
