-- From version 0.1.0 to 0.2.0.

CREATE FUNCTION txn.explain_row(relation regclass, VARIADIC key text[])
RETURNS TABLE (condition text, met boolean, detail text)
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'explain_row_wrapper';
COMMENT ON FUNCTION txn.explain_row(regclass, text[]) IS 'the conditions under which updates of the row with that key follow each other; met is null where it depends on the statement';

COMMENT ON COLUMN txn.hotspots.mode IS 'group: transactions follow each other; queue: one at a time; backoff: one at a time for a while, because of cascades of rollbacks, second changes of the row by its transactions, or cycles with other rows';
COMMENT ON COLUMN txn.waits.reason IS 'ticket: for its turn to update; commit: for a predecessor to commit first; read: for predecessors to end before a statement reads; order: for predecessors to be first at another row; fallback: for a transaction that cannot be followed';
