//! Which process was seen last on each processor: a guess at who runs.
//!
//! Whether a waiter had better stay awake depends on whether the one that it waits for runs. A
//! kernel knows (Solaris' adaptive mutexes, Linux's `mutex_spin_on_owner`); here each process says
//! now and then on which processor it is. If nobody else has been seen there since, it runs still,
//! or sleeps on an idle processor. A wrong guess costs the waiter a little time, and no more: so
//! nothing here is locked.

use crate::{Backend, BackendId, Word32};

/// A processor, on a cache line of its own: all who run there write it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Processor {
    /// The process that was seen last, + 1.
    last: Word32,
}

/// All processors, by the operating system's numbers, and the processes.
#[derive(Clone, Copy)]
pub struct Processors<'a> {
    pub all: &'a [Processor],
    pub backends: &'a [Backend],
}

impl Processors<'_> {
    /// That process is seen on that processor. One with a number beyond the array is not known.
    pub fn note(&self, process: BackendId, processor: usize) {
        let own = &self.backends[process as usize].processor;
        let Some(seen) = self.all.get(processor) else {
            own.set(0);
            return;
        };
        if own.get() as usize != processor + 1 {
            own.set(processor as u32 + 1);
        }
        if seen.last.get() != process + 1 {
            seen.last.set(process + 1);
        }
    }

    /// Whether that process seems to run on another processor than that one.
    pub fn runs_elsewhere(&self, process: BackendId, processor: usize) -> bool {
        let at = self.backends[process as usize].processor.get() as usize;
        at != 0
            && self.backends[process as usize].sleeping.get() == 0
            && at != processor + 1
            && self
                .all
                .get(at - 1)
                .is_some_and(|seen| seen.last.get() == process + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_seen_last_on_another_processor_runs_there() {
        let all: Vec<Processor> = (0..2).map(|_| Processor::default()).collect();
        let backends: Vec<Backend> = (0..3).map(|_| Backend::default()).collect();
        let processors = Processors {
            all: &all,
            backends: &backends,
        };
        assert!(!processors.runs_elsewhere(0, 1), "never seen");
        processors.note(0, 0);
        assert!(processors.runs_elsewhere(0, 1));
        assert!(!processors.runs_elsewhere(0, 0), "this is its processor");
        processors.note(1, 0);
        assert!(!processors.runs_elsewhere(0, 1), "another one is there now");
        assert!(processors.runs_elsewhere(1, 1));
        processors.note(0, 1);
        assert!(processors.runs_elsewhere(0, 0), "it has moved");
        backends[0].sleeping.set(1);
        assert!(!processors.runs_elsewhere(0, 0), "it sleeps");
    }

    #[test]
    fn processors_beyond_the_array_are_not_known() {
        let backends = [Backend::default()];
        let processors = Processors {
            all: &[],
            backends: &backends,
        };
        processors.note(0, 7);
        assert!(!processors.runs_elsewhere(0, 0));
    }
}
