-- What a validated transaction counts as read, kind of scan by kind of scan, and what it may not do.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
RESET client_min_messages;
-- what the transaction has read so far; NULL: no bound
CREATE FUNCTION predicates() RETURNS TABLE (relation regclass, low text, high text, reason text)
LANGUAGE sql AS 'SELECT relation, low, high, reason FROM txn.my_predicates ORDER BY relation::text, low NULLS FIRST';
CREATE TABLE num (id int, val int, tag text, PRIMARY KEY (id)) USING txn_heap;
INSERT INTO num SELECT n, n, 'tag ' || n % 7 FROM generate_series(1, 5000) n;
CREATE INDEX num_desc ON num (id DESC);
CREATE INDEX num_hash ON num USING hash (id);
CREATE INDEX num_brin ON num USING brin (id);
CREATE INDEX num_tag ON num (tag, id);
VACUUM ANALYZE num;
SET txn.range_occ = on;
SET default_transaction_isolation = 'repeatable read';

-- not validated: nothing
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT count(*) FROM num WHERE id < 10;
SELECT * FROM predicates();
COMMIT;

-- index scans
SET enable_seqscan = off;
SET enable_bitmapscan = off;
BEGIN;
SELECT sum(val) FROM num WHERE id BETWEEN 10 AND 20;
SELECT sum(val) FROM num WHERE id > 20 AND id <= 25;
SELECT sum(val) FROM num WHERE id IN (40, 42, NULL);
SELECT sum(val) FROM num WHERE id = ANY ('{}');
SELECT sum(val) FROM num WHERE id = 50::bigint AND id > 3::smallint;
SELECT sum(val) FROM num WHERE id > 70 AND id < 60;
SELECT sum(val) FROM num WHERE id = NULL;
SELECT sum(val) FROM num WHERE id > 3000000000;
SELECT * FROM predicates();
COMMIT;
-- an end that is open, backwards, with a limit
BEGIN;
SELECT id FROM num WHERE id > 4990 ORDER BY id DESC LIMIT 1;
SELECT * FROM predicates();
SELECT max(id) FROM num;
SELECT * FROM predicates();
COMMIT;
-- only the index
BEGIN;
SELECT count(id) FROM num WHERE id < 100;
SELECT * FROM predicates();
COMMIT;
-- rows are compared
BEGIN;
SELECT sum(val) FROM num WHERE (id, val) >= (4999, 0);
SELECT * FROM predicates();
COMMIT;
-- an index that begins with another column
BEGIN;
SELECT count(*) FROM num WHERE tag = 'tag 3' AND id BETWEEN 200 AND 210;
SELECT * FROM predicates();
COMMIT;
BEGIN;
SELECT count(*) FROM num WHERE tag = 'tag 3';
SELECT * FROM predicates();
COMMIT;
-- joins by index: a key for each row
SET enable_hashjoin = off;
SET enable_mergejoin = off;
BEGIN;
SELECT sum(num.val) FROM (VALUES (7), (9), (6000)) AS wanted (id) JOIN num USING (id);
SELECT * FROM predicates();
COMMIT;
RESET enable_hashjoin;
RESET enable_mergejoin;

-- bitmaps
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
BEGIN;
SELECT sum(val) FROM num WHERE id BETWEEN 10 AND 20 OR id IN (5, 3000);
SELECT * FROM predicates();
COMMIT;
RESET enable_indexscan;
RESET enable_indexonlyscan;
DROP INDEX num_hash;
SET enable_bitmapscan = off;

-- descending, hashed, and other kinds of index
ALTER TABLE num REPLICA IDENTITY USING INDEX num_pkey;
CREATE TABLE other (id int NOT NULL, val int) USING txn_heap;
CREATE UNIQUE INDEX other_key ON other (id DESC);
ALTER TABLE other REPLICA IDENTITY USING INDEX other_key;
INSERT INTO other SELECT n, n FROM generate_series(1, 5000) n;
BEGIN;
SELECT sum(val) FROM other WHERE id > 10 AND id < 15;
SELECT sum(val) FROM other WHERE id <= 5;
SELECT sum(val) FROM other WHERE id <= 5;
SELECT * FROM predicates();
COMMIT;
DROP INDEX other_key;
BEGIN;
SELECT sum(val) FROM other WHERE id > 10 AND id < 15;
SELECT * FROM predicates();
COMMIT;
CREATE INDEX other_hash ON other USING hash (id);
ALTER TABLE other REPLICA IDENTITY DEFAULT;
ALTER TABLE other ADD PRIMARY KEY (id, val);
BEGIN;
SELECT sum(val) FROM other WHERE id = 77;
SELECT * FROM predicates();
COMMIT;
DROP TABLE other;
CREATE TABLE brin (id int PRIMARY KEY, val int) USING txn_heap;
INSERT INTO brin SELECT n, n FROM generate_series(1, 5000) n;
CREATE INDEX brin_brin ON brin USING brin (id);
SET enable_bitmapscan = on;
BEGIN;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_indexonlyscan = off;
SELECT sum(val) FROM brin WHERE id < 10;
SELECT * FROM predicates();
COMMIT;
DROP TABLE brin;
SET enable_bitmapscan = off;

-- whole tables
RESET enable_seqscan;
BEGIN;
SELECT count(*) FROM num WHERE val = 3;
SELECT * FROM predicates();
COMMIT;
BEGIN;
SELECT count(*) > 0 FROM num TABLESAMPLE bernoulli (50);
SELECT * FROM predicates();
COMMIT;
BEGIN;
SELECT count(*) FROM num WHERE ctid < '(1,1)';
SELECT reason FROM predicates();
COMMIT;
-- a row by its place: its key, or anything if there is none
BEGIN;
SELECT id FROM num WHERE ctid = '(0,7)';
SELECT * FROM predicates();
SELECT id FROM num WHERE ctid = '(0,2000)';
SELECT * FROM predicates();
COMMIT;

-- cursors, prepared statements, functions, upserts
SET enable_seqscan = off;
BEGIN;
DECLARE page CURSOR FOR SELECT id FROM num WHERE id >= 4000 ORDER BY id;
FETCH 2 FROM page;
MOVE BACKWARD 1 IN page;
SELECT * FROM predicates();
CLOSE page;
COMMIT;
PREPARE one (int) AS SELECT val FROM num WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
BEGIN ISOLATION LEVEL READ COMMITTED;
EXECUTE one (1);
COMMIT;
BEGIN;
EXECUTE one (2);
EXECUTE one (4);
SELECT * FROM predicates();
COMMIT;
RESET plan_cache_mode;
BEGIN;
INSERT INTO num VALUES (30, 0) ON CONFLICT DO NOTHING;
INSERT INTO num VALUES (31, 0) ON CONFLICT (id) DO UPDATE SET val = num.val + 1;
SELECT * FROM predicates();
ROLLBACK;
-- reads of a subtransaction that rolls back stay, and what it wrote may have told of rows
BEGIN;
SAVEPOINT one;
SELECT val FROM num WHERE id = 8;
UPDATE num SET val = 0 WHERE id = 9;
INSERT INTO num VALUES (10);
ROLLBACK TO one;
SELECT * FROM predicates();
COMMIT;
-- an error in a transaction leaves nothing behind
BEGIN;
SELECT count(*) FROM num WHERE id < 5 AND 1 / (id - 3) > 0;
ROLLBACK;
BEGIN;
SELECT * FROM predicates();
COMMIT;

-- foreign keys: a referenced row that is found and locked is read by the exclusion window only
CREATE TABLE child (id int PRIMARY KEY, num int REFERENCES num) USING txn_heap;
BEGIN;
INSERT INTO child VALUES (1, 500);
SELECT * FROM predicates();
COMMIT;
BEGIN;
DO $$ BEGIN INSERT INTO child VALUES (2, 6000); EXCEPTION WHEN foreign_key_violation THEN RAISE NOTICE 'no parent'; END $$;
SELECT * FROM predicates();
COMMIT;
BEGIN;
DELETE FROM num WHERE id = 501;
SELECT * FROM predicates();
ROLLBACK;
DROP TABLE child;

-- key types
CREATE FUNCTION read_as(typ text, first text, last text, collation_clause text DEFAULT '') RETURNS SETOF text
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE keyed (k %s %s PRIMARY KEY) USING txn_heap', typ, collation_clause);
    RETURN NEXT typ || collation_clause;
    EXECUTE format('SELECT count(*) FROM keyed WHERE k BETWEEN %L AND %L', first, last);
    RETURN QUERY SELECT format('  range %s .. %s %s', low, high, reason) FROM predicates() WHERE relation = 'keyed'::regclass;
    DROP TABLE keyed;
    EXECUTE format('CREATE TABLE keyed (k %s %s PRIMARY KEY) USING txn_heap', typ, collation_clause);
    EXECUTE format('SELECT count(*) FROM keyed WHERE k = %L', last);
    RETURN QUERY SELECT format('  key %s .. %s %s', low, high, reason) FROM predicates() WHERE relation = 'keyed'::regclass;
    DROP TABLE keyed;
END $$;
SELECT read_as('smallint', '-3', '5');
SELECT read_as('bigint', '-9000000000', '5');
SELECT read_as('boolean', 'false', 'true');
SELECT read_as('oid', '1', '4000000000');
SELECT read_as('real', '-0.5', '1e30');
SELECT read_as('double precision', '-Infinity', 'NaN');
SELECT read_as('numeric', '-12.5', '100000000.000001');
SELECT read_as('numeric(10,2)', '0', '99.99');
SELECT read_as('date', '1999-12-31', '2026-11-21');
SELECT read_as('timestamp', '-infinity', '2026-11-21 12:30:00.25');
SELECT read_as('timestamptz', '2026-11-21 12:00+02', 'infinity');
SELECT read_as('time', '00:00', '23:59:59.5');
SELECT read_as('uuid', '00000000-0000-0000-0000-000000000001', 'ffffffff-0000-4000-8000-00000000000a');
SELECT read_as('text', 'a', 'b', ' COLLATE "C"');
SELECT read_as('varchar(10)', 'a', 'b', ' COLLATE "C"');
SELECT read_as('char(10)', 'a', 'b  ', ' COLLATE "C"');
SELECT read_as('bytea', '\x00', '\xff01');
SELECT read_as('inet', '10.0.0.0', '10.0.0.9');
CREATE DOMAIN regress_amount AS int CHECK (value > 0);
SELECT read_as('regress_amount', '1', '5');
DROP DOMAIN regress_amount;
DROP FUNCTION read_as;

-- keys of several columns
CREATE TABLE wide (a int, b text COLLATE "C", c date, v int, PRIMARY KEY (a, b, c)) USING txn_heap;
INSERT INTO wide VALUES (1, 'x', '2026-01-01', 0);
BEGIN;
SELECT count(*) FROM wide WHERE a = 1 AND b = 'x' AND c > '2026-01-01';
SELECT count(*) FROM wide WHERE a = 2 AND b >= 'm';
SELECT count(*) FROM wide WHERE a BETWEEN 5 AND 6;
SELECT count(*) FROM wide WHERE (a, b) > (8, 'q') AND a < 9;
SELECT * FROM predicates();
COMMIT;
DROP TABLE wide;

-- null keys
CREATE TABLE nullable (k int, v int) USING txn_heap;
BEGIN;
SELECT count(*) FROM nullable WHERE k IS NULL;
SELECT * FROM predicates();
COMMIT;
DROP TABLE nullable;

-- ranges
SELECT txn.partition_by_range('num', width => 100);
UPDATE num SET val = 0 WHERE id = 250;
SELECT relation, high::int - low::int + 1 AS width, writes FROM txn.ranges WHERE relation = 'num'::regclass AND range IS NOT NULL AND low::int <= 250 AND high::int >= 250;
SELECT txn.partition_by_range('num', ranges => 10);
UPDATE num SET val = 0 WHERE id = 250;
SELECT count(*) FROM txn.range_maps WHERE relation = 'num'::regclass AND boundaries IS NULL;
CREATE TABLE word (k text COLLATE "C" PRIMARY KEY) USING txn_heap;
INSERT INTO word SELECT md5(n::text) FROM generate_series(1, 1000) n;
SELECT txn.partition_by_range('word', ranges => 4);
SELECT length(boundaries) / 16 AS boundaries FROM txn.range_maps WHERE relation = 'word'::regclass;
SELECT txn.partition_by_range('word', width => 4);
SELECT txn.partition_by_range('num');
SELECT txn.partition_by_range('num', 3, 3);
SELECT txn.partition_by_range('num', ranges => 0);
SELECT txn.partition_by_range('num', width => 0);
SELECT txn.partition_by_range('num', width => -1.5);
SELECT txn.partition_by_range('num', width => 'NaN');
SELECT txn.partition_by_range('nowhere', ranges => 3);
SELECT txn.partition_by_range(NULL, ranges => 3);
SELECT txn.partition_by_range('txn.stats', ranges => 3);
CREATE TABLE keyless (a int) USING txn_heap;
SELECT txn.partition_by_range('keyless', ranges => 3);
BEGIN;
SELECT count(*) FROM keyless;
SELECT * FROM predicates();
COMMIT;
CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100) USING txn_heap;
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100) TO (200) USING txn_heap;
SELECT txn.partition_by_range('parted', width => 10);
SELECT count(*) FROM txn.range_maps WHERE relation IN ('parted_1'::regclass, 'parted_2'::regclass);
BEGIN;
SELECT count(*) FROM parted WHERE id BETWEEN 50 AND 60;
SELECT * FROM predicates();
COMMIT;
CREATE ROLE regress_stranger;
GRANT USAGE, CREATE ON SCHEMA public TO regress_stranger;
SET ROLE regress_stranger;
SELECT txn.partition_by_range('num', ranges => 3);
SELECT count(*) FROM txn.range_maps;
CREATE TABLE mine (id int PRIMARY KEY) USING txn_heap;
SELECT txn.partition_by_range('mine', ranges => 3);
SELECT current_user;
DROP TABLE mine;
RESET ROLE;
REVOKE ALL ON SCHEMA public FROM regress_stranger;
DROP ROLE regress_stranger;

-- what is refused
SET client_min_messages = warning;
CREATE TABLE plain (id int PRIMARY KEY) USING heap;
CREATE TEMPORARY TABLE scratch (id int PRIMARY KEY);
RESET client_min_messages;
BEGIN;
SELECT count(*) FROM plain;
ROLLBACK;
BEGIN;
INSERT INTO plain VALUES (1);
ROLLBACK;
BEGIN;
COPY plain TO stdout;
ROLLBACK;
BEGIN;
SELECT txn.partition_by_range('plain', ranges => 3);
ROLLBACK;
BEGIN;
INSERT INTO scratch VALUES (1);
SELECT count(*) FROM scratch, pg_class WHERE relname = 'num';
SELECT count(*) FROM num WHERE id = 1;
SET txn.range_occ = off;
ROLLBACK;
BEGIN;
SET LOCAL txn.range_occ = off;
SELECT count(*) FROM plain;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM num WHERE id = 1;
SELECT * FROM predicates();
COMMIT;
BEGIN;
SELECT count(*) FROM num WHERE id = 1;
SELECT set_config('txn.range_occ', 'off', true);
ROLLBACK;

RESET ALL;
DROP TABLE num, word, keyless, parted, plain, scratch;
DROP FUNCTION predicates;
