//! What is compared where all clients do the same: a system, and settings.

use super::catalog::System;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    pub label: &'static str,
    pub system: System,
    /// Of the server, or of the sessions.
    pub settings: &'static [(&'static str, &'static str)],
}

pub const fn variant(
    label: &'static str,
    system: System,
    settings: &'static [(&'static str, &'static str)],
) -> Variant {
    Variant {
        label,
        system,
        settings,
    }
}

/// Whether one of them runs on the extension.
pub fn needs_library(variants: &[Variant]) -> bool {
    variants.iter().any(|one| one.system == System::Txn)
}
