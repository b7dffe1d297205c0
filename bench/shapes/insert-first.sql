-- The ledger's row first, whose foreign key refers to the hot row: an ORM that saves new objects before changed ones.
\set row 1 + :spread * 100 * :client_id
\set amount random(1, 100)
BEGIN;
INSERT INTO posting (account_id, amount) VALUES (:row, :amount);
UPDATE account SET balance = balance + :amount WHERE id = :row;
COMMIT;
