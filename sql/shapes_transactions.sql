-- Transaction blocks, savepoints, levels, timeouts in one session: these outputs are stock's.
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

CREATE TABLE acc (id int PRIMARY KEY, val int NOT NULL);
INSERT INTO acc VALUES (1, 0), (2, 0);

-- the same row again, an undone update, a deleted row
BEGIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
SELECT * FROM acc ORDER BY id;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
BEGIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
ROLLBACK;
SELECT * FROM acc ORDER BY id;
BEGIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
DELETE FROM acc WHERE id = 1 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
INSERT INTO acc VALUES (1, 50) RETURNING *;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;

-- savepoints
BEGIN;
SAVEPOINT a;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
SAVEPOINT b;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
ROLLBACK TO b;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
RELEASE b;
ROLLBACK TO a;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
SAVEPOINT c;
SELECT 1 / 0;
ROLLBACK TO c;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
DELETE FROM acc WHERE id = 2;
ROLLBACK TO c;
UPDATE acc SET val = val + 1 WHERE id = 2 RETURNING val;
COMMIT;
SELECT * FROM acc ORDER BY id;

-- levels, read only, chains
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT AND CHAIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
SHOW transaction_isolation;
ROLLBACK AND CHAIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT val FROM acc WHERE id = 1;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
BEGIN READ ONLY;
UPDATE acc SET val = val + 1 WHERE id = 1;
ROLLBACK;

-- settings of the transaction, of the session, of the function
BEGIN;
SET LOCAL txn.group_lock = off;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
BEGIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
SET LOCAL txn.group_lock = off;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
BEGIN;
SET LOCAL txn.queue_lock = on;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;

-- an error in the statement that has the row, and in the transaction that had it
UPDATE acc SET val = val / 0 WHERE id = 1;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
BEGIN;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE acc SET val = 2147483647 + val WHERE id = 1;
UPDATE acc SET val = val + 1 WHERE id = 1;
COMMIT;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;

-- a timeout in the middle of an update
SET statement_timeout = '50ms';
UPDATE acc SET val = val + 1 WHERE id = 1 AND pg_sleep(10) IS NOT NULL;
RESET statement_timeout;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;

-- two updates in one message are one transaction
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val \; UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val \; SELECT 1 / 0;
SELECT * FROM acc ORDER BY id;

-- pools
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
DISCARD ALL;
UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING val;
DROP TABLE acc;
