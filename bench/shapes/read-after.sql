-- Another table is read after the UPDATE.
\set row 1 + :spread * 100 * :client_id
\set rate random(1, 1000)
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :row;
SELECT value FROM rate WHERE id = :rate;
COMMIT;
