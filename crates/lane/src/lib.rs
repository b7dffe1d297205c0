#![doc = include_str!("../README.md")]

mod announcement;
mod fault;
mod heat;
mod item;
#[cfg(test)]
mod model;
#[cfg(test)]
mod orders;
mod queue;
mod request;
mod seat;
mod sleep;
mod stripe;
mod text;
mod word;

pub use announcement::Announced;
pub use heat::{REFUSAL, WAIT};
pub use item::{Item, Mode, TooManyRelations, put_in_order};
pub use queue::{Head, Lane, Look};
pub use request::{List, Request};
pub use seat::{Seat, SeatId, State};
pub use stripe::Stripe;
pub use text::{Declaration, Form, Malformed, Value, parse_declaration, parse_item};
