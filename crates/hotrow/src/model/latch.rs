//! A process latch: set stays set until somebody waits.

use shuttle::sync::{Condvar, Mutex};

#[derive(Default)]
pub struct Latch {
    set: Mutex<bool>,
    wakes: Condvar,
}

impl Latch {
    pub fn set(&self) {
        *self.set.lock().unwrap() = true;
        self.wakes.notify_all();
    }

    pub fn wait(&self) {
        let mut set = self.set.lock().unwrap();
        while !*set {
            set = self.wakes.wait(set).unwrap();
        }
        *set = false;
    }
}
