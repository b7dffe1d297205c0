\set row 1 + :spread * 100 * :client_id
UPDATE watched SET val = val + 1 WHERE id = :row;
