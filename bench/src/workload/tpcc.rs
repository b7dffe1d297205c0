//! TPC-C's mix of five transactions, as calls of stored procedures and as the statements of a
//! client. There are no keying and think times: every client begins its next transaction at once.

use super::{Audit, Tables, Workload, counter};
use crate::books::Books;
use crate::script::{Script, Source};

/// What makes the database of some warehouses, for psql, which sets `warehouses`.
pub const LOAD: &str = concat!(
    include_str!("../../tpcc/schema.sql"),
    include_str!("../../tpcc/load.sql"),
    include_str!("../../tpcc/procedures.sql"),
);
/// Declares what the procedures write, but for the warehouse.
pub const DECLARE: &str = include_str!("../../tpcc/declare.sql");
/// Declares that, too.
pub const DECLARE_WAREHOUSE: &str = include_str!("../../tpcc/declare-warehouse.sql");

/// Parts of `bench/tpcc`, one after the other.
macro_rules! text {
    ($($part:literal)*) => {
        concat!($(include_str!(concat!("../../tpcc/", $part, ".sql"))),*)
    };
}

macro_rules! five_times {
    ($part:literal) => {
        text!($part $part $part $part $part)
    };
}

/// New-Order by statements: up to fifteen lines, and how it ends.
macro_rules! new_order {
    ($end:literal) => {
        concat!(
            text!("draw-new-order" "statements/new-order-begin"),
            five_times!("statements/new-order-line"),
            five_times!("statements/new-order-line"),
            five_times!("statements/new-order-line"),
            text!($end),
        )
    };
}

/// The scripts in the order of the audit's effects. In ten thousand transactions there are 4500
/// New-Orders, 45 of which roll back.
macro_rules! mix {
    (
        $new_order:expr, $rollback:expr, $payment:expr,
        $order_status:expr, $delivery:expr, $stock_level:expr
    ) => {
        &[
            script("new-order", $new_order, 4455),
            script("new-order-rollback", $rollback, 45),
            script("payment", $payment, 4300),
            script("order-status", $order_status, 400),
            script("delivery", $delivery, 400),
            script("stock-level", $stock_level, 400),
        ]
    };
}

const fn script(name: &'static str, text: &'static str, weight: u32) -> Script<'static> {
    Script {
        name,
        source: Source::Text(text),
        weight,
    }
}

pub const PROCEDURES: &[Script<'static>] = mix!(
    text!("draw-new-order" "procedures/new-order"),
    text!("draw-new-order" "procedures/new-order-rollback"),
    text!("draw-payment" "procedures/payment"),
    text!("draw-order-status" "procedures/order-status"),
    text!("draw-delivery" "procedures/delivery"),
    text!("draw-stock-level" "procedures/stock-level")
);

pub const STATEMENTS: &[Script<'static>] = mix!(
    new_order!("statements/new-order-commit"),
    new_order!("statements/new-order-rollback"),
    text!("draw-payment" "statements/payment"),
    text!("draw-order-status" "statements/order-status"),
    concat!(
        text!("draw-delivery" "statements/delivery-begin"),
        five_times!("statements/delivery-district"),
        five_times!("statements/delivery-district"),
        text!("statements/delivery-commit"),
    ),
    text!("draw-stock-level" "statements/stock-level")
);

static AUDIT: Audit = Audit {
    books: Books {
        sql: text!("books"),
        columns: &[
            "numbers of orders",
            "orders",
            "lines in the stock that no order has",
            "quantities in the stock that no order has",
            "payments in the history",
            "payments of the customers",
            "districts delivered to or skipped",
        ],
    },
    effects: &[
        NEW_ORDER,
        NOTHING,
        &[0, 0, 0, 0, 1, 1, 0],
        NOTHING,
        &[0, 0, 0, 0, 0, 0, 10],
        NOTHING,
    ],
    conditions: text!("conditions"),
};
const NEW_ORDER: &[i64] = &[1, 1, 0, 0, 0, 0, 0];
const NOTHING: &[i64] = &[0; 7];

/// The mix on so many warehouses.
pub const fn tpcc(
    name: &'static str,
    scripts: &'static [Script<'static>],
    warehouses: usize,
) -> Workload {
    Workload {
        effect: "SELECT sum(d_next_o_id - 3001)::bigint FROM district",
        count_rows: "SELECT (SELECT count(*) FROM warehouse WHERE w_id > 0)
                          + (SELECT count(*) FROM district WHERE d_w_id > 0)
                          + (SELECT count(*) FROM customer WHERE c_w_id > 0)
                          + (SELECT count(*) FROM stock WHERE s_w_id > 0)
                          - (SELECT max(w_id) FROM warehouse) * (1 + 10 + 30000 + 100000)",
        rows: 0,
        tables: Tables::Tpcc {
            warehouses,
            of_txn_heap: false,
        },
        audit: Some(&AUDIT),
        ..counter(name, scripts)
    }
}

/// The mix on tables of `txn_heap`, with procedures whose declarations `declares` makes.
pub const fn declared(name: &'static str, warehouses: usize, declares: &'static str) -> Workload {
    Workload {
        reset: declares,
        tables: Tables::Tpcc {
            warehouses,
            of_txn_heap: true,
        },
        ..tpcc(name, PROCEDURES, warehouses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_its_effects_on_all_of_the_books() {
        for scripts in [PROCEDURES, STATEMENTS] {
            assert_eq!(scripts.len(), AUDIT.effects.len());
            assert_eq!(
                scripts.iter().map(|script| script.weight).sum::<u32>(),
                10_000
            );
        }
        for effects in AUDIT.effects {
            assert_eq!(effects.len(), AUDIT.books.columns.len());
        }
    }

    #[test]
    fn an_order_has_up_to_fifteen_lines_and_a_delivery_ten_districts() {
        let text = |index: usize| match STATEMENTS[index].source {
            Source::Text(text) => text,
            _ => panic!("a script of ours"),
        };
        assert!(text(0).contains("\\set lines random(5, 15)"));
        assert_eq!(text(0).matches("INSERT INTO order_line").count(), 15);
        assert!(text(0).ends_with("COMMIT;\n") && text(1).ends_with("ROLLBACK;\n"));
        assert_eq!(text(4).matches("FOR UPDATE").count(), 10);
    }

    #[test]
    fn an_intended_rollback_has_no_effect() {
        assert_eq!(PROCEDURES[1].name, "new-order-rollback");
        assert!(AUDIT.effects[1].iter().all(|effect| *effect == 0));
    }
}
