-- One of 8 rows, each on a page of its own (spread = 1: the client's own row).
\set row 1 + 100 * CASE WHEN :spread = 1 THEN :client_id ELSE random(0, 7) END
UPDATE hot SET val = val + 1 WHERE id = :row;
