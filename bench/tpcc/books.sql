-- What only committed transactions change, since the load; what must not change is 0.
SELECT (SELECT sum(d_next_o_id - 3001)::bigint FROM district WHERE d_w_id > 0),
       (SELECT count(*) FROM orders WHERE o_w_id > 0)
           - (SELECT count(*) FROM customer WHERE c_w_id > 0),
       (SELECT sum(s_order_cnt)::bigint FROM stock WHERE s_w_id > 0)
           - (SELECT count(*) FROM order_line WHERE ol_w_id > 0 AND ol_o_id > 3000),
       (SELECT sum(s_ytd)::bigint FROM stock WHERE s_w_id > 0)
           - (SELECT coalesce(sum(ol_quantity), 0)::bigint
              FROM order_line WHERE ol_w_id > 0 AND ol_o_id > 3000),
       (SELECT count(*) FROM history) - (SELECT count(*) FROM customer WHERE c_w_id > 0),
       (SELECT sum(c_payment_cnt - 1)::bigint FROM customer WHERE c_w_id > 0),
       (SELECT sum(c_delivery_cnt)::bigint FROM customer WHERE c_w_id > 0)
           + (SELECT count(*) FROM skipped_delivery);
