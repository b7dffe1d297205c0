//! TPC-C over the number of warehouses, in two forms.

use super::*;
use crate::workload::tpcc::{PROCEDURES, STATEMENTS, tpcc};

pub const FAMILY: &str = "tpcc";
pub const ABOUT: &str =
    "TPC-C's full mix: tps are New-Orders, all tps all transactions; one table over tpcc-*";

macro_rules! tpcc {
    ($($form:literal, $about:literal, $scripts:ident, $warehouses:literal;)*) => {
        pub static ALL: &[&Benchmark] = &[
            $({
                static WORKLOAD: Workload =
                    tpcc(concat!("tpcc-", $form), $scripts, $warehouses);
                &Benchmark {
                    name: concat!("tpcc-", $form, "-", $warehouses),
                    about: concat!("TPC-C by ", $about, ", warehouses: ", $warehouses),
                    family: Some(FAMILY),
                    clients: &[16, 64],
                    series: &const {
                        off_on_and(&WORKLOAD, different(&WORKLOAD).named(A_WAREHOUSE_EACH))
                    },
                    ceiling: Some(A_WAREHOUSE_EACH),
                    ..BASE
                }
            },)*
        ];
    };
}

tpcc! {
    "procedures", "stored procedures", PROCEDURES, 1;
    "procedures", "stored procedures", PROCEDURES, 2;
    "procedures", "stored procedures", PROCEDURES, 4;
    "procedures", "stored procedures", PROCEDURES, 10;
    "statements", "statements of the client", STATEMENTS, 1;
    "statements", "statements of the client", STATEMENTS, 2;
    "statements", "statements of the client", STATEMENTS, 4;
    "statements", "statements of the client", STATEMENTS, 10;
}
