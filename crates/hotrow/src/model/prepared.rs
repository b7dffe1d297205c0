//! What the modelled server knows of prepared transactions.

use crate::BackendId;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};

/// What can stand for prepared transactions at a time.
pub const PLACES: usize = 2;

/// A transaction that is prepared: what stands for it, the id that has written, all its ids.
pub struct Left {
    pub standing: BackendId,
    pub writer: u32,
    pub xids: Vec<u32>,
}

/// What the server knows of prepared transactions.
pub struct Prepared {
    pub free: Mutex<Vec<BackendId>>,
    left: Mutex<(Vec<Left>, bool)>,
    changed: Condvar,
}

impl Prepared {
    /// Behind so many sessions.
    pub fn behind(sessions: usize) -> Self {
        let places = sessions..sessions + PLACES;
        Prepared {
            free: Mutex::new(places.map(|n| n as BackendId).collect()),
            left: Mutex::new((Vec::new(), false)),
            changed: Condvar::new(),
        }
    }

    /// The session of one goes on to others.
    pub fn leave(&self, left: Left) {
        self.left.lock().unwrap().0.push(left);
        self.changed.notify_all();
    }

    /// No session runs any more.
    pub fn close(&self) {
        self.left.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// One of those that are left, any of them; None when there will be no more.
    pub fn next(&self) -> Option<Left> {
        let mut left = self.left.lock().unwrap();
        loop {
            if !left.0.is_empty() {
                let n = thread_rng().gen_range(0..left.0.len());
                return Some(left.0.swap_remove(n));
            }
            if left.1 {
                return None;
            }
            left = self.changed.wait(left).unwrap();
        }
    }
}
