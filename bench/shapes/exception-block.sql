-- A function with an EXCEPTION block around the UPDATE.
\set row 1 + :spread * 100 * :client_id
SELECT bump_or_tell(:row);
