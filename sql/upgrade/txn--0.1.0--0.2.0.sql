-- From version 0.1.0 to 0.2.0.

CREATE FUNCTION txn.explain_row(relation regclass, VARIADIC key text[])
RETURNS TABLE (condition text, met boolean, detail text)
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'explain_row_wrapper';
COMMENT ON FUNCTION txn.explain_row(regclass, text[]) IS 'the conditions under which updates of the row with that key follow each other; met is null where it depends on the statement';

COMMENT ON COLUMN txn.hotspots.mode IS 'group: transactions follow each other; queue: one at a time; backoff: one at a time for a while, because of cascades of rollbacks, second changes of the row by its transactions, or cycles with other rows';
COMMENT ON COLUMN txn.waits.reason IS 'ticket: for its turn to update; commit: for a predecessor to commit first; read: for predecessors to end before a statement reads; order: for predecessors to be first at another row; fallback: for a transaction that cannot be followed';

CREATE FUNCTION txn.set_table(
    relation regclass, mode text DEFAULT NULL, hot_threshold integer DEFAULT NULL, group_size integer DEFAULT NULL,
    follower_reads text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF relation IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'the table must not be null';
    END IF;
    EXECUTE format('SECURITY LABEL FOR txn ON TABLE %s IS %L', relation, nullif(concat_ws(', ',
        'mode=' || mode, 'hot_threshold=' || hot_threshold, 'group_size=' || group_size,
        'follower_reads=' || follower_reads), ''));
END
$$;
COMMENT ON FUNCTION txn.set_table(regclass, text, integer, integer, text) IS 'sets all settings of a table, for every session; null: the session''s. Its owner''s';

CREATE VIEW txn.tables AS
SELECT objoid::regclass AS relation,
       substring(lower(label) FROM 'mode\s*=\s*(\w+)') AS mode,
       substring(label FROM 'hot_threshold\s*=\s*(\d+)')::integer AS hot_threshold,
       substring(label FROM 'group_size\s*=\s*(\d+)')::integer AS group_size,
       substring(lower(label) FROM 'follower_reads\s*=\s*(\w+)') AS follower_reads
FROM pg_seclabel
WHERE provider = 'txn' AND classoid = 'pg_class'::regclass AND objsubid = 0;
COMMENT ON VIEW txn.tables IS 'tables of this database with settings of their own; null: the session''s';
COMMENT ON COLUMN txn.tables.relation IS 'the table; settings of a partitioned table are those of its partitions that have none';
COMMENT ON COLUMN txn.tables.mode IS 'group: transactions follow each other on its hot rows; queue: one at a time; off: as in stock PostgreSQL';
COMMENT ON COLUMN txn.tables.hot_threshold IS 'transactions that wait to update a row before it becomes a hot row; 0: every row updated by its key';
COMMENT ON COLUMN txn.tables.group_size IS 'transactions that may follow each other on a hot row before the group ends';
COMMENT ON COLUMN txn.tables.follower_reads IS 'what a statement sees that reads after following: wait lets the predecessors end first, immediate does not';

GRANT SELECT ON txn.tables TO PUBLIC;

CREATE FUNCTION txn.heap_handler(internal) RETURNS table_am_handler
LANGUAGE C VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'heap_handler_wrapper';
COMMENT ON FUNCTION txn.heap_handler(internal) IS 'the handler of the access method txn_heap';
CREATE ACCESS METHOD txn_heap TYPE TABLE HANDLER txn.heap_handler;
COMMENT ON ACCESS METHOD txn_heap IS 'heap storage whose key ranges transactions can be validated on';
