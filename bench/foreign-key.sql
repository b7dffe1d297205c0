-- A balance and its ledger, whose foreign key refers to the balance's row, in one transaction.
\set row 1 + :spread * 100 * :client_id
\set amount random(1, 100)
BEGIN;
UPDATE account SET balance = balance + :amount WHERE id = :row;
INSERT INTO posting (account_id, amount) VALUES (:row, :amount);
COMMIT;
