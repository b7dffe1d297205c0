-- Two hot rows, in the one order or the other. (Spread: two rows of the client's own.)
\set one 1 + :spread * 100 * :client_id
\set first random(0, 1)
\set a :one + 50 * :first
\set b :one + 50 * (1 - :first)
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :a;
UPDATE hot SET val = val + 1 WHERE id = :b;
COMMIT;
