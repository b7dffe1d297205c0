-- Rows of a statement that has begun before a savepoint, or a handler, is rolled back.
BEGIN;
DECLARE c CURSOR FOR SELECT id, balance FROM account ORDER BY id;
SAVEPOINT a;
FETCH 3 FROM c;
UPDATE account SET balance = balance + 1;
ROLLBACK TO a;
FETCH 3 FROM c;
SAVEPOINT b;
INSERT INTO account VALUES (1, 1, 'there is one');
ROLLBACK TO b;
FETCH 3 FROM c;
SAVEPOINT c;
DELETE FROM account WHERE id IN (1, 1001);
SELECT 1 / 0;
ROLLBACK TO c;
FETCH ALL FROM c;
COMMIT;
SELECT * FROM account ORDER BY id;
BEGIN;
SAVEPOINT a;
DECLARE c CURSOR WITH HOLD FOR SELECT id, balance FROM account ORDER BY id;
FETCH 3 FROM c;
RELEASE a;
SAVEPOINT b;
UPDATE account SET balance = balance + 1 WHERE id IN (2, 1002);
ROLLBACK TO b;
COMMIT;
FETCH ALL FROM c;
CLOSE c;
BEGIN;
SAVEPOINT a;
DECLARE c CURSOR FOR SELECT id FROM account ORDER BY id;
FETCH 3 FROM c;
ROLLBACK TO a;
FETCH 3 FROM c;
ROLLBACK;
-- More rows than fit into work_mem.
INSERT INTO many SELECT k, repeat('x', 300) FROM generate_series(2000, 3000) k;
SET work_mem = '64kB';
BEGIN;
DECLARE c CURSOR FOR SELECT id, word FROM many ORDER BY id;
SAVEPOINT a;
FETCH 3 FROM c;
UPDATE many SET word = 'other' WHERE id = 4;
ROLLBACK TO a;
SAVEPOINT b;
SELECT 1 / 0;
ROLLBACK TO b;
MOVE 1500 FROM c;
FETCH ALL FROM c;
COMMIT;
RESET work_mem;
CREATE FUNCTION again(int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account VALUES ($1, 1, 'there is one');
    RETURN 'new';
EXCEPTION WHEN unique_violation THEN
    RETURN 'there is one';
END $$;
CREATE FUNCTION refused(int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account SET balance = balance + 100 WHERE id = $1;
    RAISE EXCEPTION 'no';
EXCEPTION WHEN raise_exception THEN
    RETURN 'refused';
END $$;
SELECT id, again(id) FROM account;
SELECT id, again((id + 1000) % 2000) FROM account;
SELECT id, refused(id), refused((id + 1000) % 2000) FROM account;
SELECT id, again(id), refused(id) FROM account ORDER BY id;
SELECT sum(balance) FROM account;
DO $$
DECLARE
    r record;
    handled int := 0;
BEGIN
    FOR r IN SELECT id FROM account ORDER BY id LOOP
        BEGIN
            UPDATE account SET balance = balance + 1 WHERE id = r.id;
            INSERT INTO account VALUES (r.id, 1, 'there is one');
        EXCEPTION WHEN unique_violation THEN
            handled := handled + 1;
        END;
        BEGIN
            UPDATE account SET balance = balance + 2 WHERE id = r.id;
            INSERT INTO account VALUES ((r.id + 1000) % 2000, 1, 'there is one');
        EXCEPTION WHEN unique_violation THEN
            UPDATE account SET balance = balance + 3 WHERE id = (r.id + 1000) % 2000;
        END;
    END LOOP;
    INSERT INTO home VALUES (100, handled);
END $$;
SELECT * FROM home ORDER BY id;
SELECT * FROM account ORDER BY id;
DO $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT id FROM many ORDER BY id LIMIT 100 LOOP
        BEGIN
            UPDATE many SET word = 'mine ' || r.id WHERE id = r.id;
            PERFORM 1 / (r.id % 2);
        EXCEPTION WHEN division_by_zero THEN
            UPDATE many SET word = 'handled' WHERE id = r.id;
        END;
    END LOOP;
END $$;
SELECT word, count(*) FROM many WHERE id < 200 GROUP BY word ORDER BY word;
SELECT id, again(id) FROM account WHERE id < 1000
UNION ALL SELECT id, refused(id) FROM account WHERE id >= 1000;
