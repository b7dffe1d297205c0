BEGIN;
\if :name >= 0
SELECT (array_agg(c_id ORDER BY c_first))[((count(*) + 1) / 2)::int] AS c
FROM (SELECT '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[]) AS p (part), customer
WHERE c_w_id = :w AND c_d_id = :d
  AND c_last = part[:name / 100 + 1] || part[:name / 10 % 10 + 1] || part[:name % 10 + 1] \gset
\endif
SELECT c_balance, c_first, c_middle, c_last FROM customer
WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;
SELECT o_id, o_entry_d, o_carrier_id FROM orders
WHERE o_w_id = :w AND o_d_id = :d AND o_c_id = :c ORDER BY o_id DESC LIMIT 1 \gset
SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o_id;
COMMIT;
