-- Objects of the extension txn, version 0.5.0. The library must be preloaded: the first function below says so.

CREATE FUNCTION txn.hotspots_raw(
    OUT relation oid, OUT key text, OUT mode text, OUT since bigint, OUT waiting integer, OUT running integer,
    OUT updates bigint, OUT followed bigint, OUT combined bigint, OUT groups bigint, OUT cascades bigint,
    OUT handover_us double precision, OUT obstacles text)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'hot_rows_wrapper';
COMMENT ON FUNCTION txn.hotspots_raw() IS 'the hot rows of this database; use the view txn.hotspots';

CREATE FUNCTION txn.stats_raw(OUT totals bigint[], OUT reset bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'stats_wrapper';
COMMENT ON FUNCTION txn.stats_raw() IS 'totals of this server; use the view txn.stats';

CREATE FUNCTION txn.waits_raw(
    OUT pid integer, OUT blocked_by integer, OUT relation oid, OUT key text, OUT reason text, OUT since bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'waits_wrapper';
COMMENT ON FUNCTION txn.waits_raw() IS 'the waits for hot rows of this database; use the view txn.waits';

CREATE FUNCTION txn.stats_reset() RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'stats_reset_wrapper';
COMMENT ON FUNCTION txn.stats_reset() IS 'sets the totals in txn.stats to zero';
REVOKE ALL ON FUNCTION txn.stats_reset() FROM PUBLIC;

CREATE FUNCTION txn.explain_row(relation regclass, VARIADIC key text[])
RETURNS TABLE (condition text, met boolean, detail text)
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'explain_row_wrapper';
COMMENT ON FUNCTION txn.explain_row(regclass, text[]) IS 'the conditions under which updates of the row with that key follow each other; met is null where it depends on the statement';

CREATE FUNCTION txn.moment(microseconds bigint) RETURNS timestamptz
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN timestamptz '2000-01-01 00:00:00+00' + microseconds * interval '1 microsecond';
COMMENT ON FUNCTION txn.moment(bigint) IS 'microseconds since 2000-01-01 UTC as a timestamp';

COMMENT ON SCHEMA txn IS 'group locking, range OCC, the lane, transactions over several servers: views and functions';

CREATE VIEW txn.hotspots AS
SELECT relation::regclass, key, mode, txn.moment(since) AS since, waiting, running, updates, followed, combined, groups,
       cascades, handover_us, obstacles
FROM txn.hotspots_raw();
COMMENT ON VIEW txn.hotspots IS 'hot rows of this database';
COMMENT ON COLUMN txn.hotspots.relation IS 'the table';
COMMENT ON COLUMN txn.hotspots.key IS 'the row''s key, at most 64 bytes of it; null unless you may read the key of every row';
COMMENT ON COLUMN txn.hotspots.mode IS 'group: transactions follow each other; queue: one at a time; backoff: one at a time for a while, because of cascades of rollbacks, second changes of the row by its transactions, or cycles with other rows';
COMMENT ON COLUMN txn.hotspots.since IS 'when the row became hot';
COMMENT ON COLUMN txn.hotspots.waiting IS 'transactions that wait for their turn to update the row';
COMMENT ON COLUMN txn.hotspots.running IS 'transactions that have updated the row and not ended';
COMMENT ON COLUMN txn.hotspots.updates IS 'updates of the row since it became hot';
COMMENT ON COLUMN txn.hotspots.followed IS 'of these, updates on top of a running transaction''s version';
COMMENT ON COLUMN txn.hotspots.combined IS 'of these, updates done and committed together with another session''s';
COMMENT ON COLUMN txn.hotspots.groups IS 'groups of transactions that followed each other';
COMMENT ON COLUMN txn.hotspots.cascades IS 'rollbacks that took other transactions with them';
COMMENT ON COLUMN txn.hotspots.obstacles IS 'what has kept updates from following, with how often, the most frequent first; txn.explain_row says what to do about it';
COMMENT ON COLUMN txn.hotspots.handover_us IS 'mean time between the release of the row and its next use by a waiter, in microseconds';

CREATE VIEW txn.stats AS
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
       totals[42] AS validated_reads, totals[43] AS refused_reads,
       totals[44] AS lane_taken, totals[45] AS lane_waits, totals[46] AS lane_drains, totals[47] AS lane_skipped,
       totals[48] AS lane_overflows,
       totals[49] AS lane_cold,
       totals[50] AS lane_rescheduled,
       totals[51] AS geo_deadlocks,
       totals[52] AS followed_prepared
FROM txn.stats_raw();
COMMENT ON VIEW txn.stats IS 'totals of the whole server since the last txn.stats_reset()';
COMMENT ON COLUMN txn.stats.hot_rows IS 'hot rows at present';
COMMENT ON COLUMN txn.stats.promotions IS 'rows that became hot';
COMMENT ON COLUMN txn.stats.coolings IS 'rows that ceased to be hot';
COMMENT ON COLUMN txn.stats.tickets IS 'tickets given out: turns to update a hot row';
COMMENT ON COLUMN txn.stats.ticket_waits IS 'tickets that had to be waited for';
COMMENT ON COLUMN txn.stats.direct_handovers IS 'tickets handed directly to the longest waiter';
COMMENT ON COLUMN txn.stats.followed IS 'updates on top of a running transaction''s version';
COMMENT ON COLUMN txn.stats.combined IS 'updates that another session did and committed together with its own';
COMMENT ON COLUMN txn.stats.abandoned IS 'transactions refused because a session whose update they had done was cancelled';
COMMENT ON COLUMN txn.stats.ordinary IS 'updates of hot rows on top of a committed version';
COMMENT ON COLUMN txn.stats.groups IS 'groups of transactions that followed each other';
COMMENT ON COLUMN txn.stats.commit_waits IS 'waits for a predecessor to commit first';
COMMENT ON COLUMN txn.stats.snapshot_waits IS 'statements that let predecessors end before they read';
COMMENT ON COLUMN txn.stats.cascades IS 'rollbacks that took other transactions with them';
COMMENT ON COLUMN txn.stats.doomed IS 'transactions rolled back with a predecessor';
COMMENT ON COLUMN txn.stats.cycles IS 'waits refused because they would have closed a circle';
COMMENT ON COLUMN txn.stats.own_row IS 'transactions refused a second change of a row on which others had built';
COMMENT ON COLUMN txn.stats.backoffs IS 'times that a row fell back to one transaction at a time';
COMMENT ON COLUMN txn.stats.fallbacks IS 'updates of hot rows that waited for the predecessor to end instead of following';
COMMENT ON COLUMN txn.stats.table_full IS 'rows that found no room in the table of hot rows (txn.max_hot_rows)';
COMMENT ON COLUMN txn.stats.early_commits IS 'commits that let the next transaction go on before they were flushed';
COMMENT ON COLUMN txn.stats.read_waits IS 'transactions that waited for what they had read to be durable';
COMMENT ON COLUMN txn.stats.stats_reset IS 'when the totals were set to zero; null: at server start';
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
COMMENT ON COLUMN txn.stats.validated_reads IS 'statements of followers that read beside running predecessors';
COMMENT ON COLUMN txn.stats.refused_reads IS 'transactions refused because somebody had written what they had read beside their predecessors';
COMMENT ON COLUMN txn.stats.lane_taken IS 'transactions that have declared keys';
COMMENT ON COLUMN txn.stats.lane_waits IS 'waits for declared keys';
COMMENT ON COLUMN txn.stats.lane_drains IS 'waits of declared transactions for writers that had not declared their keys';
COMMENT ON COLUMN txn.stats.lane_skipped IS 'calls of procedures whose declaration could not be used';
COMMENT ON COLUMN txn.stats.lane_overflows IS 'announcements of writers that found no room in their stripe; declared transactions look at all sessions then';
COMMENT ON COLUMN txn.stats.lane_cold IS 'declarations that were not taken, as nobody had waited or was refused because of their keys of late (txn.lane = auto)';
COMMENT ON COLUMN txn.stats.lane_rescheduled IS 'transaction blocks that took the keys which a refused one before them had used (txn.reschedule)';
COMMENT ON COLUMN txn.stats.geo_deadlocks IS 'transactions refused because of a deadlock over several servers';
COMMENT ON COLUMN txn.stats.followed_prepared IS 'of followed, updates on top of a prepared transaction''s version';

CREATE FUNCTION txn.lane_waits_raw(
    OUT pid integer, OUT blocked_by integer, OUT relation oid, OUT key text, OUT since bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'lane_waits_wrapper';
COMMENT ON FUNCTION txn.lane_waits_raw() IS 'the waits for declared keys of this database; use the view txn.waits';

CREATE FUNCTION txn.geo_waits_raw(
    OUT pid integer, OUT blocked_by integer, OUT relation oid, OUT since bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_waits_wrapper';
COMMENT ON FUNCTION txn.geo_waits_raw() IS 'sessions of this database that stand in line before rows at nodes; use the view txn.waits';

CREATE VIEW txn.waits AS
SELECT pid, blocked_by, relation::regclass, key, reason, txn.moment(since) AS since
FROM txn.waits_raw()
UNION ALL
SELECT pid, blocked_by, relation::regclass, key, 'lane', txn.moment(since)
FROM txn.lane_waits_raw()
UNION ALL
SELECT pid, blocked_by, relation::regclass, NULL, 'line', txn.moment(since)
FROM txn.geo_waits_raw();
COMMENT ON VIEW txn.waits IS 'sessions of this database that wait for a hot row, for a transaction on one, for declared keys, or for a turn at a row of a node';
COMMENT ON COLUMN txn.waits.relation IS 'the table of the row';
COMMENT ON COLUMN txn.waits.reason IS 'ticket: for its turn to update; commit: for a predecessor to commit first; read: for predecessors to end before a statement reads; order: for predecessors to be first at another row; stream: for predecessors to end before more is written (wal_level = logical); gate: for its turn among transactions that take rows met in deadlocks; fallback: for a transaction that cannot be followed; lane: for keys that it has declared, or for others who have; line: for a turn at a row of a node (txn.geo_records)';
COMMENT ON COLUMN txn.waits.pid IS 'the waiting session';
COMMENT ON COLUMN txn.waits.blocked_by IS 'the session that it waits for; 0 for a prepared transaction; null: those that have a turn at the row of a node';
COMMENT ON COLUMN txn.waits.key IS 'the row''s key; null unless you may read the key of every row, and of rows at nodes';
COMMENT ON COLUMN txn.waits.since IS 'when the wait began';

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
COMMENT ON COLUMN txn.tables.follower_reads IS 'how a statement reads after following: wait lets the predecessors end first, immediate does not, validated does not either where nobody writes what it reads';

GRANT USAGE ON SCHEMA txn TO PUBLIC;
GRANT SELECT ON txn.hotspots, txn.stats, txn.tables, txn.waits TO PUBLIC;

CREATE FUNCTION txn.heap_handler(internal) RETURNS table_am_handler
LANGUAGE C VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'heap_handler_wrapper';
COMMENT ON FUNCTION txn.heap_handler(internal) IS 'the handler of the access method txn_heap';
CREATE ACCESS METHOD txn_heap TYPE TABLE HANDLER txn.heap_handler;
COMMENT ON ACCESS METHOD txn_heap IS 'heap storage whose key ranges transactions can be validated on';

-- Range OCC

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
COMMENT ON COLUMN txn.ranges.range IS 'the number of the range; -1: null keys; null: anywhere in the table, or you may not read the key of every row';
COMMENT ON COLUMN txn.ranges.low IS 'its lowest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.ranges.high IS 'its highest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.ranges.writes IS 'writes to it that the rings have at present';
COMMENT ON COLUMN txn.ranges.last_transaction IS 'the latest of the transactions that wrote them';
COMMENT ON COLUMN txn.ranges.registrations IS 'writes registered in it since the server started, or since another range was counted in its place';
COMMENT ON COLUMN txn.ranges.conflicts IS 'conflicts that validations have found in it, counted like registrations';
COMMENT ON COLUMN txn.ranges.covered IS 'looks of validations at it for transactions that had read the whole range, counted like registrations';

CREATE FUNCTION txn.my_predicates_raw(OUT relation oid, OUT low text, OUT high text, OUT whole boolean, OUT reason text)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'my_predicates_wrapper';
COMMENT ON FUNCTION txn.my_predicates_raw() IS 'what the present transaction has read; use the view txn.my_predicates';

CREATE VIEW txn.my_predicates AS
SELECT relation::regclass, low, high, whole, reason FROM txn.my_predicates_raw();
COMMENT ON VIEW txn.my_predicates IS 'the keys that the present transaction has read, if it is validated (txn.range_occ)';
COMMENT ON COLUMN txn.my_predicates.relation IS 'the table';
COMMENT ON COLUMN txn.my_predicates.low IS 'the lowest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.my_predicates.high IS 'the highest key; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.my_predicates.whole IS 'whether that is the whole table';
COMMENT ON COLUMN txn.my_predicates.reason IS 'what read the whole table, or that of a partitioned table it was read which partitions it has';
GRANT SELECT ON txn.ranges, txn.my_predicates TO PUBLIC;

-- The lane

CREATE FUNCTION txn.declare(writes text[] DEFAULT NULL, reads text[] DEFAULT NULL) RETURNS boolean
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'declare_wrapper';
COMMENT ON FUNCTION txn.declare(text[], text[]) IS 'declares the keys that the transaction writes to and reads, such as account(1), and waits until nobody else uses them';

CREATE FUNCTION txn.declare_procedure(procedure regprocedure, writes text[] DEFAULT NULL, reads text[] DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'declare_procedure_wrapper';
COMMENT ON FUNCTION txn.declare_procedure(regprocedure, text[], text[]) IS 'says which keys each CALL of the procedure declares, such as account($1); nothing: none';

CREATE PROCEDURE txn.run(
    statement text, arguments text[] DEFAULT NULL, attempts integer DEFAULT 10, isolation text DEFAULT NULL,
    INOUT result jsonb DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'run_wrapper';
COMMENT ON PROCEDURE txn.run(text, text[], integer, text, jsonb) IS 'runs a statement as a transaction of its own, again while others have it refused, with what it has used declared; result: its first row';

CREATE FUNCTION txn.lane_raw(
    OUT pid integer, OUT number bigint, OUT state text, OUT relation oid, OUT low text, OUT high text, OUT mode text,
    OUT granted boolean)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'lane_wrapper';
COMMENT ON FUNCTION txn.lane_raw() IS 'what transactions of this database have declared; use the view txn.lane';

CREATE FUNCTION txn.my_declared_raw(OUT relation oid, OUT low text, OUT high text, OUT mode text, OUT declared boolean)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'my_declared_wrapper';
COMMENT ON FUNCTION txn.my_declared_raw() IS 'what the present transaction has declared or used; use the view txn.my_declared';

CREATE VIEW txn.lane AS
SELECT pid, number, state, relation::regclass, low, high, mode, granted FROM txn.lane_raw();
COMMENT ON VIEW txn.lane IS 'what transactions of this database have declared, in the order in which they go';
COMMENT ON COLUMN txn.lane.pid IS 'the session';
COMMENT ON COLUMN txn.lane.number IS 'the place of its transaction in the order';
COMMENT ON COLUMN txn.lane.state IS 'queued: it waits for its keys; draining: it has them, and waits for a writer that has not declared them; holding: they are its own';
COMMENT ON COLUMN txn.lane.relation IS 'the table, or the partitioned table to which it belongs';
COMMENT ON COLUMN txn.lane.low IS 'the lowest of the declared keys; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.lane.high IS 'the highest; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.lane.mode IS 'write or read';
COMMENT ON COLUMN txn.lane.granted IS 'whether no conflicting declaration is before it';

CREATE VIEW txn.my_declared AS
SELECT relation::regclass, low, high, mode, declared FROM txn.my_declared_raw();
COMMENT ON VIEW txn.my_declared IS 'what the present transaction has declared, and what it has written or, validated, read without that';
COMMENT ON COLUMN txn.my_declared.relation IS 'the table, or the partitioned table to which it belongs';
COMMENT ON COLUMN txn.my_declared.low IS 'the lowest of the keys; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.my_declared.high IS 'the highest; null: there is no bound, or you may not read the key of every row';
COMMENT ON COLUMN txn.my_declared.mode IS 'write or read';
COMMENT ON COLUMN txn.my_declared.declared IS 'false: the transaction has used these keys without having declared them';
GRANT SELECT ON txn.lane, txn.my_declared TO PUBLIC;

-- Transactions over several servers

CREATE FUNCTION txn.fdw_handler() RETURNS fdw_handler
LANGUAGE C STRICT
AS 'MODULE_PATHNAME', 'fdw_handler_wrapper';
COMMENT ON FUNCTION txn.fdw_handler() IS 'the handler of the foreign data wrapper txn_fdw';

CREATE FUNCTION txn.fdw_validator(options text[], catalog oid) RETURNS void
LANGUAGE C STRICT
AS 'MODULE_PATHNAME', 'fdw_validator_wrapper';
COMMENT ON FUNCTION txn.fdw_validator(text[], oid) IS 'checks the options of the foreign data wrapper txn_fdw';

CREATE FOREIGN DATA WRAPPER txn_fdw HANDLER txn.fdw_handler VALIDATOR txn.fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER txn_fdw IS 'PostgreSQL servers whose transactions commit together with those here';

CREATE TABLE txn.geo_coordinator (
    uuid uuid NOT NULL,
    incarnation bigint NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    database oid NOT NULL,
    directory bigint NOT NULL
);
COMMENT ON TABLE txn.geo_coordinator IS 'what this database is called in the names of its transactions at nodes, and where it was when it got that name';
COMMENT ON COLUMN txn.geo_coordinator.uuid IS 'the name of the database as a coordinator';
COMMENT ON COLUMN txn.geo_coordinator.incarnation IS 'how often the server has started since';
COMMENT ON COLUMN txn.geo_coordinator.system_identifier IS 'the system identifier of the server';
COMMENT ON COLUMN txn.geo_coordinator.timeline IS 'its timeline';
COMMENT ON COLUMN txn.geo_coordinator.database IS 'the database''s OID';
COMMENT ON COLUMN txn.geo_coordinator.directory IS 'the inode of the data directory''s PG_VERSION';

CREATE TABLE txn.geo_decision (
    gid text PRIMARY KEY,
    server oid NOT NULL,
    mapping oid NOT NULL,
    system text NOT NULL,
    xid xid8 NOT NULL,
    timeline integer NOT NULL,
    lsn pg_lsn NOT NULL,
    decided timestamptz NOT NULL,
    lost boolean NOT NULL
);
COMMENT ON TABLE txn.geo_decision IS 'transactions that are committed and were prepared at nodes, until all nodes have committed them';
COMMENT ON COLUMN txn.geo_decision.gid IS 'the name of the transaction at the node';
COMMENT ON COLUMN txn.geo_decision.server IS 'the node';
COMMENT ON COLUMN txn.geo_decision.mapping IS 'the user mapping as which it was prepared';
COMMENT ON COLUMN txn.geo_decision.system IS 'the system identifier of the node';
COMMENT ON COLUMN txn.geo_decision.xid IS 'its transaction id at the node';
COMMENT ON COLUMN txn.geo_decision.timeline IS 'the node''s timeline at that time';
COMMENT ON COLUMN txn.geo_decision.lsn IS 'a position in the node''s WAL behind the record of PREPARE';
COMMENT ON COLUMN txn.geo_decision.decided IS 'when it was decided';
COMMENT ON COLUMN txn.geo_decision.lost IS 'the node does not have it any more, and has not committed it';

CREATE FUNCTION txn.geo_connections_raw(
    OUT server oid, OUT mapping oid, OUT reads boolean, OUT in_transaction boolean, OUT usable boolean)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_connections_wrapper';
COMMENT ON FUNCTION txn.geo_connections_raw() IS 'the connections of this session to nodes; use the view txn.geo_nodes';

CREATE FUNCTION txn.geo_resolver(OUT phase text, OUT pid integer, OUT passes bigint, OUT incarnation bigint, OUT looks bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_resolver_wrapper';
COMMENT ON FUNCTION txn.geo_resolver() IS 'the background worker of this database that ends what was left at nodes';

CREATE FUNCTION txn.geo_round_trip(server oid) RETURNS bigint
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_round_trip_wrapper';
COMMENT ON FUNCTION txn.geo_round_trip(oid) IS 'the round trip to a node in microseconds, measured while it is used; null: not known; use the view txn.geo_nodes';

CREATE FUNCTION txn.geo_report() RETURNS text
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_report_wrapper';
COMMENT ON FUNCTION txn.geo_report() IS 'what a node tells a coordinator of its hot rows: table, key, transactions that wait or are at work, microseconds from one turn to the next, whether they follow each other';

CREATE FUNCTION txn.geo_records_raw(
    OUT server oid, OUT relation oid, OUT record bigint, OUT local_us bigint, OUT in_flight bigint, OUT tries bigint, OUT commits bigint,
    OUT queue bigint, OUT turn_us bigint, OUT at_once bigint, OUT in_line bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_records_wrapper';
COMMENT ON FUNCTION txn.geo_records_raw() IS 'what is known of records at nodes; use the view txn.geo_records';

CREATE FUNCTION txn.geo_wake() RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_wake_wrapper';
COMMENT ON FUNCTION txn.geo_wake() IS 'the resolver looks at once';

CREATE FUNCTION txn.geo_prepared_raw(OUT gid text, OUT server oid, OUT owner text, OUT prepared timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'geo_prepared_wrapper';
COMMENT ON FUNCTION txn.geo_prepared_raw() IS 'asks the nodes what they have prepared for this database; use the view txn.geo_transactions';

CREATE FUNCTION txn.geo_is_active(gid text) RETURNS boolean
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_is_active_wrapper';
COMMENT ON FUNCTION txn.geo_is_active(text) IS 'whether a session is committing the transaction with that name';

CREATE FUNCTION txn.geo_resolve(gid text, commit boolean) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'geo_resolve_wrapper';
COMMENT ON FUNCTION txn.geo_resolve(text, boolean) IS 'ends a transaction at its node by hand, or forgets one that the node has lost; for superusers';

CREATE FUNCTION txn.geo_take_over() RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'geo_take_over_wrapper';
COMMENT ON FUNCTION txn.geo_take_over() IS 'this server goes on as the coordinator of which it may be a copy, and which is gone; for superusers';
REVOKE EXECUTE ON FUNCTION txn.geo_records_raw(), txn.geo_prepared_raw(), txn.geo_wake(), txn.geo_resolve(text, boolean), txn.geo_take_over() FROM PUBLIC;

CREATE VIEW txn.geo_nodes AS
SELECT s.srvname AS node, w.fdwname AS wrapper, count(c.server) AS connections,
    count(c.server) FILTER (WHERE c.in_transaction) > 0 AS in_transaction,
    txn.geo_round_trip(s.oid) / 1000.0 AS round_trip_ms
FROM pg_foreign_server s
JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
LEFT JOIN txn.geo_connections_raw() c ON c.server = s.oid
WHERE w.fdwhandler = 'txn.fdw_handler'::regproc
GROUP BY s.oid, s.srvname, w.fdwname;
COMMENT ON VIEW txn.geo_nodes IS 'the nodes of this database, and this session''s connections to them';
COMMENT ON COLUMN txn.geo_nodes.node IS 'the foreign server';
COMMENT ON COLUMN txn.geo_nodes.wrapper IS 'its foreign data wrapper: txn_fdw, or one that was given its handler';
COMMENT ON COLUMN txn.geo_nodes.connections IS 'connections of this session';
COMMENT ON COLUMN txn.geo_nodes.in_transaction IS 'whether the present transaction has used it';
COMMENT ON COLUMN txn.geo_nodes.round_trip_ms IS 'the time to the node and back, in milliseconds; null: not known, as nobody has used it of late';
GRANT SELECT ON txn.geo_nodes TO PUBLIC;

CREATE VIEW txn.geo_records AS
SELECT s.srvname AS node, r.relation::regclass AS relation, r.record, r.local_us / 1000.0 AS local_ms, r.in_flight, r.tries, r.commits,
    r.queue, r.turn_us / 1000.0 AS turn_ms, r.at_once, r.in_line
FROM txn.geo_records_raw() r LEFT JOIN pg_foreign_server s ON s.oid = r.server;
COMMENT ON VIEW txn.geo_records IS 'what is known of rows at nodes (txn.geo_schedule = forecast, admission)';
COMMENT ON COLUMN txn.geo_records.node IS 'the foreign server; null: it was dropped';
COMMENT ON COLUMN txn.geo_records.relation IS 'the foreign table';
COMMENT ON COLUMN txn.geo_records.record IS 'a hash of the server, the table and the values of its option key';
COMMENT ON COLUMN txn.geo_records.local_ms IS 'how long statements about the row take at the node, in milliseconds, without the way there and back';
COMMENT ON COLUMN txn.geo_records.in_flight IS 'transactions of this database that are at work on the row';
COMMENT ON COLUMN txn.geo_records.tries IS 'transactions that have ended, halved each 10 seconds';
COMMENT ON COLUMN txn.geo_records.commits IS 'those of them that have committed';
COMMENT ON COLUMN txn.geo_records.queue IS 'transactions at the node, also of others, that wait for the row or are at work on it; 0: it has not reported any of late';
COMMENT ON COLUMN txn.geo_records.turn_ms IS 'the time from one turn of these to the next, in milliseconds';
COMMENT ON COLUMN txn.geo_records.at_once IS 'so many transactions may have a turn at the row at a time, as others wait for it at the node; null: there is no limit';
COMMENT ON COLUMN txn.geo_records.in_line IS 'transactions of this database that stand in line before the row';

CREATE VIEW txn.geo_transactions AS
SELECT d.gid, s.srvname AS node, CASE WHEN d.lost THEN 'lost' ELSE 'decided' END AS state,
    clock_timestamp() - d.decided AS age, txn.geo_is_active(d.gid) AS active
FROM txn.geo_decision d LEFT JOIN pg_foreign_server s ON s.oid = d.server
UNION ALL
SELECT p.gid, s.srvname, 'prepared', clock_timestamp() - p.prepared, txn.geo_is_active(p.gid)
FROM txn.geo_prepared_raw() p JOIN pg_foreign_server s ON s.oid = p.server
WHERE NOT EXISTS (SELECT FROM txn.geo_decision d WHERE d.gid = p.gid);
COMMENT ON VIEW txn.geo_transactions IS 'transactions that are in doubt at nodes; asks the nodes';
COMMENT ON COLUMN txn.geo_transactions.gid IS 'the name of the transaction at the node';
COMMENT ON COLUMN txn.geo_transactions.node IS 'the foreign server; null: it was dropped';
COMMENT ON COLUMN txn.geo_transactions.state IS 'prepared: not decided; decided: committed, and perhaps not yet there; lost: committed, and the node has lost it';
COMMENT ON COLUMN txn.geo_transactions.age IS 'for how long it has been so';
COMMENT ON COLUMN txn.geo_transactions.active IS 'whether a session is committing it';
