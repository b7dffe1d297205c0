-- pgbench's own tables, as they were after `pgbench --initialize`.
UPDATE pgbench_accounts SET abalance = 0 WHERE abalance <> 0;
UPDATE pgbench_tellers SET tbalance = 0 WHERE tbalance <> 0;
UPDATE pgbench_branches SET bbalance = 0 WHERE bbalance <> 0;
TRUNCATE pgbench_history;
VACUUM pgbench_accounts, pgbench_tellers, pgbench_branches, pgbench_history;
