-- Transactions, savepoints and handlers over both nodes.
BEGIN;
UPDATE account SET balance = 1 WHERE id = 1;
UPDATE account SET balance = 1 WHERE id = 1001;
UPDATE home SET balance = 1 WHERE id = 1;
SELECT id, balance FROM account WHERE balance = 1 ORDER BY id;
ROLLBACK;
SELECT sum(balance) FROM account;
BEGIN;
UPDATE account SET balance = 2 WHERE id = 1;
SAVEPOINT a;
UPDATE account SET balance = 3 WHERE id IN (1, 1001);
SAVEPOINT b;
DELETE FROM account WHERE id IN (2, 1002);
INSERT INTO home VALUES (77, 77);
ROLLBACK TO b;
SELECT id, balance FROM account ORDER BY id;
RELEASE a;
COMMIT;
SELECT id, balance FROM account ORDER BY id;
BEGIN;
SAVEPOINT a;
UPDATE account SET balance = 4 WHERE id = 1;
ROLLBACK TO a;
UPDATE account SET balance = 4 WHERE id = 1002;
SAVEPOINT b;
UPDATE account SET balance = 5 WHERE id = 2;
RELEASE b;
ROLLBACK TO a;
UPDATE account SET balance = 6 WHERE id IN (3, 1003);
COMMIT;
SELECT id, balance FROM account ORDER BY id;
BEGIN;
SAVEPOINT a;
INSERT INTO account VALUES (1, 1, 'there is one');
SELECT 1;
ROLLBACK TO a;
INSERT INTO account VALUES (1201, 1, 'after the error');
SAVEPOINT a;
INSERT INTO account VALUES (201, 1, 'before the error'), (1201, 1, 'there is one');
ROLLBACK TO a;
SELECT id FROM account WHERE id % 1000 > 100 ORDER BY id;
COMMIT;
SELECT id FROM account WHERE id % 1000 > 100 ORDER BY id;
BEGIN;
UPDATE account SET balance = 7 WHERE id = 4;
INSERT INTO account VALUES (1001, 1, 'there is one');
UPDATE account SET balance = 7 WHERE id = 5;
COMMIT;
SELECT id, balance FROM account ORDER BY id;
DO $$
BEGIN
    UPDATE account SET balance = 8 WHERE id IN (4, 1004);
    BEGIN
        UPDATE account SET balance = 9 WHERE id IN (5, 1005);
        INSERT INTO account VALUES (1, 1, 'there is one');
    EXCEPTION WHEN unique_violation THEN
        INSERT INTO account VALUES (1301, 1, 'handled');
    END;
    BEGIN
        UPDATE account SET balance = 1 / (balance - 8) WHERE id = 1004;
    EXCEPTION WHEN division_by_zero THEN
        UPDATE account SET balance = balance + 1 WHERE id = 4;
    END;
    BEGIN
        UPDATE account SET balance = 10 WHERE id IN (6, 1006);
        RAISE EXCEPTION 'by the coordinator';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
END $$;
SELECT id, balance FROM account ORDER BY id;
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account SET balance = 11 WHERE id IN (7, 1007);
    COMMIT;
    UPDATE account SET balance = 12 WHERE id IN (7, 1007);
    ROLLBACK;
    UPDATE account SET balance = 13 WHERE id = 1008;
    UPDATE home SET balance = 13 WHERE id = 8;
END $$;
CALL steps();
SELECT id, balance FROM account ORDER BY id;
SELECT * FROM home ORDER BY id;
BEGIN;
DECLARE old CURSOR FOR SELECT id, balance FROM account ORDER BY id;
FETCH 1 FROM old;
UPDATE account SET balance = 14 WHERE id IN (2, 1002);
FETCH 2 FROM old;
SAVEPOINT a;
SELECT count(*) FROM account WHERE balance = 14;
ROLLBACK TO a;
FETCH 9 FROM old;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE account SET balance = 15 WHERE id IN (3, 1003) RETURNING balance;
SAVEPOINT a;
UPDATE account SET balance = 16 WHERE id IN (3, 1003) RETURNING balance;
ROLLBACK TO a;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE account SET balance = balance + 1 WHERE id IN (3, 1003) RETURNING balance;
COMMIT;
BEGIN READ ONLY;
SELECT count(*) FROM account;
UPDATE account SET balance = 17 WHERE id = 1;
ROLLBACK;
BEGIN;
UPDATE account SET balance = 18 WHERE id = 1;
COMMIT AND CHAIN;
UPDATE account SET balance = 18 WHERE id = 1001;
ROLLBACK AND CHAIN;
UPDATE account SET balance = 19 WHERE id = 1009;
COMMIT;
SELECT id, balance FROM account ORDER BY id;
