\if :line < :lines
\set line :line + 1
\set item 1 + ((random(0, 8191) | random(1, 100000)) + 7911) % 100000
\set far :warehouses > 1 AND random(1, 100) = 1
\set supply CASE WHEN :far THEN 1 + (:w + random(0, :warehouses - 2)) % :warehouses ELSE :w END
\set remote CASE WHEN :far THEN 1 ELSE 0 END
\set local :local * (1 - :remote)
\set quantity random(1, 10)
SELECT i_price FROM item WHERE i_id = :item \gset
UPDATE stock
SET s_quantity = s_quantity - :quantity + CASE WHEN s_quantity < :quantity + 10 THEN 91 ELSE 0 END,
    s_ytd = s_ytd + :quantity, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + :remote
WHERE s_w_id = :supply AND s_i_id = :item
RETURNING (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05,
                 s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10])[:d] AS info \gset
INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id,
                        ol_quantity, ol_amount, ol_dist_info)
VALUES (:w, :d, :o_id, :line, :item, :supply, :quantity, :quantity::int * :i_price::numeric, :info);
\endif
