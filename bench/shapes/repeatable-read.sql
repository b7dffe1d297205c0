-- Frameworks that run everything at REPEATABLE READ.
\set row 1 + :spread * 100 * :client_id
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE hot SET val = val + 1 WHERE id = :row;
COMMIT;
