-- From version 0.2.0 to 0.3.0.

CREATE FUNCTION txn.hot_rows(
    OUT relation oid, OUT key text, OUT mode text, OUT since bigint, OUT waiting integer, OUT running integer,
    OUT updates bigint, OUT followed bigint, OUT combined bigint, OUT groups bigint, OUT cascades bigint,
    OUT handover_us double precision, OUT obstacles text)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'hot_rows_wrapper';
COMMENT ON FUNCTION txn.hot_rows() IS 'the hot rows of this database; use the view txn.hotspots';
CREATE OR REPLACE VIEW txn.hotspots AS
SELECT relation::regclass, key, mode, txn.moment(since) AS since, waiting, running, updates, followed, combined, groups,
       cascades, handover_us, obstacles
FROM txn.hot_rows() AS hotspots_raw;
DROP FUNCTION txn.hotspots_raw();
ALTER FUNCTION txn.hot_rows() RENAME TO hotspots_raw;

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
       totals[39] AS range_moved, totals[40] AS range_evictions, totals[41] AS range_memory,
       totals[42] AS validated_reads, totals[43] AS refused_reads
FROM txn.stats_raw();

COMMENT ON COLUMN txn.hotspots.key IS 'the row''s key, at most 64 bytes of it; null unless you may read the key of every row';
COMMENT ON COLUMN txn.hotspots.obstacles IS 'what has kept updates from following, with how often, the most frequent first; txn.explain_row says what to do about it';
COMMENT ON COLUMN txn.stats.validated_reads IS 'statements of followers that read beside running predecessors';
COMMENT ON COLUMN txn.stats.refused_reads IS 'transactions refused because a predecessor had written what they had read beside it';
COMMENT ON COLUMN txn.waits.key IS 'the row''s key; null unless you may read the key of every row';
COMMENT ON COLUMN txn.waits.reason IS 'ticket: for its turn to update; commit: for a predecessor to commit first; read: for predecessors to end before a statement reads; order: for predecessors to be first at another row; stream: for predecessors to end before more is written (wal_level = logical); fallback: for a transaction that cannot be followed';
COMMENT ON COLUMN txn.ranges.range IS 'the number of the range; -1: null keys; null: anywhere in the table, or you may not read the key of every row';
COMMENT ON COLUMN txn.ranges.low IS 'its lowest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.ranges.high IS 'its highest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.ranges.writes IS 'writes to it that the rings have at present';
COMMENT ON COLUMN txn.ranges.registrations IS 'writes registered in it since the server started, or since another range was counted in its place';
COMMENT ON COLUMN txn.ranges.conflicts IS 'conflicts that validations have found in it, counted like registrations';
COMMENT ON COLUMN txn.ranges.covered IS 'looks of validations at it for transactions that had read the whole range, counted like registrations';
COMMENT ON COLUMN txn.my_predicates.low IS 'the lowest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.my_predicates.high IS 'the highest key; null: there is no bound, or you may not read the key of every row';
