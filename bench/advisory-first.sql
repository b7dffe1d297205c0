-- What people do instead: queue at an advisory lock, so that nobody queues at the row.
\set row 1 + :spread * 100 * :client_id
BEGIN;
SELECT pg_advisory_xact_lock(:row);
UPDATE hot SET val = val + 1 WHERE id = :row;
COMMIT;
