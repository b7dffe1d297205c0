-- From version 0.1.0 to 0.2.0.

COMMENT ON SCHEMA txn IS 'group locking and range OCC: views and functions';

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

-- Range OCC

CREATE OR REPLACE VIEW txn.stats AS
SELECT (totals[1])::integer AS hot_rows, totals[2] AS promotions, totals[3] AS coolings, totals[4] AS tickets,
       totals[5] AS ticket_waits, totals[6] AS direct_handovers, totals[7] AS followed, totals[8] AS combined,
       totals[9] AS abandoned, totals[10] AS ordinary, totals[11] AS groups, totals[12] AS commit_waits,
       totals[13] AS snapshot_waits, totals[14] AS cascades, totals[15] AS doomed, totals[16] AS cycles,
       totals[17] AS own_row, totals[18] AS backoffs, totals[19] AS fallbacks, totals[20] AS table_full,
       totals[21] AS early_commits, totals[22] AS read_waits,
       txn.moment(nullif(reset, 0)) AS stats_reset,
       totals[23] AS range_validated, totals[24] AS range_passed, totals[25] AS range_overlap, totals[26] AS range_cover,
       totals[27] AS range_relation, totals[28] AS range_history_lost, totals[29] AS range_restarted, totals[30] AS range_first_touch,
       totals[31] AS range_quiet_buckets, totals[32] AS range_walked_buckets, totals[33] AS range_slots_read, totals[34] AS range_covered,
       totals[35] AS range_registered, totals[36] AS range_unplaced, totals[37] AS range_registration_ns, totals[38] AS range_validation_ns,
       totals[39] AS range_moved, totals[40] AS range_evictions, totals[41] AS range_memory
FROM txn.stats_raw();
COMMENT ON COLUMN txn.stats.range_validated IS 'transactions validated by what they read';
COMMENT ON COLUMN txn.stats.range_passed IS 'of these, those that could commit';
COMMENT ON COLUMN txn.stats.range_overlap IS 'refused: somebody wrote keys that were read';
COMMENT ON COLUMN txn.stats.range_cover IS 'refused: somebody wrote to a range that was read as a whole';
COMMENT ON COLUMN txn.stats.range_relation IS 'refused: somebody wrote to a table that was read, or may have been written, as a whole';
COMMENT ON COLUMN txn.stats.range_history_lost IS 'refused: writes to what was read have been overwritten in their ring';
COMMENT ON COLUMN txn.stats.range_restarted IS 'refused: a transaction prepared before the server''s start has not ended';
COMMENT ON COLUMN txn.stats.range_first_touch IS 'refused: a table was redefined after the snapshot';
COMMENT ON COLUMN txn.stats.range_quiet_buckets IS 'rings passed without a look at their writes';
COMMENT ON COLUMN txn.stats.range_walked_buckets IS 'rings looked through';
COMMENT ON COLUMN txn.stats.range_slots_read IS 'writes looked at';
COMMENT ON COLUMN txn.stats.range_covered IS 'ranges looked at that were read as a whole';
COMMENT ON COLUMN txn.stats.range_registered IS 'writes registered';
COMMENT ON COLUMN txn.stats.range_unplaced IS 'writes that found no place in their ring';
COMMENT ON COLUMN txn.stats.range_registration_ns IS 'nanoseconds spent with registration';
COMMENT ON COLUMN txn.stats.range_validation_ns IS 'nanoseconds spent with validation';
COMMENT ON COLUMN txn.stats.range_moved IS 'passed: transactions that stand before others whose writes they missed (txn.range_window)';
COMMENT ON COLUMN txn.stats.range_evictions IS 'writes overwritten in their rings since the server started';
COMMENT ON COLUMN txn.stats.range_memory IS 'bytes of shared memory of range OCC';

CREATE TABLE txn.range_maps (
    relation regclass PRIMARY KEY,
    width bytea CHECK (length(width) = 16),
    boundaries bytea CHECK (length(boundaries) % 16 = 0),
    CHECK ((width IS NULL) <> (boundaries IS NULL))
) USING heap;
COMMENT ON TABLE txn.range_maps IS 'how the keys of tables are divided into ranges; written by txn.partition_by_range';
COMMENT ON COLUMN txn.range_maps.relation IS 'the table';
COMMENT ON COLUMN txn.range_maps.width IS 'the width of its ranges, in images of keys';
COMMENT ON COLUMN txn.range_maps.boundaries IS 'or the images at which ranges begin';
SELECT pg_extension_config_dump('txn.range_maps', 'WHERE EXISTS (SELECT FROM pg_class WHERE oid = relation)');

CREATE FUNCTION txn.partition_by_range(relation regclass, ranges integer DEFAULT NULL, width numeric DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'partition_by_range_wrapper';
COMMENT ON FUNCTION txn.partition_by_range(regclass, integer, numeric) IS 'divides the range key of a table of txn_heap into so many ranges, or into ranges of that width: of integers, days, or seconds';

CREATE FUNCTION txn.ranges_raw(
    OUT relation oid, OUT range bigint, OUT low text, OUT high text, OUT writes bigint, OUT last_transaction bigint,
    OUT registrations bigint, OUT conflicts bigint, OUT covered bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ranges_wrapper';
COMMENT ON FUNCTION txn.ranges_raw() IS 'the ranges of this database with writes in the rings; use the view txn.ranges';

CREATE VIEW txn.ranges AS
SELECT relation::regclass, range, low, high, writes, last_transaction, registrations, conflicts, covered
FROM txn.ranges_raw();
COMMENT ON VIEW txn.ranges IS 'ranges of keys of this database''s tables of txn_heap that transactions have written of late';
COMMENT ON COLUMN txn.ranges.relation IS 'the table';
COMMENT ON COLUMN txn.ranges.range IS 'the number of the range; -1: null keys; null: anywhere in the table';
COMMENT ON COLUMN txn.ranges.low IS 'its lowest key; null: there is no bound, or you may not read the table';
COMMENT ON COLUMN txn.ranges.high IS 'its highest key; null: there is no bound, or you may not read the table';
COMMENT ON COLUMN txn.ranges.writes IS 'writes to it that its ring has at present';
COMMENT ON COLUMN txn.ranges.last_transaction IS 'the latest of the transactions that wrote them';
COMMENT ON COLUMN txn.ranges.registrations IS 'writes registered in its ring since the server started; ranges may share a ring';
COMMENT ON COLUMN txn.ranges.conflicts IS 'conflicts that validations have found in its ring';
COMMENT ON COLUMN txn.ranges.covered IS 'looks of validations at its ring for transactions that had read the whole range';

CREATE FUNCTION txn.my_predicates_raw(OUT relation oid, OUT low text, OUT high text, OUT whole boolean, OUT reason text)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'my_predicates_wrapper';
COMMENT ON FUNCTION txn.my_predicates_raw() IS 'what the present transaction has read; use the view txn.my_predicates';

CREATE VIEW txn.my_predicates AS
SELECT relation::regclass, low, high, whole, reason FROM txn.my_predicates_raw();
COMMENT ON VIEW txn.my_predicates IS 'the keys that the present transaction has read, if it is validated (txn.range_occ)';
COMMENT ON COLUMN txn.my_predicates.relation IS 'the table';
COMMENT ON COLUMN txn.my_predicates.low IS 'the lowest key; null: there is no bound';
COMMENT ON COLUMN txn.my_predicates.high IS 'the highest key; null: there is no bound';
COMMENT ON COLUMN txn.my_predicates.whole IS 'whether that is the whole table';
COMMENT ON COLUMN txn.my_predicates.reason IS 'what read the whole table, or that of a partitioned table it was read which partitions it has';
GRANT SELECT ON txn.ranges, txn.my_predicates TO PUBLIC;
