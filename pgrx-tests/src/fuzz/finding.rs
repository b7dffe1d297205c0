//! What a run may show to be wrong.
use serde::Serialize;

/// Something that stock PostgreSQL could not have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: &'static str,
    pub text: String,
    /// The id of the step that shows it.
    pub step: Option<usize>,
}
