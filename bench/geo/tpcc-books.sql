-- What must grow by as much as the acknowledged transactions say; the last two must not.
SELECT
    (SELECT sum(w_ytd)::bigint FROM warehouse),
    (SELECT sum(d_ytd)::bigint FROM district),
    (SELECT coalesce(sum(h_amount), 0)::bigint FROM history),
    (SELECT sum(c_payment_cnt)::bigint FROM customer),
    (SELECT -sum(c_balance)::bigint FROM customer),
    (SELECT sum(d_next_o_id)::bigint FROM district),
    (SELECT count(*) FROM orders),
    (SELECT count(*) FROM new_order),
    (SELECT count(*) FROM order_line),
    (SELECT sum(s_order_cnt)::bigint FROM stock),
    (SELECT sum(s_ytd)::bigint FROM stock),
    (SELECT count(*) FROM district
     WHERE d_next_o_id <> (SELECT coalesce(max(o_id), 0) FROM orders WHERE o_d_id = d_id)),
    (SELECT count(*) FROM warehouse
     WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_id / 10 = w_id))
