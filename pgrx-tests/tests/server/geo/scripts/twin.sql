-- The schema far has tables at the nodes, the schema near has the local twins of them.
CREATE TYPE level AS ENUM ('low', 'high');
CREATE SCHEMA far;
CREATE SCHEMA near;
CREATE TABLE far.account (id int NOT NULL, balance bigint NOT NULL DEFAULT 0, owner text,
                          changed timestamptz) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE far.account_0 PARTITION OF far.account FOR VALUES FROM (0) TO (1000)
    SERVER node0 OPTIONS (schema_name 'public', table_name 'account', key 'id');
CREATE FOREIGN TABLE far.account_1 PARTITION OF far.account FOR VALUES FROM (1000) TO (2000)
    SERVER node1 OPTIONS (schema_name 'public', table_name 'account', key 'id');
CREATE FOREIGN TABLE far.kinds (id int NOT NULL, t timestamptz, i interval, f float8, b bytea,
                                a int[], n numeric, s text, d date, o bool, j jsonb, u uuid,
                                r int4range, e level)
    SERVER node1 OPTIONS (schema_name 'public', key 'id');
CREATE FOREIGN TABLE far.many (id int NOT NULL, word text)
    SERVER node0 OPTIONS (schema_name 'public', key 'id');
CREATE TABLE far.home (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO far.home SELECT k, 10 * k FROM generate_series(1, 10) k;

CREATE TABLE near.account (id int NOT NULL, balance bigint NOT NULL DEFAULT 0, owner text,
                           changed timestamptz) PARTITION BY RANGE (id);
CREATE TABLE near.account_0 PARTITION OF near.account (PRIMARY KEY (id))
    FOR VALUES FROM (0) TO (1000);
CREATE TABLE near.account_1 PARTITION OF near.account (PRIMARY KEY (id))
    FOR VALUES FROM (1000) TO (2000);
CREATE TABLE near.kinds (id int PRIMARY KEY, t timestamptz, i interval, f float8, b bytea,
                         a int[], n numeric, s text, d date, o bool, j jsonb, u uuid,
                         r int4range, e level);
CREATE TABLE near.many (id int PRIMARY KEY, word text);
CREATE TABLE near.home (LIKE far.home INCLUDING ALL);
INSERT INTO near.account SELECT * FROM far.account;
INSERT INTO near.many SELECT * FROM far.many;
INSERT INTO near.home SELECT * FROM far.home;
