-- A balance and its ledger, in one transaction.
\set row 1 + :spread * 100 * :client_id
\set amount random(1, 100)
BEGIN;
UPDATE hot SET val = val + :amount WHERE id = :row;
INSERT INTO ledger (hot_id, amount) VALUES (:row, :amount);
COMMIT;
