//! sysbench's OLTP scripts, with skewed and with uniform keys.

use super::*;
use crate::workload::sysbench;

pub const FAMILY: &str = "sysbench";
pub const ABOUT: &str = "sysbench's OLTP scripts, skewed and uniform: one table over sysbench-*";

const UNIFORM: &str = "uniform keys (U)";

const fn skewed(skewed: &'static Workload, uniform: &'static Workload) -> [Series; 4] {
    off_on_and(skewed, different(uniform).named(UNIFORM))
}

macro_rules! sysbench {
    ($($name:literal, $script:literal, $pareto:path, $special:path, $uniform:path;)*) => {
        pub static ALL: &[&Benchmark] = &[
            $(
                &Benchmark {
                    name: concat!("sysbench-", $name, "-pareto"),
                    about: concat!("sysbench's ", $script, ", a fifth of draws one row of 100,000"),
                    family: Some(FAMILY),
                    clients: &[16, 64],
                    series: &const { skewed(&$pareto, &$uniform) },
                    ceiling: Some(UNIFORM),
                    ..BASE
                },
                &Benchmark {
                    name: concat!("sysbench-", $name, "-special"),
                    about: concat!("sysbench's ", $script, ", 3 of 4 draws 1000 rows of 100,000"),
                    family: Some(FAMILY),
                    clients: &[16, 64],
                    series: &const { skewed(&$special, &$uniform) },
                    ceiling: Some(UNIFORM),
                    ..BASE
                },
                &Benchmark {
                    name: concat!("sysbench-", $name, "-uniform"),
                    about: concat!("sysbench's ", $script, ", uniform over 100,000 rows"),
                    family: Some(FAMILY),
                    clients: &[16, 64],
                    series: &const { off_and_on(&$uniform) },
                    ..BASE
                },
            )*
        ];
    };
}

sysbench! {
    "read-write", "oltp_read_write",
    sysbench::READ_WRITE_PARETO, sysbench::READ_WRITE_SPECIAL, sysbench::READ_WRITE_UNIFORM;
    "non-index", "oltp_update_non_index",
    sysbench::UPDATE_NON_INDEX_PARETO, sysbench::UPDATE_NON_INDEX_SPECIAL,
    sysbench::UPDATE_NON_INDEX_UNIFORM;
    "index", "oltp_update_index",
    sysbench::UPDATE_INDEX_PARETO, sysbench::UPDATE_INDEX_SPECIAL, sysbench::UPDATE_INDEX_UNIFORM;
}
