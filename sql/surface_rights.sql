-- Keys and bounds are shown to those who could read them through the table: with SELECT on it or on the columns of its key, and where row
-- security hides nothing from them.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
CREATE ROLE regress_none;
CREATE ROLE regress_table;
CREATE ROLE regress_key;
CREATE ROLE regress_value;
CREATE ROLE regress_exempt BYPASSRLS;
CREATE ROLE regress_owner;
GRANT CREATE ON SCHEMA public TO regress_owner;
RESET client_min_messages;
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

CREATE TABLE open_hot (a int, b text, val int, PRIMARY KEY (a, b));
CREATE TABLE row_hot (email text PRIMARY KEY, tenant name, val int);
INSERT INTO open_hot VALUES (1, 'x', 0);
INSERT INTO row_hot VALUES ('of_others@example', 'other', 0), ('own@example', 'regress_table', 0);
GRANT SELECT ON open_hot, row_hot TO regress_table, regress_exempt;
GRANT SELECT (a, b) ON open_hot TO regress_key;
GRANT SELECT (a, val) ON open_hot TO regress_value;
ALTER TABLE row_hot OWNER TO regress_owner;
ALTER TABLE row_hot ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON row_hot USING (tenant = current_user);
UPDATE open_hot SET val = val + 1 WHERE a = 1 AND b = 'x';
UPDATE row_hot SET val = val + 1 WHERE email = 'of_others@example';

-- one line for each role: the keys of the two hot rows, and what it hears of them one by one
CREATE FUNCTION seen(role name) RETURNS TABLE (open_key text, row_key text, open_hot text, row_hot text)
LANGUAGE plpgsql AS
$$
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    SELECT key INTO open_key FROM txn.hotspots WHERE relation = 'open_hot'::regclass;
    SELECT key INTO row_key FROM txn.hotspots WHERE relation = 'row_hot'::regclass;
    BEGIN
        SELECT coalesce(met::text, detail) INTO open_hot FROM txn.explain_row('open_hot', '1', 'x')
        WHERE condition = 'the row is hot';
    EXCEPTION WHEN insufficient_privilege THEN open_hot := SQLERRM;
    END;
    BEGIN
        SELECT coalesce(met::text, detail) INTO row_hot FROM txn.explain_row('row_hot', 'of_others@example')
        WHERE condition = 'the row is hot';
    EXCEPTION WHEN insufficient_privilege THEN row_hot := SQLERRM;
    END;
    RESET ROLE;
    RETURN NEXT;
END
$$;
\pset null '(null)'
SELECT role, open_key, row_key FROM unnest('{regress_none,regress_table,regress_key,regress_value,regress_exempt,regress_owner}'::name[])
WITH ORDINALITY AS r (role, n), seen(role) ORDER BY n;
SELECT role, open_hot, row_hot FROM unnest('{regress_none,regress_table,regress_key,regress_value,regress_exempt,regress_owner}'::name[])
WITH ORDINALITY AS r (role, n), seen(role) ORDER BY n;

-- forced, row security hides rows from the table's owner, too
ALTER TABLE row_hot FORCE ROW LEVEL SECURITY;
SELECT row_key, row_hot FROM seen('regress_owner');

-- log_hotspots writes to the server log, and not to the client whose statement made the row hot
INSERT INTO open_hot VALUES (2, 'y', 0);
SET txn.log_hotspots = on;
SET client_min_messages = log;
UPDATE open_hot SET val = val + 1 WHERE a = 2 AND b = 'y';
RESET client_min_messages;
RESET txn.log_hotspots;

-- ranges and predicates
CREATE TABLE open_ranges (id int PRIMARY KEY, val int) USING txn_heap;
CREATE TABLE row_ranges (id int PRIMARY KEY, tenant name) USING txn_heap;
INSERT INTO open_ranges VALUES (1, 0);
INSERT INTO row_ranges VALUES (1, 'other');
GRANT SELECT ON open_ranges, row_ranges TO regress_table, regress_exempt;
GRANT SELECT (id) ON open_ranges TO regress_key;
GRANT SELECT (val) ON open_ranges TO regress_value;
ALTER TABLE row_ranges ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON row_ranges USING (tenant = current_user);
CREATE FUNCTION look() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS
    'SELECT count(*) FROM open_ranges, row_ranges WHERE open_ranges.id = 1 AND row_ranges.id = 1';
CREATE FUNCTION bounds(role name) RETURNS TABLE (open_range bool, row_range bool, open_read text, row_read text)
LANGUAGE plpgsql AS
$$
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    SELECT bool_or(range IS NOT NULL AND low IS NOT NULL) INTO open_range FROM txn.ranges WHERE relation = 'open_ranges'::regclass;
    SELECT bool_or(range IS NOT NULL OR low IS NOT NULL OR high IS NOT NULL) INTO row_range FROM txn.ranges
    WHERE relation = 'row_ranges'::regclass;
    PERFORM look();
    SELECT string_agg(concat_ws('-', low, high), ', ') INTO open_read FROM txn.my_predicates
    WHERE relation = 'open_ranges'::regclass AND NOT whole;
    SELECT string_agg(concat_ws('-', low, high), ', ') INTO row_read FROM txn.my_predicates
    WHERE relation = 'row_ranges'::regclass AND NOT whole;
    RESET ROLE;
    RETURN NEXT;
END
$$;
SET txn.range_occ = on;
SET enable_seqscan = off;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT role, b.* FROM unnest('{regress_none,regress_table,regress_key,regress_value,regress_exempt}'::name[])
WITH ORDINALITY AS r (role, n), bounds(role) AS b ORDER BY n;
COMMIT;
RESET enable_seqscan;
RESET txn.range_occ;

-- what one role makes hot with its own threshold is not hot for others, unless the table's owner says so
CREATE TABLE shared_hot (id int PRIMARY KEY, val int);
INSERT INTO shared_hot VALUES (1, 0);
GRANT ALL ON shared_hot TO regress_table, regress_key;
SET SESSION AUTHORIZATION regress_table;
UPDATE shared_hot SET val = val + 1 WHERE id = 1;
SELECT updates FROM txn.hotspots WHERE relation = 'shared_hot'::regclass;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_key;
SET txn.hot_threshold = 4;
UPDATE shared_hot SET val = val + 1 WHERE id = 1;
SELECT updates FROM txn.hotspots WHERE relation = 'shared_hot'::regclass;
SELECT met, detail FROM txn.explain_row('shared_hot', '1') WHERE condition = 'the row is hot';
SET txn.hot_threshold = 0;
UPDATE shared_hot SET val = val + 1 WHERE id = 1;
SELECT updates FROM txn.hotspots WHERE relation = 'shared_hot'::regclass;
RESET SESSION AUTHORIZATION;
SELECT txn.set_table('shared_hot', hot_threshold => 0);
SET SESSION AUTHORIZATION regress_key;
SET txn.hot_threshold = 4;
UPDATE shared_hot SET val = val + 1 WHERE id = 1;
SELECT updates FROM txn.hotspots WHERE relation = 'shared_hot'::regclass;
RESET SESSION AUTHORIZATION;

-- tables that output plugins read as catalogs have no hot rows
SET txn.hot_threshold = 0;
CREATE TABLE plugin_hot (id int PRIMARY KEY, val int) WITH (user_catalog_table);
INSERT INTO plugin_hot VALUES (1, 0);
UPDATE plugin_hot SET val = val + 1 WHERE id = 1;
SELECT count(*) FROM txn.hotspots WHERE relation = 'plugin_hot'::regclass;
SELECT met, detail FROM txn.explain_row('plugin_hot', '1') WHERE condition = 'the table has a key';
ALTER TABLE plugin_hot SET (user_catalog_table = false);
UPDATE plugin_hot SET val = val + 1 WHERE id = 1;
SELECT count(*) FROM txn.hotspots WHERE relation = 'plugin_hot'::regclass;

DROP FUNCTION seen(name), bounds(name), look();
DROP TABLE open_hot, row_hot, open_ranges, row_ranges, shared_hot, plugin_hot;
REVOKE CREATE ON SCHEMA public FROM regress_owner;
DROP ROLE regress_none, regress_table, regress_key, regress_value, regress_exempt, regress_owner;
