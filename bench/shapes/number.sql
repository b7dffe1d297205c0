-- A number from a counter without gaps, and the row that has it.
\set row 1 + :spread * 100 * :client_id
BEGIN;
UPDATE hot SET val = val + 1 WHERE id = :row RETURNING val \gset
INSERT INTO numbered (series, number) VALUES (:row, :val);
COMMIT;
