//! What measures transactions over distant nodes: servers and lines, variants, clients.

pub mod cluster;
pub mod load;
pub mod variant;
