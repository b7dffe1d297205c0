//! TPC-C's Payment and New-Order over the nodes, reduced to what these two look at. Keys are single
//! numbers, which count districts, customers and stock over all warehouses.

use rand::Rng;
use rand::rngs::SmallRng;

use super::place::At;
use super::transaction::{Kind, Step, Transaction, Value, parameters};
use super::workload::{self, Schema, Sizes, Table};

/// Of a warehouse.
const DISTRICTS: i64 = 10;
/// Of a district; TPC-C has ten times as many.
const CUSTOMERS: i64 = 300;
/// Of a warehouse; TPC-C has ten times as many.
const ITEMS: i64 = 10_000;
/// Lines of an order, from and to.
const LINES: (usize, usize) = (5, 15);

const fn districts(sizes: &Sizes) -> i64 {
    sizes.warehouses * DISTRICTS
}

pub static SCHEMA: Schema = Schema {
    name: "tpcc",
    tables: &[
        Table {
            name: "warehouse",
            columns: "w_id bigint NOT NULL, w_tax bigint NOT NULL, w_ytd bigint NOT NULL",
            key: "w_id",
            width: |sizes| sizes.warehouses,
        },
        Table {
            name: "district",
            columns: "d_id bigint NOT NULL, d_ytd bigint NOT NULL, d_next_o_id bigint NOT NULL, \
                      locked timestamptz",
            key: "d_id",
            width: districts,
        },
        Table {
            name: "customer",
            columns: "c_id bigint NOT NULL, c_discount bigint NOT NULL, c_balance bigint NOT NULL, \
                      c_payment_cnt bigint NOT NULL, c_data text",
            key: "c_id",
            width: |sizes| districts(sizes) * CUSTOMERS,
        },
        Table {
            name: "stock",
            columns: "s_id bigint NOT NULL, s_price bigint NOT NULL, s_quantity bigint NOT NULL, \
                      s_ytd bigint NOT NULL, s_order_cnt bigint NOT NULL, s_data text",
            key: "s_id",
            width: |sizes| sizes.warehouses * ITEMS,
        },
        Table {
            name: "history",
            columns: "h_d_id bigint NOT NULL, h_c_id bigint NOT NULL, h_amount bigint NOT NULL",
            key: "h_d_id",
            width: districts,
        },
        Table {
            name: "orders",
            columns: "o_d_id bigint NOT NULL, o_id bigint NOT NULL, o_c_id bigint NOT NULL, \
                      o_ol_cnt bigint NOT NULL",
            key: "o_d_id,o_id",
            width: districts,
        },
        Table {
            name: "new_order",
            columns: "no_d_id bigint NOT NULL, no_o_id bigint NOT NULL",
            key: "no_d_id,no_o_id",
            width: districts,
        },
        Table {
            name: "order_line",
            columns: "ol_d_id bigint NOT NULL, ol_o_id bigint NOT NULL, ol_number bigint NOT NULL, \
                      ol_s_id bigint NOT NULL, ol_quantity bigint NOT NULL",
            key: "ol_d_id,ol_o_id,ol_number",
            width: districts,
        },
    ],
    fill: include_str!("../../geo/tpcc.sql"),
    books: include_str!("../../geo/tpcc-books.sql"),
    columns: &[
        "amounts of the warehouses",
        "amounts of the districts",
        "amounts in the history",
        "payments of the customers",
        "amounts of the customers",
        "numbers of orders",
        "orders",
        "new orders",
        "lines of orders",
        "lines in the stock",
        "quantities in the stock",
        "districts unlike their orders",
        "warehouses unlike their districts",
    ],
    held: ("district", "d_id"),
};

/// The columns of the books.
const W_YTD: usize = 0;
const D_YTD: usize = 1;
const H_AMOUNT: usize = 2;
const C_PAYMENTS: usize = 3;
const C_AMOUNTS: usize = 4;
const O_NUMBERS: usize = 5;
const ORDERS: usize = 6;
const NEW_ORDERS: usize = 7;
const ORDER_LINES: usize = 8;
const S_LINES: usize = 9;
const S_QUANTITIES: usize = 10;

pub struct Tpcc {
    kind: workload::Kind,
    nodes: i64,
    /// Of each node.
    warehouses: i64,
    /// The client's warehouse.
    home: i64,
    distributed: u32,
}

impl Tpcc {
    /// Clients have their warehouses at the nodes in turn.
    pub fn new(at: &At, sizes: &Sizes, client: usize) -> Self {
        let (nodes, client) = (sizes.nodes as i64, client as i64);
        let (node, within) = (client % nodes, client / nodes % sizes.warehouses);
        Self {
            kind: at.kind,
            nodes,
            warehouses: sizes.warehouses,
            home: node * sizes.warehouses + within,
            distributed: at.distributed,
        }
    }

    pub fn draw(&self, rng: &mut SmallRng) -> Transaction {
        match self.kind {
            workload::Kind::Payment => self.payment(rng),
            _ => self.new_order(rng),
        }
    }

    fn node(&self, warehouse: i64) -> usize {
        (warehouse / self.warehouses) as usize
    }

    /// A warehouse of another node, as often as transactions are to be distributed; else none.
    fn remote(&self, rng: &mut SmallRng) -> Option<i64> {
        if self.nodes < 2 || rng.random_range(0..100) >= self.distributed {
            return None;
        }
        let home = self.home / self.warehouses;
        let node = (home + rng.random_range(1..self.nodes)) % self.nodes;
        Some(node * self.warehouses + rng.random_range(0..self.warehouses))
    }

    fn payment(&self, rng: &mut SmallRng) -> Transaction {
        let warehouse = self.remote(rng).unwrap_or(self.home);
        let customer = customer(rng, warehouse);
        let district = self.home * DISTRICTS + rng.random_range(0..DISTRICTS);
        let amount = rng.random_range(100..=500_000);
        let steps = vec![
            Step::new(
                Kind::Reads(1),
                "SELECT c_balance, c_data FROM customer WHERE c_id = $1",
                &[customer],
            ),
            Step::new(
                Kind::Writes(1),
                "INSERT INTO history (h_d_id, h_c_id, h_amount) VALUES ($1, $2, $3)",
                &[district, customer, amount],
            ),
            Step::new(
                Kind::Writes(1),
                "UPDATE customer SET c_balance = c_balance - $1, c_payment_cnt = c_payment_cnt + 1 \
                 WHERE c_id = $2",
                &[amount, customer],
            ),
            Step::new(
                Kind::Writes(1),
                "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_id = $2",
                &[amount, district],
            ),
            Step::new(
                Kind::Writes(1),
                "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2",
                &[amount, self.home],
            ),
        ];
        let (home, other) = (self.node(self.home), self.node(warehouse));
        let effects = vec![
            (home, W_YTD, amount),
            (home, D_YTD, amount),
            (home, H_AMOUNT, amount),
            (other, C_PAYMENTS, 1),
            (other, C_AMOUNTS, amount),
        ];
        Transaction { steps, effects }
    }

    /// All lines of an order have one quantity, so that one UPDATE takes them from the stock.
    fn new_order(&self, rng: &mut SmallRng) -> Transaction {
        let district = self.home * DISTRICTS + rng.random_range(0..DISTRICTS);
        let customer = customer(rng, self.home);
        let quantity = rng.random_range(1..=10);
        let stock = self.stock(rng);
        let count = stock.len() as i64;
        let mut steps = vec![
            Step::new(
                Kind::Reads(1),
                "SELECT w_tax FROM warehouse WHERE w_id = $1",
                &[self.home],
            ),
            Step::new(
                Kind::Reads(1),
                "SELECT c_discount FROM customer WHERE c_id = $1",
                &[customer],
            ),
            Step::new(
                Kind::Reads(stock.len()),
                format!(
                    "SELECT s_id, s_price, s_quantity FROM stock WHERE s_id IN ({})",
                    parameters(1, stock.len())
                ),
                &stock,
            ),
        ];
        let number = Value::From(steps.len());
        steps.push(Step::new(
            Kind::Returns,
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = $1 \
             RETURNING d_next_o_id",
            &[district],
        ));
        steps.extend(inserts(district, number, customer, &stock, quantity));
        let mut values = vec![quantity];
        values.extend(&stock);
        steps.push(Step::new(
            Kind::Writes(stock.len()),
            format!(
                "UPDATE stock SET s_quantity = s_quantity - $1 \
                 + CASE WHEN s_quantity < $1 + 10 THEN 91 ELSE 0 END, \
                 s_ytd = s_ytd + $1, s_order_cnt = s_order_cnt + 1 WHERE s_id IN ({})",
                parameters(2, stock.len())
            ),
            &values,
        ));
        let home = self.node(self.home);
        let mut effects = vec![
            (home, O_NUMBERS, 1),
            (home, ORDERS, 1),
            (home, NEW_ORDERS, 1),
            (home, ORDER_LINES, count),
        ];
        for item in stock {
            let node = self.node(item / ITEMS);
            effects.extend([(node, S_LINES, 1), (node, S_QUANTITIES, quantity)]);
        }
        Transaction { steps, effects }
    }

    /// Different items, all of the home warehouse but for one if the order is distributed.
    fn stock(&self, rng: &mut SmallRng) -> Vec<i64> {
        let lines = rng.random_range(LINES.0..=LINES.1);
        let remote = self.remote(rng);
        let mut stock: Vec<i64> = Vec::new();
        while stock.len() < lines {
            let warehouse = remote.filter(|_| stock.is_empty()).unwrap_or(self.home);
            let item = warehouse * ITEMS + rng.random_range(0..ITEMS);
            if !stock.contains(&item) {
                stock.push(item);
            }
        }
        stock
    }
}

fn customer(rng: &mut SmallRng, warehouse: i64) -> i64 {
    let district = warehouse * DISTRICTS + rng.random_range(0..DISTRICTS);
    district * CUSTOMERS + rng.random_range(0..CUSTOMERS)
}

/// The rows of an order with that number.
fn inserts(district: i64, number: Value, customer: i64, stock: &[i64], quantity: i64) -> [Step; 3] {
    let writes = |sql: String, rows: usize, values: Vec<Value>| Step {
        sql,
        values,
        kind: Kind::Writes(rows),
    };
    let [district, customer, count, quantity] =
        [district, customer, stock.len() as i64, quantity].map(Value::Number);
    let mut values = vec![district, number, quantity];
    values.extend(stock.iter().map(|item| Value::Number(*item)));
    let lines = (0..stock.len()).map(|line| format!("($1, $2, {line}, ${}, $3)", line + 4));
    let lines: Vec<String> = lines.collect();
    [
        writes(
            "INSERT INTO orders (o_d_id, o_id, o_c_id, o_ol_cnt) VALUES ($1, $2, $3, $4)".into(),
            1,
            vec![district, number, customer, count],
        ),
        writes(
            "INSERT INTO new_order (no_d_id, no_o_id) VALUES ($1, $2)".into(),
            1,
            vec![district, number],
        ),
        writes(
            format!(
                "INSERT INTO order_line (ol_d_id, ol_o_id, ol_number, ol_s_id, ol_quantity) \
                 VALUES {}",
                lines.join(", ")
            ),
            stock.len(),
            values,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::geo::place::DEFAULT;

    const SIZES: Sizes = Sizes {
        nodes: 4,
        rows: 1,
        warehouses: 2,
    };

    fn drawn(kind: workload::Kind, client: usize, distributed: u32) -> Vec<Transaction> {
        let at = At {
            kind,
            distributed,
            ..DEFAULT
        };
        let tpcc = Tpcc::new(&at, &SIZES, client);
        let mut rng = SmallRng::seed_from_u64(3);
        (0..500).map(|_| tpcc.draw(&mut rng)).collect()
    }

    fn nodes(transaction: &Transaction) -> Vec<usize> {
        let mut nodes: Vec<usize> = transaction.effects.iter().map(|one| one.0).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    #[test]
    fn clients_have_their_warehouses_at_the_nodes_in_turn() {
        for (client, home) in [(0, 0), (1, 1), (3, 3), (4, 0), (9, 1)] {
            for kind in [workload::Kind::Payment, workload::Kind::NewOrder] {
                let all = drawn(kind, client, 0);
                assert!(all.iter().all(|one| nodes(one) == [home]), "{client}");
            }
        }
    }

    #[test]
    fn as_many_are_over_two_nodes_as_asked_for() {
        for kind in [workload::Kind::Payment, workload::Kind::NewOrder] {
            let all = drawn(kind, 5, 100);
            assert!(all.iter().all(|one| nodes(one).len() == 2));
            let some = drawn(kind, 5, 15);
            let two = some.iter().filter(|one| nodes(one).len() == 2).count();
            assert!((45..105).contains(&two), "{two}");
        }
    }

    #[test]
    fn every_statement_has_its_parameters_and_ends_with_an_update() {
        for kind in [workload::Kind::Payment, workload::Kind::NewOrder] {
            for transaction in drawn(kind, 2, 50) {
                for step in &transaction.steps {
                    let count = step.values.len();
                    assert!(step.sql.contains(&format!("${count}")), "{}", step.sql);
                    assert!(!step.sql.contains(&format!("${}", count + 1)));
                }
                assert!(transaction.steps.last().unwrap().sql.starts_with("UPDATE"));
                let columns = transaction.effects.iter().map(|one| one.1);
                assert!(columns.max().unwrap() < SCHEMA.columns.len());
            }
        }
    }

    #[test]
    fn the_node_has_the_rows_that_are_drawn() {
        for count in [DISTRICTS, CUSTOMERS, ITEMS] {
            assert!(SCHEMA.fill.contains(&format!(" * {count}")), "{count}");
        }
    }
}
