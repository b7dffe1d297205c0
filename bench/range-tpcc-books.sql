-- What only committed transactions change, and what must stay zero.
SELECT (SELECT sum(d_next_o_id - 1)::bigint FROM district WHERE d_w_id > 0),
       (SELECT count(*) FROM orders WHERE o_w_id > 0),
       (SELECT count(*) FROM new_order WHERE no_w_id > 0),
       (SELECT count(*) FROM order_line WHERE ol_w_id > 0),
       (SELECT sum(s_order_cnt)::bigint FROM stock WHERE s_w_id > 0),
       (SELECT count(*) FROM history),
       (SELECT sum(c_payment_cnt)::bigint FROM customer WHERE c_w_id > 0),
       (SELECT sum(c_rewards)::bigint FROM customer WHERE c_w_id > 0),
       (SELECT sum(c_balance + c_ytd_payment + 1000 * c_rewards)::bigint FROM customer WHERE c_w_id > 0),
       (SELECT sum(w_ytd)::bigint FROM warehouse WHERE w_id > 0) - (SELECT coalesce(sum(h_amount), 0)::bigint FROM history),
       (SELECT count(*)
        FROM (SELECT w_id FROM warehouse JOIN district ON d_w_id = w_id
              GROUP BY w_id, w_ytd HAVING w_ytd <> sum(d_ytd)) AS different),
       (SELECT count(*)
        FROM district
             LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last, count(*) AS orders
                        FROM orders GROUP BY o_w_id, o_d_id) AS own ON (o_w_id, o_d_id) = (d_w_id, d_id)
        WHERE (d_next_o_id - 1, d_next_o_id - 1) <> (coalesce(last, 0), coalesce(orders, 0)));
