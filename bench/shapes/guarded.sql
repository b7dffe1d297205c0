\set row 1 + :spread * 100 * :client_id
UPDATE hot SET val = val + 1 WHERE id = :row AND val >= 0;
