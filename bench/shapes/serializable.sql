-- Frameworks that run everything at SERIALIZABLE.
\set row 1 + :spread * 100 * :client_id
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE hot SET val = val + 1 WHERE id = :row;
COMMIT;
