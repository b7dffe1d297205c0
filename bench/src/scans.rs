//! Reading tables in one way or another.

use postgres::Client;

/// The ways to read a table through its indexes.
pub const INDEX_SCANS: &[&str] = &["indexscan", "indexonlyscan", "bitmapscan"];

/// Does something while the planner takes none of these ways if there is another.
pub fn without<T>(
    control: &mut Client,
    ways: &[&str],
    act: impl FnOnce(&mut Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let switch = |to: &str| -> String {
        ways.iter()
            .map(|way| format!("SET enable_{way} = {to};"))
            .collect()
    };
    control.batch_execute(&switch("off"))?;
    let done = act(control)?;
    control.batch_execute(&switch("on"))?;
    Ok(done)
}
