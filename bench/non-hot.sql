-- One update that changes an indexed column, in full pages.
\set row 1 + :spread * 200 * :client_id
UPDATE indexed SET val = val + 1 WHERE id = :row;
