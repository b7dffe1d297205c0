-- On a server that does not preload the library the extension says so at once, and what to do.
\set VERBOSITY default
DO $$
DECLARE
    code text;
    hint text;
BEGIN
    CREATE EXTENSION txn;
    RAISE NOTICE 'created';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE '%, the hint names the setting: %', code, hint LIKE '%shared_preload_libraries%';
END $$;
CREATE EXTENSION txn;
SELECT count(*) FROM pg_extension WHERE extname = 'txn';
SELECT count(*) FROM pg_namespace WHERE nspname = 'txn';
-- and the server goes on
SET txn.group_lock = on;
CREATE TABLE plain (id int PRIMARY KEY, val int);
INSERT INTO plain VALUES (1, 0);
UPDATE plain SET val = val + 1 WHERE id = 1 RETURNING val;
DROP TABLE plain;
