-- The usual counter: insert it, or add to it.
\set row 1 + :spread * 100 * :client_id
INSERT INTO hot (id, val) VALUES (:row, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val;
