-- Settings of a table: txn.set_table, txn.tables, the label behind them, errors, privileges, partitions.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
RESET client_min_messages;
CREATE TABLE account (id int PRIMARY KEY, val int NOT NULL);
CREATE TABLE other (id int PRIMARY KEY, val int NOT NULL);
INSERT INTO account VALUES (1, 0), (2, 0);
INSERT INTO other VALUES (1, 0);
SELECT txn.set_table('account', 'group', hot_threshold => 0);
TABLE txn.tables;
SELECT provider, label FROM pg_seclabel WHERE objoid = 'account'::regclass;
SELECT txn.set_table('account', 'queue', 7, 8, 'immediate');
TABLE txn.tables;
SELECT label FROM pg_seclabel WHERE objoid = 'account'::regclass;
-- what is not named is the session's again
SELECT txn.set_table('account', follower_reads => 'wait');
TABLE txn.tables;
SELECT txn.set_table('account');
TABLE txn.tables;
SECURITY LABEL FOR txn ON TABLE account IS 'group_size=3,mode = Off';
TABLE txn.tables;
SECURITY LABEL FOR txn ON TABLE account IS NULL;
TABLE txn.tables;

-- every setting of the session is off: rows of this table become hot, and of no other
SHOW txn.group_lock;
SHOW txn.queue_lock;
SELECT txn.set_table('account', 'group', hot_threshold => 0);
UPDATE account SET val = val + 1 WHERE id = 1;
UPDATE other SET val = val + 1 WHERE id = 1;
SELECT relation, key, mode, updates FROM txn.hotspots WHERE relation IN ('account'::regclass, 'other'::regclass);
SELECT condition, met, detail FROM txn.explain_row('account', '2');
SELECT condition, met, detail FROM txn.explain_row('other', '1');
-- a stricter transaction queues for the row, and follows nobody
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE account SET val = val + 1 WHERE id = 2;
COMMIT;
SELECT key FROM txn.hotspots WHERE relation = 'account'::regclass ORDER BY key;
-- in a function, and by a foreign key's check
CREATE FUNCTION bump() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    found int;
BEGIN
    UPDATE account SET val = val + 1 WHERE id = 2 RETURNING val INTO found;
    RETURN found;
END $$;
SELECT bump();
SELECT key, updates FROM txn.hotspots WHERE relation = 'account'::regclass ORDER BY key;
CREATE TABLE ledger (id int REFERENCES account, amount int);
INSERT INTO ledger VALUES (1, 5);
BEGIN;
UPDATE account SET val = val + 5 WHERE id = 1;
INSERT INTO ledger VALUES (1, 5);
INSERT INTO ledger VALUES (3, 5);
ROLLBACK;
DROP TABLE ledger;
-- off for the table, on in the session
SET txn.group_lock = on;
SET txn.hot_threshold = 0;
SELECT txn.set_table('other', 'off');
UPDATE other SET val = val + 1 WHERE id = 1;
SELECT count(*) FROM txn.hotspots WHERE relation = 'other'::regclass;
SELECT detail FROM txn.explain_row('other', '1') WHERE condition = 'group locking is on';
SELECT txn.set_table('other', 'queue');
UPDATE other SET val = val + 1 WHERE id = 1;
SELECT mode FROM txn.hotspots WHERE relation = 'other'::regclass;
SELECT met, detail FROM txn.explain_row('other', '1') WHERE condition = 'group locking is on';
RESET txn.hot_threshold;
RESET txn.group_lock;

-- a change is part of its transaction
BEGIN;
SELECT txn.set_table('account', 'off');
SELECT detail FROM txn.explain_row('account', '1') WHERE condition = 'settings in force';
ROLLBACK;
SELECT detail FROM txn.explain_row('account', '1') WHERE condition = 'settings in force';
BEGIN;
SAVEPOINT before;
SELECT txn.set_table('account', 'off');
ROLLBACK TO before;
SELECT detail FROM txn.explain_row('account', '1') WHERE condition = 'settings in force';
COMMIT;

-- it follows the table's name, and goes with the table
ALTER TABLE account RENAME TO "My account";
CREATE SCHEMA "Else where";
ALTER TABLE "My account" SET SCHEMA "Else where";
SELECT * FROM txn.tables ORDER BY relation::text;
SELECT txn.set_table('"Else where"."My account"', 'group', 1);
SELECT * FROM txn.tables ORDER BY relation::text;
DROP TABLE other;
SELECT * FROM txn.tables;

-- partitions have their own, then their parents', then the session's
CREATE TABLE parts (id int PRIMARY KEY, val int) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (id);
CREATE TABLE highest PARTITION OF high FOR VALUES FROM (50) TO (100);
CREATE FUNCTION in_force(regclass, text) RETURNS text LANGUAGE sql
RETURN (SELECT detail FROM txn.explain_row($1, $2) WHERE condition = 'settings in force');
SELECT in_force('low', '1'), in_force('highest', '60');
SELECT txn.set_table('parts', 'group', 0, 9);
SELECT txn.set_table('high', group_size => 7);
SELECT txn.set_table('highest', hot_threshold => 3);
SELECT in_force('low', '1');
SELECT in_force('highest', '60');
SELECT txn.set_table('parts', 'queue');
SELECT in_force('highest', '60');
INSERT INTO parts VALUES (1, 0);
UPDATE parts SET val = 1 WHERE id = 1;
SELECT txn.set_table('parts', 'group', 0);
UPDATE parts SET val = 1 WHERE id = 1;
SELECT relation, mode FROM txn.hotspots WHERE relation = 'low'::regclass;
ALTER TABLE parts DETACH PARTITION high;
SELECT in_force('highest', '60');
ALTER TABLE parts ATTACH PARTITION high FOR VALUES FROM (10) TO (100);
SELECT in_force('highest', '60');

-- errors
\set SHOW_CONTEXT never
SELECT txn.set_table(NULL, 'group');
\echo :SQLSTATE
SELECT txn.set_table('nowhere', 'group');
\echo :SQLSTATE
SELECT txn.set_table('parts', 'fast');
\echo :SQLSTATE
SELECT txn.set_table('parts', hot_threshold => -1);
\echo :SQLSTATE
SELECT txn.set_table('parts', group_size => 0);
\echo :SQLSTATE
SELECT txn.set_table('parts', follower_reads => 'never');
\echo :SQLSTATE
SECURITY LABEL FOR txn ON TABLE parts IS 'mode=group, hot_threshold=many';
\echo :SQLSTATE
SECURITY LABEL FOR txn ON TABLE parts IS 'mode=group, mode=group';
\echo :SQLSTATE
SECURITY LABEL FOR txn ON TABLE parts IS 'colour=red';
\echo :SQLSTATE
SECURITY LABEL FOR txn ON TABLE parts IS 'group';
\echo :SQLSTATE
SECURITY LABEL FOR txn ON TABLE parts IS '';
\echo :SQLSTATE
SECURITY LABEL FOR txn ON COLUMN parts.id IS 'mode=group';
\echo :SQLSTATE
SECURITY LABEL FOR txn ON SCHEMA public IS 'mode=group';
\echo :SQLSTATE
CREATE TEMP TABLE own (id int PRIMARY KEY);
SELECT txn.set_table('own', 'group');
\echo :SQLSTATE
SELECT txn.set_table('pg_class', 'group');
\echo :SQLSTATE
CREATE VIEW seen AS TABLE parts;
SELECT txn.set_table('seen', 'group');
\echo :SQLSTATE
SECURITY LABEL FOR txn ON VIEW seen IS 'mode=group';
\echo :SQLSTATE
CREATE SEQUENCE numbers;
SECURITY LABEL FOR txn ON SEQUENCE numbers IS 'mode=group';
\echo :SQLSTATE
-- the owner's and nobody else's, for whom the view is readable
CREATE ROLE regress_user;
GRANT ALL ON parts TO regress_user;
SET ROLE regress_user;
SELECT txn.set_table('parts', 'group');
\echo :SQLSTATE
SELECT * FROM txn.tables WHERE relation = 'parts'::regclass;
RESET ROLE;
GRANT CREATE ON SCHEMA public TO regress_user;
ALTER TABLE parts OWNER TO regress_user;
SET ROLE regress_user;
SELECT txn.set_table('parts', 'off');
RESET ROLE;
SELECT relation, mode FROM txn.tables WHERE relation = 'parts'::regclass;
-- removing one that is not there is no error
SECURITY LABEL FOR txn ON TABLE own IS NULL;
SECURITY LABEL FOR txn ON SCHEMA public IS NULL;

-- without the extension the settings are still in force
DROP FUNCTION bump, in_force;
DROP EXTENSION txn;
SELECT objoid::regclass, label FROM pg_seclabel WHERE provider = 'txn' ORDER BY objoid::regclass::text;
SECURITY LABEL FOR txn ON TABLE parts IS NULL;
SET client_min_messages = warning;
DROP TABLE parts CASCADE;
DROP SCHEMA "Else where" CASCADE;
DROP SEQUENCE numbers;
REVOKE CREATE ON SCHEMA public FROM regress_user;
DROP ROLE regress_user;
CREATE EXTENSION txn;
TABLE txn.tables;
