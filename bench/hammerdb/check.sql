-- TPC-C's consistency conditions (clause 3.3.2) on HammerDB's tables: what is violated how often.
-- HammerDB numbers a district's first new order 3002, one more than TPC-C, so that 3001 is missing:
-- conditions 2 and 3 allow for it. Condition 11 counts what condition 5 compares row by row.
-- Conditions 10 and 12 do not hold in HammerDB's schema, on any server: Payment writes back a
-- balance that it has read before, and nothing counts c_ytd_payment.
WITH district_orders AS (
    SELECT o_w_id, o_d_id, count(*) AS orders, max(o_id) AS newest, sum(o_ol_cnt) AS lines
    FROM orders GROUP BY o_w_id, o_d_id
), district_new AS (
    SELECT no_w_id, no_d_id, count(*) AS waiting, min(no_o_id) AS oldest, max(no_o_id) AS newest
    FROM new_order GROUP BY no_w_id, no_d_id
), district_lines AS (
    SELECT ol_w_id, ol_d_id, count(*) AS lines FROM order_line GROUP BY ol_w_id, ol_d_id
), order_lines AS (
    SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines, count(ol_delivery_d) AS delivered
    FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
), paid AS (
    SELECT h_w_id, h_d_id, sum(h_amount) AS amount FROM history GROUP BY h_w_id, h_d_id
)
SELECT '1: w_ytd is the sum of d_ytd', count(*)
FROM warehouse
WHERE w_ytd IS DISTINCT FROM (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)
UNION ALL
SELECT '2: d_next_o_id is that of the newest order, and there is none without it', count(*)
FROM district
LEFT JOIN district_orders ON o_w_id = d_w_id AND o_d_id = d_id
LEFT JOIN district_new ON no_w_id = d_w_id AND no_d_id = d_id
WHERE orders IS DISTINCT FROM d_next_o_id - 1
   OR district_orders.newest IS DISTINCT FROM d_next_o_id - (d_next_o_id = 3001)::int
   OR district_new.newest <> district_orders.newest
UNION ALL
SELECT '3: new orders have no gaps', count(*)
FROM district_new
WHERE waiting <> newest - oldest + 1 - (oldest < 3001 AND newest > 3001)::int
UNION ALL
SELECT '4: the sum of o_ol_cnt is the number of order lines', count(*)
FROM district_orders FULL JOIN district_lines ON ol_w_id = o_w_id AND ol_d_id = o_d_id
WHERE district_orders.lines IS DISTINCT FROM district_lines.lines
UNION ALL
SELECT '5: orders without a carrier are the new orders', count(*)
FROM (SELECT * FROM orders WHERE o_carrier_id IS NULL) AS waiting
FULL JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
WHERE o_id IS NULL OR no_o_id IS NULL
UNION ALL
SELECT '6: o_ol_cnt is the number of the order''s lines', count(*)
FROM orders
FULL JOIN order_lines ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE o_ol_cnt IS DISTINCT FROM lines
UNION ALL
SELECT '7: lines are delivered with their order', count(*)
FROM orders
JOIN order_lines ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE lines END
UNION ALL
SELECT '8: w_ytd is the sum of h_amount', count(*)
FROM warehouse
WHERE w_ytd IS DISTINCT FROM (SELECT sum(amount) FROM paid WHERE h_w_id = w_id)
UNION ALL
SELECT '9: d_ytd is the sum of h_amount', count(*)
FROM district LEFT JOIN paid ON h_w_id = d_w_id AND h_d_id = d_id
WHERE d_ytd IS DISTINCT FROM amount
ORDER BY 1;
