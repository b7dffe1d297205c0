-- What people do instead: lock the row, then update it.
\set row 1 + :spread * 100 * :client_id
BEGIN;
SELECT val FROM hot WHERE id = :row FOR UPDATE;
UPDATE hot SET val = val + 1 WHERE id = :row;
COMMIT;
