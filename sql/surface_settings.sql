-- The settings: type, unit, default, range, who may change them, and what they say.
SELECT name, CASE name WHEN 'txn.build_id' THEN '' ELSE setting END AS setting, unit, vartype, min_val, max_val, enumvals, context
FROM pg_settings WHERE name LIKE 'txn.%' AND name NOT IN ('txn.stop_at', 'txn.planted_fault') ORDER BY name;
SELECT name AS undocumented FROM pg_settings WHERE name LIKE 'txn.%' AND coalesce(short_desc, '') = '';

SET txn.group_lock = on;
SHOW txn.group_lock;
SET txn.group_lock = perhaps;
SET txn.queue_lock = 2;
SET txn.hot_threshold = -1;
SET txn.hot_threshold = 'x';
SET txn.group_size = -1;
SET txn.hot_wait_timeout = '2s';
SHOW txn.hot_wait_timeout;
SET txn.hot_wait_timeout = -1;
SET txn.follower_reads = immediate;
SET txn.follower_reads = never;
SET txn.early_visibility = 7;
SET txn.fair_every = 0;
SET txn.max_hot_rows = 7;
-- the prefix is the extension's own: a typing error is one
SET txn.grouplock = on;
RESET ALL;

-- what the library was built from is in it
SELECT current_setting('txn.build_id') ~ '^\d+\.\d+\.\d+( [0-9a-f]{12}(\+changes)?)? [0-9a-f]{16}$' AS is_release;
SET txn.build_id = '1';

-- an ordinary user's transaction is his own business
CREATE ROLE regress_user;
SET ROLE regress_user;
SET txn.group_lock = on;
SET LOCAL txn.queue_lock = on;
RESET ALL;
RESET ROLE;
ALTER ROLE regress_user SET txn.group_lock = on;
DROP ROLE regress_user;
