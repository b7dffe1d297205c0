-- Triggers, rules, views, row security, foreign keys, functions: these outputs are stock's.
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

CREATE TABLE acc (id int PRIMARY KEY, val int NOT NULL, owner name NOT NULL DEFAULT current_user);
INSERT INTO acc VALUES (1, 0), (2, 0), (3, 0);

-- row triggers that look, change, and refuse; statement triggers with transition tables
CREATE FUNCTION before_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'before: % -> %', OLD.val, NEW.val;
    IF NEW.val = 13 THEN
        RETURN NULL;
    END IF;
    IF NEW.val = 20 THEN
        NEW.val := 21;
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION after_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'after: % -> %', OLD.val, NEW.val;
    RETURN NULL;
END $$;
CREATE FUNCTION after_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'all: %', (SELECT string_agg(o.val || ' -> ' || n.val, ', ' ORDER BY id)
                            FROM before_all o JOIN after_all n USING (id));
    RETURN NULL;
END $$;
CREATE TRIGGER a BEFORE UPDATE ON acc FOR EACH ROW EXECUTE FUNCTION before_row();
CREATE TRIGGER b AFTER UPDATE ON acc FOR EACH ROW EXECUTE FUNCTION after_row();
CREATE TRIGGER c AFTER UPDATE ON acc REFERENCING OLD TABLE AS before_all NEW TABLE AS after_all
    FOR EACH STATEMENT EXECUTE FUNCTION after_all();
UPDATE acc SET val = 1 WHERE id = 1 RETURNING val;
UPDATE acc SET val = 13 WHERE id = 1 RETURNING val;
UPDATE acc SET val = 20 WHERE id = 1 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id < 3;
DROP TRIGGER a ON acc;
DROP TRIGGER b ON acc;
DROP TRIGGER c ON acc;
-- a trigger that updates the very row
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE acc SET val = val + 100 WHERE id = NEW.id AND val < 100;
    RETURN NEW;
END $$;
CREATE TRIGGER a AFTER UPDATE ON acc FOR EACH ROW EXECUTE FUNCTION again();
UPDATE acc SET val = 1 WHERE id = 3;
SELECT val FROM acc WHERE id = 3;
DROP TRIGGER a ON acc;
CREATE FUNCTION under_my_feet() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() = 1 THEN
        UPDATE acc SET val = val + 1 WHERE id = NEW.id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a BEFORE UPDATE ON acc FOR EACH ROW EXECUTE FUNCTION under_my_feet();
UPDATE acc SET val = 1 WHERE id = 3;
DROP TRIGGER a ON acc;
-- a deferred constraint trigger
CREATE CONSTRAINT TRIGGER d AFTER UPDATE ON acc DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION after_row();
BEGIN;
UPDATE acc SET val = 5 WHERE id = 3;
SELECT 'not yet' AS deferred;
COMMIT;
DROP TRIGGER d ON acc;

-- rules and views
CREATE TABLE log (id int, val int);
CREATE RULE note AS ON UPDATE TO acc DO ALSO INSERT INTO log VALUES (NEW.id, NEW.val);
UPDATE acc SET val = 6 WHERE id = 3;
DROP RULE note ON acc;
SELECT * FROM log;
CREATE VIEW small AS SELECT id, val FROM acc WHERE val < 50 WITH CHECK OPTION;
UPDATE small SET val = val + 1 WHERE id = 3 RETURNING *;
UPDATE small SET val = 60 WHERE id = 3;
UPDATE small SET val = 1 WHERE id = 99;
CREATE VIEW both_views AS SELECT small.id, small.val FROM small JOIN log USING (id);
UPDATE both_views SET val = 1 WHERE id = 3;
CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE acc SET val = NEW.val WHERE id = NEW.id;
    RETURN NEW;
END $$;
CREATE TRIGGER i INSTEAD OF UPDATE ON both_views FOR EACH ROW EXECUTE FUNCTION instead();
UPDATE both_views SET val = 8 WHERE id = 3 RETURNING *;
DROP VIEW both_views, small;

-- row security
CREATE ROLE regress_teller;
GRANT SELECT, UPDATE ON acc TO regress_teller;
ALTER TABLE acc ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON acc USING (id = 1) WITH CHECK (val < 1000);
SET ROLE regress_teller;
UPDATE acc SET val = 7 WHERE id = 1 RETURNING id, val;
UPDATE acc SET val = 7 WHERE id = 2 RETURNING id, val;
UPDATE acc SET val = 1000 WHERE id = 1;
SELECT id, val FROM acc WHERE id = 1 FOR UPDATE;
SELECT id, val FROM acc WHERE id = 2 FOR UPDATE;
DELETE FROM acc WHERE id = 1;
RESET ROLE;
ALTER TABLE acc DISABLE ROW LEVEL SECURITY;
REVOKE ALL ON acc FROM regress_teller;
GRANT SELECT (id), UPDATE (val) ON acc TO regress_teller;
SET ROLE regress_teller;
UPDATE acc SET val = 1 WHERE id = 1 RETURNING id;
UPDATE acc SET val = val + 1 WHERE id = 1;
UPDATE acc SET owner = 'me' WHERE id = 1;
RESET ROLE;
DROP POLICY own ON acc;
REVOKE ALL ON acc FROM regress_teller;
DROP ROLE regress_teller;

-- foreign keys, both ends
CREATE TABLE ledger (id int PRIMARY KEY, acc int REFERENCES acc ON UPDATE CASCADE ON DELETE SET NULL);
BEGIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
INSERT INTO ledger VALUES (1, 1);
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
BEGIN;
INSERT INTO ledger VALUES (2, 1);
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
INSERT INTO ledger VALUES (3, 99);
UPDATE ledger SET acc = 98 WHERE id = 1;
UPDATE acc SET id = 11 WHERE id = 1;
DELETE FROM acc WHERE id = 11;
SELECT * FROM ledger ORDER BY id;

-- functions: SQL (inlined or not), PL/pgSQL with exception block and loop, a security definer
CREATE FUNCTION bump_sql(int) RETURNS int LANGUAGE sql
    AS $$ UPDATE acc SET val = val + 1 WHERE id = $1 RETURNING val $$;
CREATE FUNCTION bump_many(int) RETURNS SETOF int LANGUAGE sql SECURITY DEFINER
    AS $$ UPDATE acc SET val = val + 1 WHERE id >= $1 RETURNING val $$;
CREATE FUNCTION bump_loop(target int, times int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    seen int;
BEGIN
    FOR n IN 1 .. times LOOP
        BEGIN
            UPDATE acc SET val = val + 1 WHERE id = target RETURNING val INTO STRICT seen;
            IF n % 2 = 0 THEN
                RAISE division_by_zero;
            END IF;
        EXCEPTION WHEN division_by_zero THEN
            NULL;
        END;
    END LOOP;
    RETURN seen;
END $$;
SELECT bump_sql(2), bump_sql(2), bump_sql(99);
SELECT * FROM bump_many(2) ORDER BY 1;
SELECT bump_loop(2, 5);
SELECT val FROM acc WHERE id = 2;
DO $$ BEGIN PERFORM bump_sql(g) FROM generate_series(2, 3) g; END $$;
CREATE PROCEDURE in_two() LANGUAGE plpgsql AS $$
BEGIN
    UPDATE acc SET val = 0 WHERE id = 2;
    COMMIT;
    UPDATE acc SET val = val + 1 WHERE id = 2;
    ROLLBACK;
    UPDATE acc SET val = val + 10 WHERE id = 2;
END $$;
CALL in_two();
SELECT id, val FROM acc ORDER BY id;
BEGIN;
CALL in_two();
ROLLBACK;

DROP PROCEDURE in_two;
DROP FUNCTION bump_sql, bump_many, bump_loop;
DROP TABLE ledger, acc, log;
DROP FUNCTION before_row, after_row, after_all, again, under_my_feet, instead;
