//! TPC-C's New-Order and Payment beside a bulk transaction that rewards the best customer of a part
//! of a district: what ROCC's paper measures. Reduced to what these transactions look at.

use super::division::Division;
use super::script::{Class, Data, MixScript};
use crate::books::Books;

/// Of each warehouse; TPC-C has ten times as many.
const ITEMS: u64 = 10_000;
/// Of each warehouse.
const DISTRICTS: u64 = 10;
/// Of each district.
pub const CUSTOMERS: u64 = 3000;
/// A district's customers are divided into so many ranges.
const RANGES_OF_A_DISTRICT: u64 = 3;

/// Those that are partitioned: the others have no rows when the run begins, or are never written.
pub const TABLES: &[&str] = &["warehouse", "district", "customer", "stock"];

const BOOKS: Books = Books {
    sql: include_str!("../../range-tpcc-books.sql"),
    columns: &[
        "numbers of orders",
        "orders",
        "new orders",
        "lines of orders",
        "lines in the stock",
        "payments in the history",
        "payments of the customers",
        "rewards",
        "difference of balances and payments",
        "difference of warehouses and history",
        "warehouses unlike their districts",
        "districts unlike their orders",
    ],
};
const NEW_ORDER: &[i64] = &[1, 1, 1, 10, 10, 0, 0, 0, 0, 0, 0, 0];
const PAYMENT: &[i64] = &[0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
const REWARD: &[i64] = &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

pub fn data(warehouses: u64) -> Data {
    let schema = include_str!("../../range-tpcc-schema.sql");
    Data {
        schema: sized(warehouses, schema),
        tables: &[
            "warehouse",
            "district",
            "customer",
            "stock",
            "orders",
            "new_order",
            "order_line",
            "history",
        ],
        books: BOOKS,
    }
}

/// Half of the point transactions are New-Orders, the others Payments; `bulk` percent of all are
/// bulk transactions that scan so many customers.
pub fn scripts(warehouses: u64, scan: u64, bulk: u32) -> Vec<MixScript> {
    let script = |name, class, weight, effects, text: &str| MixScript {
        name,
        class,
        weight,
        effects,
        text: sized(warehouses, &format!("\\set scan {scan}\n{text}")),
    };
    vec![
        script(
            "range-tpcc-new-order",
            Class::Point,
            100 - bulk,
            NEW_ORDER,
            include_str!("../../range-tpcc-new-order.sql"),
        ),
        script(
            "range-tpcc-payment",
            Class::Point,
            100 - bulk,
            PAYMENT,
            include_str!("../../range-tpcc-payment.sql"),
        ),
        script(
            "range-tpcc-reward",
            Class::Bulk,
            2 * bulk,
            REWARD,
            include_str!("../../range-tpcc-reward.sql"),
        ),
    ]
}

/// The ranges of the tables; `ranges` of the customers unless it is 0.
pub fn divisions(warehouses: u64, ranges: u64) -> Vec<(&'static str, Division)> {
    let districts = warehouses * DISTRICTS;
    let customers = match ranges {
        0 => districts * RANGES_OF_A_DISTRICT,
        ranges => ranges,
    };
    let numbers = [warehouses, districts, customers, districts];
    let divisions = TABLES.iter().zip(numbers);
    divisions
        .map(|(table, ranges)| (*table, Division::Ranges(ranges)))
        .collect()
}

fn sized(warehouses: u64, text: &str) -> String {
    format!("\\set warehouses {warehouses}\n\\set items {ITEMS}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transaction_has_an_effect_on_each_of_the_books() {
        let scripts = scripts(4, 1000, 10);
        assert_eq!(scripts.iter().map(|script| script.weight).sum::<u32>(), 200);
        for script in &scripts {
            assert_eq!(script.effects.len(), BOOKS.columns.len());
            assert!(script.effects.iter().any(|effect| *effect > 0));
        }
    }

    #[test]
    fn the_schema_has_the_rows_that_the_scripts_draw_from() {
        let schema = data(4).schema;
        assert!(schema.contains(&format!("generate_series(1, {CUSTOMERS}) c")));
        assert!(schema.contains(&format!("generate_series(1, {DISTRICTS}) d")));
        for script in scripts(4, 1000, 10) {
            assert!(script.text.contains(&format!("random(1, {DISTRICTS})")));
            assert!(script.text.contains(&format!("{CUSTOMERS}")));
        }
    }

    #[test]
    fn all_tables_that_are_divided_exist() {
        for (table, _) in divisions(4, 0) {
            assert!(data(4).tables.contains(&table));
        }
        assert_eq!(divisions(4, 7)[2], ("customer", Division::Ranges(7)));
    }
}
