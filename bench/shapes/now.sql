\set row 1 + :spread * 100 * :client_id
UPDATE kinds SET val = val + 1, at = now() WHERE id = :row;
