-- The row is locked and read before it is updated.
\set row 1 + :spread * 100 * :client_id
BEGIN;
SELECT val FROM hot WHERE id = :row FOR UPDATE;
UPDATE hot SET val = val + 1 WHERE id = :row;
INSERT INTO ledger (hot_id, amount) VALUES (:row, 1);
COMMIT;
