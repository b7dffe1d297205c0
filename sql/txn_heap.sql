-- Tables of the access method txn_heap: everything that a heap table can do.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
SELECT amname, amhandler, amtype FROM pg_am WHERE amname = 'txn_heap';

-- by name, by default, from and to heap
CREATE TABLE item (id int PRIMARY KEY, name text, body text, at timestamptz DEFAULT '2026-01-01') USING txn_heap;
SET default_table_access_method = txn_heap;
CREATE TABLE tag (item int REFERENCES item, tag text, UNIQUE (item, tag));
CREATE TABLE copied AS SELECT 1 AS id;
CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM item;
RESET default_table_access_method;
CREATE TABLE plain (id int PRIMARY KEY, val int);
SELECT relname, amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE relname IN ('item', 'tag', 'copied', 'counted', 'plain') ORDER BY 1;
INSERT INTO plain SELECT n, n FROM generate_series(1, 1000) n;
ALTER TABLE plain SET ACCESS METHOD txn_heap;
SELECT count(*), sum(val) FROM plain;
UPDATE plain SET val = val + 1 WHERE id = 7 RETURNING val;
ALTER TABLE plain SET ACCESS METHOD heap;
SELECT count(*), sum(val) FROM plain;
ALTER TABLE plain SET ACCESS METHOD txn_heap;
-- a TOAST table is heap's
SELECT a.amname FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid JOIN pg_am a ON a.oid = t.relam
WHERE c.relname = 'item';

-- COPY, several ways to insert, values out of line
COPY item (id, name) FROM stdin;
1	one
2	two
\.
INSERT INTO item (id, name, body) SELECT n, 'name ' || n, repeat(md5(n::text), 400) FROM generate_series(3, 300) n;
INSERT INTO item VALUES (1, 'uno') ON CONFLICT (id) DO UPDATE SET name = excluded.name RETURNING id, name;
INSERT INTO item VALUES (1, 'eins') ON CONFLICT DO NOTHING;
INSERT INTO item VALUES (1, 'twice');
MERGE INTO item USING (VALUES (2, 'zwei'), (301, 'new')) AS s (id, name) ON item.id = s.id
WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name);
DELETE FROM item WHERE id BETWEEN 290 AND 295;
UPDATE item SET id = 1000 WHERE id = 300;
SELECT count(*), sum(id), sum(length(body)), string_agg(name, ' ' ORDER BY id) FILTER (WHERE id < 3) FROM item;
BEGIN;
TRUNCATE copied;
COPY copied FROM stdin WITH (FREEZE);
5
6
\.
COMMIT;
COPY (SELECT * FROM copied ORDER BY 1) TO stdout;
BEGIN;
SAVEPOINT one;
INSERT INTO copied VALUES (7);
ROLLBACK TO one;
INSERT INTO copied VALUES (8);
COMMIT;
SELECT string_agg(id::text, ' ' ORDER BY id) FROM copied;

-- indexes of every kind, also concurrently and on several processors
CREATE INDEX item_hash ON item USING hash (name);
CREATE INDEX item_brin ON item USING brin (at);
CREATE INDEX item_gin ON item USING gin (to_tsvector('simple', name));
CREATE INDEX item_gist ON item USING gist (point(id, id));
CREATE INDEX item_spgist ON item USING spgist (name);
CREATE INDEX item_partial ON item (lower(name)) WHERE id > 5;
CREATE INDEX CONCURRENTLY item_at ON item (at, id);
REINDEX INDEX CONCURRENTLY item_at;
REINDEX TABLE item;
SET min_parallel_table_scan_size = 0;
SET max_parallel_maintenance_workers = 2;
ALTER TABLE plain SET (parallel_workers = 2);
CREATE INDEX plain_val ON plain (val);
CREATE INDEX CONCURRENTLY plain_both ON plain (val, id);
RESET max_parallel_maintenance_workers;
SELECT bt_index_parent_check(indexrelid, true, true) FROM pg_index JOIN pg_class i ON i.oid = indexrelid
JOIN pg_am a ON a.oid = i.relam WHERE indrelid IN ('item'::regclass, 'plain'::regclass, 'tag'::regclass) AND amname = 'btree';
SELECT brin_summarize_new_values('item_brin');

-- scans of every kind
SET enable_seqscan = off;
SELECT id FROM item WHERE name = 'name 17';
SELECT count(*) FROM item WHERE at < '2027-01-01';
SELECT id FROM item WHERE to_tsvector('simple', name) @@ 'zwei'::tsquery;
SELECT id FROM item WHERE point(id, id) <@ box '((20,20),(22,22))' ORDER BY id;
SET enable_bitmapscan = off;
SELECT max(id), min(id) FROM item;
SELECT id FROM item WHERE id BETWEEN 10 AND 12 ORDER BY id DESC;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*) FROM item WHERE ctid < '(0,3)';
SELECT id FROM item WHERE ctid = (SELECT ctid FROM item WHERE id = 30);
SELECT count(*) > 0 FROM item TABLESAMPLE SYSTEM (90) REPEATABLE (1);
SELECT count(*) > 0 FROM item TABLESAMPLE BERNOULLI (90) REPEATABLE (1);
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
EXPLAIN (COSTS OFF) SELECT sum(val) FROM plain;
SELECT sum(val) FROM plain;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT id FROM item WHERE id < 6 ORDER BY id;
MOVE LAST c;
FETCH BACKWARD 2 FROM c;
COMMIT;
FETCH BACKWARD 2 FROM c;
CLOSE c;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM item WHERE id = 4 FOR UPDATE;
FETCH c;
UPDATE item SET name = 'current' WHERE CURRENT OF c RETURNING id;
COMMIT;

-- maintenance
VACUUM item;
VACUUM (FREEZE, ANALYZE) item;
ANALYZE plain;
SELECT reltuples, relpages > 0 AS pages FROM pg_class WHERE relname IN ('item', 'plain') ORDER BY 1;
CLUSTER item USING item_pkey;
VACUUM FULL plain;
SELECT count(*), sum(id) FROM item;
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname = 'item';
REFRESH MATERIALIZED VIEW counted;
SELECT * FROM counted;
TRUNCATE copied;
SELECT pg_relation_size('copied'), pg_relation_size('item') > 0 AS grown, pg_table_size('item') > pg_relation_size('item') AS more;
ALTER TABLE plain ADD COLUMN extra int DEFAULT 3, ALTER COLUMN val TYPE bigint;
SELECT count(*), sum(extra) FROM plain;
ALTER TABLE plain SET UNLOGGED;
ALTER TABLE plain SET LOGGED;

-- constraints, triggers, generated columns
INSERT INTO tag VALUES (17, 'a'), (9999, 'b');
INSERT INTO tag VALUES (17, 'a');
DELETE FROM item WHERE id = 17;
CREATE TABLE booked (room int, during int4range, twice int GENERATED ALWAYS AS (room * 2) STORED, CHECK (room > 0),
    EXCLUDE USING gist (during WITH &&)) USING txn_heap;
INSERT INTO booked VALUES (1, '[1,5)');
INSERT INTO booked VALUES (1, '[4,6)');
INSERT INTO booked VALUES (0, '[7,8)');
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.room = NEW.room + 10; RETURN NEW; END $$;
CREATE TRIGGER noted BEFORE UPDATE ON booked FOR EACH ROW EXECUTE FUNCTION noted();
UPDATE booked SET room = 2 RETURNING room, twice;

-- partitions and children of both kinds, and rows that move between them
CREATE TABLE part (id int, val int) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (1) TO (10) USING txn_heap;
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20) USING heap;
INSERT INTO part SELECT n, n FROM generate_series(1, 19) n;
UPDATE part SET id = 15 WHERE id = 5 RETURNING tableoid::regclass, *;
UPDATE part SET id = 6 WHERE id = 16 RETURNING tableoid::regclass, *;
CREATE TABLE child () INHERITS (plain) USING txn_heap;
INSERT INTO child (id, val) VALUES (5000, 1);
SELECT count(*) FROM plain;

-- temporary and unlogged tables
CREATE TEMP TABLE passing (id int) USING txn_heap ON COMMIT DELETE ROWS;
BEGIN;
INSERT INTO passing VALUES (1);
SELECT count(*) FROM passing;
COMMIT;
SELECT count(*) FROM passing;
CREATE TEMP TABLE own (id int PRIMARY KEY) USING txn_heap;
INSERT INTO own SELECT generate_series(1, 50000);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SELECT count(*), sum(id) FROM own WHERE id BETWEEN 10 AND 49990;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexonlyscan;
DROP TABLE own;
CREATE UNLOGGED TABLE fast (id int PRIMARY KEY) USING txn_heap;
INSERT INTO fast VALUES (1) RETURNING id;

-- group locking works on it
CREATE TABLE counter (id int PRIMARY KEY, n int) USING txn_heap;
INSERT INTO counter VALUES (3, 0);
SET txn.group_lock = on;
SET txn.hot_threshold = 0;
BEGIN;
UPDATE counter SET n = n + 1 WHERE id = 3 RETURNING n;
SELECT key, running FROM txn.hotspots WHERE relation = 'counter'::regclass;
COMMIT;
SELECT condition, met FROM txn.explain_row('counter', '3');
RESET txn.group_lock;
RESET txn.hot_threshold;

-- an index build that fails leaves the access method in place
CREATE FUNCTION fails(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 1 / ($1 - 5000); END $$;
CREATE INDEX ON child (fails(id));
CREATE INDEX CONCURRENTLY child_fails ON child (fails(id));
DO $$ BEGIN CREATE INDEX ON child (fails(id)); EXCEPTION WHEN division_by_zero THEN NULL; END $$;
INSERT INTO child (id, val) VALUES (5001, 2) RETURNING id;
DROP INDEX child_fails;

-- a cursor that a function opens while an index is built on the table goes on after it
CREATE TABLE odd (id int PRIMARY KEY, v int) USING txn_heap;
INSERT INTO odd SELECT n, n FROM generate_series(1, 300) n;
CREATE FUNCTION peeks(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
    kept refcursor := 'kept';
    seen record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_cursors WHERE name = 'kept') THEN
        OPEN kept FOR SELECT id FROM odd WHERE id > 1 ORDER BY id;
        FETCH kept INTO seen;
    END IF;
    RETURN $1;
END $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SET enable_sort = off;
BEGIN;
CREATE INDEX odd_peeks ON odd USING hash (peeks(v));
FETCH 2 FROM kept;
FETCH 2 FROM kept;
COMMIT;
SELECT v FROM odd WHERE peeks(v) = 20;
-- and one that is rewound then begins again
CREATE FUNCTION rewinds(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
    kept refcursor := 'kept';
BEGIN
    IF NOT EXISTS (SELECT FROM pg_cursors WHERE name = 'kept') THEN
        OPEN kept SCROLL FOR SELECT id FROM odd ORDER BY id DESC;
        MOVE 30 FROM kept;
        MOVE ABSOLUTE 0 FROM kept;
    END IF;
    RETURN $1;
END $$;
BEGIN;
CREATE INDEX odd_rewinds ON odd USING hash (rewinds(v));
FETCH 3 FROM kept;
COMMIT;
-- so does one whose rows lead on to others, and one that goes on while it is rewound
CREATE TABLE lone (id int) USING txn_heap;
INSERT INTO lone VALUES (1000), (1001);
CREATE TABLE far (id int PRIMARY KEY, k int) USING txn_heap;
INSERT INTO far SELECT n, CASE WHEN n <= 30 THEN n WHEN n = 300 THEN 31 WHEN n IN (31, 32, 33) THEN n + 1 ELSE n + 1000 END
    FROM generate_series(1, 400) n;
CREATE INDEX far_k ON far (k);
CREATE FUNCTION leads(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
    first refcursor := 'first';
    second refcursor := 'second';
BEGIN
    IF NOT EXISTS (SELECT FROM pg_cursors WHERE name = 'first') THEN
        OPEN first SCROLL FOR WITH c AS MATERIALIZED (SELECT id, k FROM far WHERE k BETWEEN 1 AND 100)
            SELECT id, k FROM c
            UNION ALL SELECT id, k FROM far WHERE id > (SELECT 10000 + id FROM c WHERE k = 31 LIMIT 1);
        MOVE 30 FROM first;
        MOVE ABSOLUTE 0 FROM first;
        OPEN second SCROLL FOR SELECT id FROM lone UNION ALL SELECT id FROM far WHERE id > (SELECT k FROM far WHERE id = 5);
        MOVE 1 FROM second;
        MOVE ABSOLUTE 0 FROM second;
    END IF;
    RETURN $1;
END $$;
BEGIN;
CREATE INDEX far_leads ON far USING hash (leads(k));
MOVE 29 FROM first;
FETCH 5 FROM first;
FETCH 4 FROM second;
MOVE ABSOLUTE 0 FROM second;
FETCH 4 FROM second;
COMMIT;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexonlyscan;
RESET enable_sort;

-- nobody drops what is in use
DROP ACCESS METHOD txn_heap;
DROP EXTENSION txn;
DROP TABLE counter, tag, item, copied, plain, booked, part, passing, fast, odd, lone, far CASCADE;
DROP FUNCTION noted, fails, peeks, rewinds, leads;
DROP EXTENSION txn;
CREATE TABLE left_over (id int) USING txn_heap;
