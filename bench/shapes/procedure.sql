-- A procedure in PL/pgSQL: UPDATE and INSERT.
\set row 1 + :spread * 100 * :client_id
\set amount random(1, 100)
CALL book(:row, :amount);
