-- Every type of key: these outputs are stock's.
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

CREATE TYPE color AS ENUM ('red', 'green');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
-- one table per type: its first key is updated three times by constant, its second not at all
CREATE FUNCTION try(type text, key1 text, key2 text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    vals text;
BEGIN
    EXECUTE format('CREATE TABLE t (id %s PRIMARY KEY, val int NOT NULL)', type);
    EXECUTE format('INSERT INTO t VALUES (%s, 0), (%s, 0)', key1, key2);
    EXECUTE format('UPDATE t SET val = val + 1 WHERE id = %s', key1);
    EXECUTE format('UPDATE t SET val = val + 1 WHERE id = (%s)::%s', key1, type);
    EXECUTE format('UPDATE t SET val = val + 1 WHERE id = $1::%s', type) USING trim(both '''' from key1);
    EXECUTE 'SELECT string_agg(id::text || ''='' || val, '' '' ORDER BY val DESC) FROM t' INTO vals;
    DROP TABLE t;
    RETURN vals;
END $$;
SELECT try('smallint', '1', '2');
SELECT try('int', '-2147483648', '2147483647');
SELECT try('bigint', '9223372036854775807', '-1');
SELECT try('numeric', '1.50', '1.51');
SELECT try('numeric(20,5)', '1.5', '2');
SELECT try('float8', '0.1', '1e300');
SELECT try('text', '''a''', '''A''');
SELECT try('text', '''''', '''b''');
SELECT try('text COLLATE "C"', '''ä''', '''a''');
SELECT try('varchar(5)', '''abc''', '''abcd''');
SELECT try('char(5)', '''abc''', '''abcd''');
SELECT try('name', '''abc''', '''abd''');
SELECT try('bytea', '''\x00ff''', '''\x00''');
SELECT try('uuid', '''00000000-0000-0000-0000-000000000001''', '''00000000-0000-0000-0000-000000000002''');
SELECT try('date', '''2000-01-01''', '''2000-01-02''');
SELECT try('timestamptz', '''2000-01-01 00:00+00''', '''2000-01-01 01:00+00''');
SELECT try('interval', '''1 day''', '''25 hours''');
SELECT try('boolean', '''t''', '''f''');
SELECT try('inet', '''10.0.0.1''', '''10.0.0.2''');
SELECT try('jsonb', '''{"a": 1}''', '''{"a": 2}''');
SELECT try('int[]', '''{1,2}''', '''{1,3}''');
SELECT try('int4range', '''[1,5)''', '''[1,6)''');
SELECT try('color', '''red''', '''green''');
SELECT try('positive', '1', '2');
SELECT try('oid', '1', '2');

-- equal, but not the same bits
CREATE TABLE num (id numeric PRIMARY KEY, val int);
INSERT INTO num VALUES (1.0, 0);
UPDATE num SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE num SET val = val + 1 WHERE id = 1.00 RETURNING *;
UPDATE num SET id = 1.000 WHERE id = 1.0 RETURNING *;
UPDATE num SET val = val + 1 WHERE id = 1 RETURNING *;
CREATE TABLE zero (id float8 PRIMARY KEY, val int);
INSERT INTO zero VALUES ('-0', 0);
UPDATE zero SET val = val + 1 WHERE id = 0 RETURNING *;
CREATE TABLE blank (id char(5) PRIMARY KEY, val int);
INSERT INTO blank VALUES ('a', 0);
UPDATE blank SET val = val + 1 WHERE id = 'a  ' RETURNING *;
UPDATE blank SET val = val + 1 WHERE id = 'a'::text RETURNING *;
DROP TABLE num, zero, blank;

-- more than one column
CREATE TABLE comp (a int, b text, val int, PRIMARY KEY (a, b));
INSERT INTO comp VALUES (1, 'x', 0), (1, 'y', 0), (2, 'x', 0);
UPDATE comp SET val = val + 1 WHERE a = 1 AND b = 'x' RETURNING *;
UPDATE comp SET val = val + 1 WHERE b = 'x' AND a = 1 RETURNING *;
UPDATE comp SET val = val + 1 WHERE (a, b) = (1, 'x') RETURNING *;
UPDATE comp SET val = val + 1 WHERE a = 1 RETURNING *;
UPDATE comp SET val = val + 1 WHERE b = 'x' RETURNING *;
CREATE TABLE incl (id int, extra int, val int, PRIMARY KEY (id) INCLUDE (extra));
INSERT INTO incl VALUES (1, 1, 0);
UPDATE incl SET val = val + 1 WHERE id = 1 RETURNING *;
UPDATE incl SET extra = extra + 1 WHERE id = 1 RETURNING *;
SELECT * FROM comp ORDER BY a, b;
DROP TABLE comp, incl;
DROP FUNCTION try;
DROP TYPE color;
DROP DOMAIN positive;
