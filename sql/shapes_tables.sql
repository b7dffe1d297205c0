-- Every kind of table: these outputs are stock's.
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

-- partitions, with a row that moves
CREATE TABLE part (id int, region text, val int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE part_a PARTITION OF part FOR VALUES IN ('a');
CREATE TABLE part_b PARTITION OF part FOR VALUES IN ('b');
INSERT INTO part VALUES (1, 'a', 0), (1, 'b', 0), (2, 'a', 0);
UPDATE part SET val = val + 1 WHERE id = 1 AND region = 'a' RETURNING tableoid::regclass, *;
UPDATE part SET val = val + 1 WHERE id = 1 RETURNING tableoid::regclass, *;
UPDATE part SET region = 'b' WHERE id = 2 AND region = 'a' RETURNING tableoid::regclass, *;
UPDATE part_b SET val = val + 1 WHERE id = 2 AND region = 'b' RETURNING *;
UPDATE part_b SET region = 'a' WHERE id = 2;
DELETE FROM part WHERE id = 1 AND region = 'b' RETURNING *;
SELECT tableoid::regclass, * FROM part ORDER BY id, region;
DROP TABLE part;

-- inheritance
CREATE TABLE parent (id int PRIMARY KEY, val int);
CREATE TABLE child (extra int, PRIMARY KEY (id)) INHERITS (parent);
INSERT INTO parent VALUES (1, 0);
INSERT INTO child VALUES (1, 0, 5), (2, 0, 6);
UPDATE parent SET val = val + 1 WHERE id = 1 RETURNING tableoid::regclass, *;
UPDATE ONLY parent SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE child SET val = val + 1 WHERE id = 1 RETURNING *;
SELECT tableoid::regclass, * FROM parent ORDER BY 1, 2;
DROP TABLE parent, child;

-- temporary, unlogged, system tables
CREATE TEMP TABLE tmp (id int PRIMARY KEY, val int);
INSERT INTO tmp VALUES (1, 0);
UPDATE tmp SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE tmp SET val = val + 1 WHERE id = 1 RETURNING val;
DROP TABLE tmp;
BEGIN;
CREATE TEMP TABLE tmp (id int PRIMARY KEY, val int) ON COMMIT DROP;
INSERT INTO tmp VALUES (1, 0);
UPDATE tmp SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
CREATE UNLOGGED TABLE unl (id int PRIMARY KEY, val int);
INSERT INTO unl VALUES (1, 0);
UPDATE unl SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE unl SET val = val + 1 WHERE id = 1 RETURNING val;
ALTER TABLE unl SET LOGGED;
UPDATE unl SET val = val + 1 WHERE id = 1 RETURNING val;
DROP TABLE unl;
CREATE TABLE mine (id int);
UPDATE pg_class SET relpages = 3 WHERE oid = 'mine'::regclass RETURNING relpages;
DROP TABLE mine;

-- no key, a deferrable one, a replica identity, a partial and an expression index
CREATE TABLE nokey (id int, val int);
INSERT INTO nokey VALUES (1, 0), (1, 0);
UPDATE nokey SET val = val + 1 WHERE id = 1 RETURNING *;
DROP TABLE nokey;
CREATE TABLE def (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, val int);
INSERT INTO def VALUES (1, 0), (2, 0);
UPDATE def SET val = val + 1 WHERE id = 1 RETURNING *;
BEGIN;
UPDATE def SET id = id + 1;
UPDATE def SET val = val + 1 WHERE id = 2 RETURNING *;
COMMIT;
DROP TABLE def;
CREATE TABLE ident (id int NOT NULL, val int);
CREATE UNIQUE INDEX ident_id ON ident (id);
INSERT INTO ident VALUES (1, 0);
UPDATE ident SET val = val + 1 WHERE id = 1 RETURNING *;
ALTER TABLE ident REPLICA IDENTITY USING INDEX ident_id;
UPDATE ident SET val = val + 1 WHERE id = 1 RETURNING *;
ALTER TABLE ident REPLICA IDENTITY FULL;
UPDATE ident SET val = val + 1 WHERE id = 1 RETURNING *;
ALTER TABLE ident REPLICA IDENTITY NOTHING;
UPDATE ident SET val = val + 1 WHERE id = 1 RETURNING *;
DROP TABLE ident;
CREATE TABLE odd (id int PRIMARY KEY, val int);
CREATE UNIQUE INDEX ON odd (val) WHERE val > 100;
CREATE INDEX ON odd ((val % 10));
INSERT INTO odd VALUES (1, 99), (2, 101);
UPDATE odd SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE odd SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE odd SET val = val + 1 WHERE id = 2 RETURNING *;
SELECT * FROM odd WHERE val % 10 = 2 ORDER BY id;
DROP TABLE odd;

-- generated, identity, dropped and added columns, constraints
CREATE TABLE gen (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, val int CHECK (val < 3),
                  twice int GENERATED ALWAYS AS (val * 2) STORED);
INSERT INTO gen (val) VALUES (0);
UPDATE gen SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE gen SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE gen SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE gen SET twice = 1 WHERE id = 1;
ALTER TABLE gen DROP COLUMN val CASCADE, ADD COLUMN amount int NOT NULL DEFAULT 5;
UPDATE gen SET amount = amount + 1 WHERE id = 1 RETURNING *;
UPDATE gen SET amount = NULL WHERE id = 1;
SELECT * FROM gen;
DROP TABLE gen;

-- wide values: in line, compressed, out of line
CREATE TABLE wide (id int PRIMARY KEY, val int, body text);
ALTER TABLE wide ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO wide VALUES (1, 0, repeat('x', 100000));
UPDATE wide SET val = val + 1 WHERE id = 1 RETURNING val, length(body);
UPDATE wide SET val = val + 1, body = repeat('y', 50000) WHERE id = 1 RETURNING val, length(body);
UPDATE wide SET body = body || 'z' WHERE id = 1 RETURNING val, right(body, 2);
UPDATE wide SET body = 'small', val = val + 1 WHERE id = 1 RETURNING *;
UPDATE wide SET body = repeat('w', 1800) WHERE id = 1 RETURNING val, length(body);
SELECT val, length(body) FROM wide;
DROP TABLE wide;

-- a version that no longer fits its page
CREATE TABLE tight (id int PRIMARY KEY, val int, body text) WITH (autovacuum_enabled = off);
INSERT INTO tight SELECT id, 0, repeat('x', 1500) FROM generate_series(1, 5) id;
BEGIN;
UPDATE tight SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE tight SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE tight SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
UPDATE tight SET val = val + 1 WHERE id = 1 RETURNING val;
SELECT id, val, length(body) FROM tight ORDER BY id;
DROP TABLE tight;
