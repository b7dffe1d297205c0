-- A savepoint around the UPDATE: nested atomic blocks of ORMs, drivers that go back to before a failed statement.
\set row 1 + :spread * 100 * :client_id
BEGIN;
SAVEPOINT s;
UPDATE hot SET val = val + 1 WHERE id = :row;
RELEASE SAVEPOINT s;
COMMIT;
