//! What the resolver does while it waits, in a pass and between two: it commits what was handed
//! over, before all else, and looks for deadlocks.

use super::applying::Applying;
use super::deadlocks::Looking;
use super::link::Link;
use super::sleep;
use crate::geo::coordinator::{database, memory};
use crate::geo::exchange::Exchange;
use crate::pg::local::Local;
use crate::pg::process;
use geo::Gid;
use std::cell::RefCell;
use std::rc::Rc;

/// What is under way beside a pass.
#[derive(Default)]
struct Meanwhile {
    applying: Applying,
    looking: Looking,
    /// What the board says of the links.
    linked: Vec<u32>,
}

impl Meanwhile {
    /// Says on the board with which user mappings there is a link.
    fn tell_linked(&mut self, links: &mut [Link]) {
        let is_up = |link: &mut Link| link.node().is_some().then(|| link.server.mapping.into());
        let linked: Vec<u32> = links.iter_mut().filter_map(is_up).collect();
        if linked != self.linked {
            memory().with_geo(|board| board.set_linked(database(), &linked));
            self.linked = linked;
        }
    }
}

static MEANWHILE: Local<RefCell<Option<Meanwhile>>> = Local::new(RefCell::new(None));

fn with<R>(body: impl FnOnce(&mut Meanwhile) -> R) -> R {
    body(
        MEANWHILE
            .borrow_mut()
            .get_or_insert_with(Meanwhile::default),
    )
}

/// Goes on with it as far as that can be done without waiting. Not in a transaction.
pub fn go_on(links: &mut [Link]) {
    links.iter_mut().for_each(Link::catch_up);
    with(|all| {
        all.applying.go_on(links);
        let wants = memory().with_geo(|board| board.take_look(database()));
        if wants {
            all.looking.want();
        }
        all.looking.go_on(links);
        all.tell_linked(links);
    });
}

/// When it goes on by itself.
pub fn next() -> Option<u64> {
    with(|all| {
        all.applying
            .next()
            .into_iter()
            .chain(all.looking.next())
            .min()
    })
}

/// What nodes have acknowledged of what was handed over, once.
pub fn take_applied() -> Vec<Gid> {
    with(|all| all.applying.take_applied())
}

/// Waits for the answers to what was sent on all links before. A link on which that takes too long
/// is closed.
pub fn collect(links: &mut [Link]) {
    /// The longest sleep, in microseconds.
    const NAP_US: u64 = 100_000;
    let sent_at = process::now();
    let last: Vec<Option<Rc<Exchange>>> = links.iter_mut().map(Link::last_sent).collect();
    let is_waiting = |link: &mut Link, last: &Option<Rc<Exchange>>| {
        link.node().is_some() && last.as_ref().is_some_and(|last| !last.is_done())
    };
    loop {
        go_on(links);
        let now = process::now();
        let mut is_done = true;
        for (link, last) in links.iter_mut().zip(&last) {
            if is_waiting(link, last) && link.is_silent_since(sent_at, now) {
                link.close();
            }
            is_done &= !is_waiting(link, last);
        }
        if is_done {
            return;
        }
        let sockets: Vec<_> = links.iter().filter_map(Link::busy_socket).collect();
        sleep(&sockets, now + NAP_US);
    }
}
