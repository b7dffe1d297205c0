-- The consistency conditions 1 to 12 of TPC-C (clause 3.3.2): how many rows violate each.
-- Condition 11 holds as written before the first Delivery. Here the orders that are not new must
-- be the 2100 of the load and those that the district's customers have been delivered.
WITH line AS MATERIALIZED (
    SELECT ol_w_id AS w_id, ol_d_id AS d_id, ol_o_id AS o_id,
           count(*) AS lines, count(ol_delivery_d) AS delivered, sum(ol_amount) AS amount
    FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
), placed AS MATERIALIZED (
    SELECT w_id, d_id, o_id, o_c_id AS c_id, o_carrier_id, o_ol_cnt, coalesce(lines, 0) AS lines,
           coalesce(delivered, 0) AS delivered, coalesce(amount, 0) AS amount
    FROM line
         FULL JOIN (SELECT o_w_id AS w_id, o_d_id AS d_id, o_id, o_c_id, o_carrier_id, o_ol_cnt
                    FROM orders) AS o USING (w_id, d_id, o_id)
), of_district AS MATERIALIZED (
    SELECT d_w_id, d_id, d_ytd, d_next_o_id, last_order, orders, order_lines, last_new, first_new,
           coalesce(new_orders, 0) AS new_orders, lines, paid, delivered
    FROM district
         LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last_order, count(*) AS orders,
                           sum(o_ol_cnt) AS order_lines
                    FROM orders GROUP BY o_w_id, o_d_id) AS o ON (o_w_id, o_d_id) = (d_w_id, d_id)
         LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_new, min(no_o_id) AS first_new,
                           count(*) AS new_orders
                    FROM new_order GROUP BY no_w_id, no_d_id) AS n
             ON (no_w_id, no_d_id) = (d_w_id, d_id)
         LEFT JOIN (SELECT w_id AS l_w_id, d_id AS l_d_id, sum(lines) AS lines
                    FROM line GROUP BY w_id, d_id) AS l ON (l_w_id, l_d_id) = (d_w_id, d_id)
         LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid
                    FROM history GROUP BY h_w_id, h_d_id) AS h ON (h_w_id, h_d_id) = (d_w_id, d_id)
         LEFT JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS delivered
                    FROM customer GROUP BY c_w_id, c_d_id) AS c
             ON (c_w_id, c_d_id) = (d_w_id, d_id)
), of_customer AS MATERIALIZED (
    SELECT c_balance, c_ytd_payment, coalesce(bought, 0) AS bought, coalesce(paid, 0) AS paid
    FROM customer
         LEFT JOIN (SELECT w_id, d_id, c_id, sum(amount) AS bought
                    FROM placed WHERE delivered > 0 GROUP BY w_id, d_id, c_id) AS b
             ON (w_id, d_id, b.c_id) = (c_w_id, c_d_id, customer.c_id)
         LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid
                    FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h
             ON (h_c_w_id, h_c_d_id, h_c_id) = (c_w_id, c_d_id, customer.c_id)
)
SELECT (SELECT count(*) FROM warehouse
        WHERE w_ytd IS DISTINCT FROM (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)),
       (SELECT count(*) FROM of_district
        WHERE (d_next_o_id - 1) IS DISTINCT FROM last_order OR (d_next_o_id - 1) <> last_new),
       (SELECT count(*) FROM of_district WHERE last_new - first_new + 1 <> new_orders),
       (SELECT count(*) FROM of_district WHERE order_lines IS DISTINCT FROM lines),
       (SELECT count(*)
        FROM placed FULL JOIN new_order ON (no_w_id, no_d_id, no_o_id) = (w_id, d_id, o_id)
        WHERE (c_id IS NOT NULL AND o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)),
       (SELECT count(*) FROM placed WHERE o_ol_cnt IS DISTINCT FROM lines),
       (SELECT count(*) FROM placed
        WHERE delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE lines END),
       (SELECT count(*) FROM warehouse
        WHERE w_ytd IS DISTINCT FROM (SELECT sum(paid) FROM of_district WHERE d_w_id = w_id)),
       (SELECT count(*) FROM of_district WHERE d_ytd IS DISTINCT FROM paid),
       (SELECT count(*) FROM of_customer WHERE c_balance <> bought - paid),
       (SELECT count(*) FROM of_district
        WHERE orders - new_orders IS DISTINCT FROM 2100 + delivered),
       (SELECT count(*) FROM of_customer WHERE c_balance + c_ytd_payment <> bought);
