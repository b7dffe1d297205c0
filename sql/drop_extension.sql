-- DROP EXTENSION leaves a database that works, also for sessions with the settings on, and the
-- extension can be created again.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
RESET client_min_messages;
SET txn.group_lock = on;
SET txn.hot_threshold = 0;
CREATE TABLE hot (id int PRIMARY KEY, val int NOT NULL);
INSERT INTO hot VALUES (1, 0);
UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val;
-- in the middle of a transaction that holds a hot row
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val;
DROP EXTENSION txn;
UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val;
COMMIT;
SELECT * FROM txn.hotspots;
UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val;
SHOW txn.group_lock;
CREATE EXTENSION txn;
SELECT count(*) FROM txn.stats;
UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val;
-- who depends on a view is asked
CREATE VIEW mine AS SELECT relation, waiting FROM txn.hotspots;
DROP EXTENSION txn;
DROP VIEW mine;
-- not into another schema, not twice
CREATE EXTENSION txn;
ALTER EXTENSION txn SET SCHEMA public;
DROP EXTENSION txn;
CREATE EXTENSION txn SCHEMA public;
CREATE EXTENSION txn;
DROP TABLE hot;
