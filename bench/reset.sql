-- Between two runs: every run starts from the same tables.
UPDATE hot SET val = 0 WHERE val <> 0;
UPDATE slot SET val = 0 WHERE val <> 0;
UPDATE account SET balance = 0 WHERE balance <> 0;
TRUNCATE ledger, posting;
VACUUM hot, slot, ledger, account, posting;
