-- A row that all of these clients fight over for a quarter of a second, and then the next one: rows become hot and cool down.
SELECT (extract(epoch FROM clock_timestamp()) * 4)::bigint % 10000 AS turn \gset
\set row 1001 + :turn
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :row;
\sleep 1 ms
COMMIT;
