INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
VALUES (:w, :d, :o_id, :c, now(), :lines, :local);
INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (:w, :d, :o_id);
COMMIT;
