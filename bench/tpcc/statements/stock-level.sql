BEGIN;
SELECT d_next_o_id FROM district WHERE d_w_id = :w AND d_id = :d \gset
SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_i_id = ol_i_id
WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id >= :d_next_o_id - 20 AND ol_o_id < :d_next_o_id
  AND s_w_id = :w AND s_quantity < :threshold;
COMMIT;
