\set row 1 + :spread * 100 * :client_id
\set amount random(1, 1000)
UPDATE kinds SET val = val + 1, changes = :amount WHERE id = :row;
