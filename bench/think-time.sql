-- The client thinks for 5 ms between the update and the commit.
\set row 1 + :spread * 100 * :client_id
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :row;
\sleep 5 ms
COMMIT;
