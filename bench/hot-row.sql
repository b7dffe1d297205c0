-- One update, its own transaction. All clients meet in row 1, or each has its own (spread = 1).
\set row 1 + :spread * 100 * :client_id
UPDATE hot SET val = val + 1 WHERE id = :row;
