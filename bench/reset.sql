-- Between two runs: every run starts from the same tables.
UPDATE hot SET val = 0 WHERE val <> 0;
UPDATE slot SET val = 0 WHERE val <> 0;
TRUNCATE ledger;
VACUUM hot, slot, ledger;
