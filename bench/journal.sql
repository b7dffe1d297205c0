-- What people do instead: write down the increment, and let readers sum up.
INSERT INTO ledger (hot_id, amount) VALUES (1, 1);
