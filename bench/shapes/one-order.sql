-- Two hot rows, always in the same order.
\set one 1 + :spread * 100 * :client_id
\set two :one + 50
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :one;
UPDATE hot SET val = val + 1 WHERE id = :two;
COMMIT;
