\set line 0
\set local 1
BEGIN;
SELECT w_tax, c_discount FROM warehouse, customer
WHERE w_id = :w AND c_w_id = :w AND c_d_id = :d AND c_id = :c;
UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d
RETURNING d_next_o_id - 1 AS o_id, d_tax \gset
