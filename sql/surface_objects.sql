-- What the extension puts into a database, and that each object says what it is.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
RESET client_min_messages;
SELECT extname, extversion, nspname, extrelocatable FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
WHERE extname = 'txn';
SELECT pg_describe_object(classid, objid, 0) AS object
FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'txn')
    AND pg_describe_object(classid, objid, 0) NOT LIKE 'type %'
ORDER BY 1;

-- without a comment: nothing
SELECT pg_describe_object(d.classid, d.objid, 0) AS uncommented
FROM pg_depend d LEFT JOIN pg_description c ON (c.classoid, c.objoid, c.objsubid) = (d.classid, d.objid, 0)
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND description IS NULL
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'txn')
    AND d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass)
ORDER BY 1;
SELECT attrelid::regclass || '.' || attname AS uncommented
FROM pg_attribute
WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'txn'::regnamespace AND relkind IN ('r', 'v'))
    AND attnum > 0 AND col_description(attrelid, attnum) IS NULL
ORDER BY attrelid, attnum;
SELECT obj_description('txn'::regnamespace) IS NOT NULL AS schema_commented,
       obj_description((SELECT oid FROM pg_extension WHERE extname = 'txn'), 'pg_extension') AS extension;

-- the columns of the views
SELECT attrelid::regclass AS view, attname AS column, atttypid::regtype AS type
FROM pg_attribute
WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'txn'::regnamespace AND relkind IN ('r', 'v')) AND attnum > 0
ORDER BY attrelid::regclass::text, attnum;

-- the functions: nothing in a function of the extension may be called with rights of its owner
SELECT proname, prosecdef, provolatile, proparallel, proisstrict FROM pg_proc
WHERE pronamespace = 'txn'::regnamespace ORDER BY proname;
