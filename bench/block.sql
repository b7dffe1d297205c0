-- One update in a transaction block.
\set row 1 + :spread * 100 * :client_id
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :row;
COMMIT;
