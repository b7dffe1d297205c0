-- The views are for everybody; what changes other people's figures is the superuser's until granted.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS txn;
RESET client_min_messages;
CREATE ROLE regress_user;
SET ROLE regress_user;
SELECT count(*) >= 0 AS readable FROM txn.hotspots;
SELECT count(*) AS readable FROM txn.stats;
SELECT count(*) >= 0 AS readable FROM txn.tables;
SELECT count(*) >= 0 AS readable FROM txn.waits;
SELECT txn.stats_reset();
CREATE TABLE txn.mine (id int);
INSERT INTO txn.stats (tickets) VALUES (1);
CREATE EXTENSION txn;
DROP EXTENSION txn;
RESET ROLE;

GRANT EXECUTE ON FUNCTION txn.stats_reset() TO regress_user;
SET ROLE regress_user;
SELECT txn.stats_reset();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION txn.stats_reset() FROM regress_user;
DROP ROLE regress_user;

-- a reset zeroes the totals and says when
SET txn.group_lock = on;
SET txn.hot_threshold = 0;
CREATE TABLE hot (id int PRIMARY KEY, val int NOT NULL);
INSERT INTO hot VALUES (1, 0);
UPDATE hot SET val = val + 1 WHERE id = 1;
SELECT tickets > 0 AS counted, promotions > 0 AS promoted FROM txn.stats;
SELECT stats_reset AS before FROM txn.stats \gset
SELECT txn.stats_reset();
SELECT tickets, promotions, followed, cascades, stats_reset > :'before' AS later FROM txn.stats;

-- the row shows where it belongs, with its key
SELECT relation, key, waiting, running, updates > 0 AS updated FROM txn.hotspots
WHERE relation = 'hot'::regclass;
DROP TABLE hot;
