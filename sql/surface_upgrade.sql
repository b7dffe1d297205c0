-- From each earlier version to the present one: the same objects as a fresh installation has.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS txn;
CREATE SCHEMA look;
CREATE VIEW look.objects AS
SELECT pg_describe_object(classid, objid, 0) AS object,
       CASE classid WHEN 'pg_proc'::regclass THEN pg_get_functiondef(objid)
                    WHEN 'pg_class'::regclass THEN pg_get_viewdef(objid) END AS definition,
       CASE classid WHEN 'pg_proc'::regclass THEN (SELECT proacl FROM pg_proc WHERE oid = objid)
                    WHEN 'pg_class'::regclass THEN (SELECT relacl FROM pg_class WHERE oid = objid) END AS privileges,
       (SELECT array_agg(description ORDER BY objsubid) FROM pg_description c
        WHERE (c.classoid, c.objoid) = (d.classid, d.objid)) AS comments
FROM pg_depend d WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'txn');
RESET client_min_messages;

CREATE EXTENSION txn;
CREATE TABLE look.fresh AS SELECT * FROM look.objects;
SELECT extversion FROM pg_extension WHERE extname = 'txn';
DROP EXTENSION txn;

CREATE EXTENSION txn VERSION '0.1.0';
SELECT count(*) AS views_of_the_old_version_answer FROM txn.stats;
SELECT count(*) >= 0 AS and_so_does FROM txn.hotspots;
SELECT txn.explain_row('pg_class', '1');
ALTER EXTENSION txn UPDATE;
SELECT extversion FROM pg_extension WHERE extname = 'txn';
TABLE look.fresh EXCEPT TABLE look.objects;
TABLE look.objects EXCEPT TABLE look.fresh;
SELECT count(*) FROM txn.explain_row('look.fresh', '1');

DROP EXTENSION txn;
CREATE EXTENSION txn VERSION '0.2.0';
SELECT count(*) AS views_of_the_old_version_answer FROM txn.stats;
SELECT count(*) >= 0 AS and_so_does FROM txn.hotspots;
CREATE VIEW look.of_users AS SELECT key, handover_us FROM txn.hotspots;
ALTER EXTENSION txn UPDATE;
SELECT extversion FROM pg_extension WHERE extname = 'txn';
TABLE look.fresh EXCEPT TABLE look.objects;
TABLE look.objects EXCEPT TABLE look.fresh;
SELECT count(*) >= 0 AS a_view_of_users_goes_on FROM look.of_users;

DROP VIEW look.of_users;
DROP EXTENSION txn;
CREATE EXTENSION txn VERSION '0.3.0';
SELECT count(*) AS views_of_the_old_version_answer FROM txn.stats;
SELECT count(*) >= 0 AS and_so_does FROM txn.waits;
CREATE VIEW look.of_waits AS SELECT pid, reason FROM txn.waits;
ALTER EXTENSION txn UPDATE;
SELECT extversion FROM pg_extension WHERE extname = 'txn';
TABLE look.fresh EXCEPT TABLE look.objects;
TABLE look.objects EXCEPT TABLE look.fresh;
SELECT count(*) >= 0 AS a_view_of_users_goes_on FROM look.of_waits;

DROP VIEW look.of_waits;
DROP EXTENSION txn;
CREATE EXTENSION txn VERSION '0.4.0';
SELECT count(*) AS views_of_the_old_version_answer FROM txn.stats;
SELECT count(*) >= 0 AS and_so_does FROM txn.lane;
ALTER EXTENSION txn UPDATE;
SELECT extversion FROM pg_extension WHERE extname = 'txn';
TABLE look.fresh EXCEPT TABLE look.objects;
TABLE look.objects EXCEPT TABLE look.fresh;

SET client_min_messages = warning;
DROP SCHEMA look CASCADE;
