\set d :d + 1
\set o_id 0
SELECT no_o_id AS o_id FROM new_order WHERE no_w_id = :w AND no_d_id = :d
ORDER BY no_o_id LIMIT 1 FOR UPDATE \aset
\if :o_id > 0
DELETE FROM new_order WHERE no_w_id = :w AND no_d_id = :d AND no_o_id = :o_id;
UPDATE orders SET o_carrier_id = :carrier WHERE o_w_id = :w AND o_d_id = :d AND o_id = :o_id
RETURNING o_c_id AS c \gset
UPDATE order_line SET ol_delivery_d = now()
WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o_id;
SELECT sum(ol_amount) AS total FROM order_line
WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o_id \gset
UPDATE customer SET c_balance = c_balance + :total, c_delivery_cnt = c_delivery_cnt + 1
WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;
\else
INSERT INTO skipped_delivery VALUES (:w, :d);
\endif
