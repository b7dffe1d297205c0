-- TPC-C's New-Order: ten lines of items that differ, from the client's own warehouse.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 259) % 3000
\set tenth :items / 10
\set item_1 random(1, :tenth)
\set item_2 random(:tenth + 1, 2 * :tenth)
\set item_3 random(2 * :tenth + 1, 3 * :tenth)
\set item_4 random(3 * :tenth + 1, 4 * :tenth)
\set item_5 random(4 * :tenth + 1, 5 * :tenth)
\set item_6 random(5 * :tenth + 1, 6 * :tenth)
\set item_7 random(6 * :tenth + 1, 7 * :tenth)
\set item_8 random(7 * :tenth + 1, 8 * :tenth)
\set item_9 random(8 * :tenth + 1, 9 * :tenth)
\set item_10 random(9 * :tenth + 1, 10 * :tenth)
\set quantity random(1, 10)
BEGIN;
SELECT w_tax, c_discount FROM warehouse, customer WHERE w_id = :w AND c_w_id = :w AND c_d_id = :d AND c_id = :c;
UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d RETURNING d_next_o_id - 1 AS o_id \gset
INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt) VALUES (:w, :d, :o_id, :c, 10);
INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (:w, :d, :o_id);
UPDATE stock SET s_quantity = s_quantity - :quantity + CASE WHEN s_quantity - :quantity < 10 THEN 91 ELSE 0 END,
                 s_ytd = s_ytd + :quantity, s_order_cnt = s_order_cnt + 1
WHERE s_w_id = :w
  AND s_i_id IN (:item_1, :item_2, :item_3, :item_4, :item_5, :item_6, :item_7, :item_8, :item_9, :item_10);
INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_quantity, ol_amount)
SELECT :w, :d, :o_id, number, i_id, :quantity, :quantity * i_price
FROM unnest(ARRAY[:item_1, :item_2, :item_3, :item_4, :item_5, :item_6, :item_7, :item_8, :item_9, :item_10]::int[])
     WITH ORDINALITY AS line (i, number)
     JOIN item ON i_id = i;
COMMIT;
