-- Why updates of a row follow each other, or do not.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
RESET client_min_messages;
SET txn.hot_threshold = 4;
CREATE TABLE plain (id int PRIMARY KEY, val int, note text);
CREATE INDEX ON plain (note);
INSERT INTO plain VALUES (1, 0);
SELECT * FROM txn.explain_row('plain', '1');
SET txn.queue_lock = on;
SELECT met, detail FROM txn.explain_row('plain', '1') WHERE condition = 'group locking is on';
SET txn.group_lock = on;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM txn.explain_row('plain', '1') WHERE NOT met;
COMMIT;

-- a hot row
SET txn.hot_threshold = 0;
BEGIN;
UPDATE plain SET val = 1 WHERE id = 1;
SELECT * FROM txn.explain_row('plain', '1');
COMMIT;

-- what the table does not allow
CREATE TABLE without_key (id int);
SELECT * FROM txn.explain_row('without_key', '1');
CREATE TEMP TABLE own (id int PRIMARY KEY);
SELECT * FROM txn.explain_row('own', '1') WHERE NOT met;
SELECT * FROM txn.explain_row('pg_class', '1') WHERE NOT met;
CREATE TABLE demanding (a char(3), b date, c int, PRIMARY KEY (a, b), UNIQUE (c) DEFERRABLE);
CREATE TRIGGER nothing BEFORE UPDATE ON demanding FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT * FROM txn.explain_row('demanding', 'x', '2026-11-21');

-- errors
SELECT * FROM txn.explain_row('demanding', 'x');
SELECT * FROM txn.explain_row('demanding', 'x', 'yesteryear');
SELECT * FROM txn.explain_row('demanding', 'x', NULL);
SELECT * FROM txn.explain_row('plain', '1', '2');
CREATE VIEW seen AS SELECT * FROM plain;
SELECT * FROM txn.explain_row('seen', '1');
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);
SELECT * FROM txn.explain_row('parts', '1');
SELECT * FROM txn.explain_row('nowhere', '1');
SELECT count(*) FROM txn.explain_row(NULL, '1');
CREATE ROLE regress_stranger;
SET ROLE regress_stranger;
SELECT * FROM txn.explain_row('plain', '1');
RESET ROLE;
DROP ROLE regress_stranger;
DROP TABLE plain, without_key, own, demanding, parts CASCADE;
