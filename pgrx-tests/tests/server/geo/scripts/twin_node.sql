-- Tables of a node that have a local twin at the coordinator.
CREATE TYPE level AS ENUM ('low', 'high');
CREATE TABLE kinds (id int PRIMARY KEY, t timestamptz, i interval, f float8, b bytea, a int[],
                    n numeric, s text, d date, o bool, j jsonb, u uuid, r int4range, e level);
CREATE TABLE many (id int PRIMARY KEY, word text);
INSERT INTO many SELECT k, 'word ' || k % 20 FROM generate_series(1, 1000) k;
