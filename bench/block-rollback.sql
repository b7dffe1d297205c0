-- The same transaction as in block.sql, which then thinks better of it.
\set row 1 + :spread * 100 * :client_id
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :row;
ROLLBACK;
