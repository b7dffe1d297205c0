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
       totals[42] AS validated_reads, totals[43] AS refused_reads,
       totals[44] AS lane_taken, totals[45] AS lane_waits, totals[46] AS lane_drains, totals[47] AS lane_skipped,
       totals[48] AS lane_overflows,
       totals[49] AS lane_cold,
       totals[50] AS lane_rescheduled,
       totals[51] AS geo_deadlocks,
       totals[52] AS followed_prepared
FROM txn.stats_raw();
COMMENT ON COLUMN txn.stats.geo_deadlocks IS 'transactions refused because of a deadlock over several servers';
COMMENT ON SCHEMA txn IS 'group locking, range OCC, the lane, transactions over several servers: views and functions';
COMMENT ON COLUMN txn.tables.follower_reads IS 'how a statement reads after following: wait lets the predecessors end first, immediate does not, validated does not either where nobody writes what it reads';
COMMENT ON COLUMN txn.stats.refused_reads IS 'transactions refused because somebody had written what they had read beside their predecessors';

CREATE FUNCTION txn.geo_waits_raw(
    OUT pid integer, OUT blocked_by integer, OUT relation oid, OUT since bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'geo_waits_wrapper';
COMMENT ON FUNCTION txn.geo_waits_raw() IS 'sessions of this database that stand in line before rows at nodes; use the view txn.waits';
CREATE OR REPLACE VIEW txn.waits AS
SELECT pid, blocked_by, relation::regclass, key, reason, txn.moment(since) AS since
FROM txn.waits_raw()
UNION ALL
SELECT pid, blocked_by, relation::regclass, key, 'lane', txn.moment(since)
FROM txn.lane_waits_raw()
UNION ALL
SELECT pid, blocked_by, relation::regclass, NULL, 'line', txn.moment(since)
FROM txn.geo_waits_raw();
COMMENT ON VIEW txn.waits IS 'sessions of this database that wait for a hot row, for a transaction on one, for declared keys, or for a turn at a row of a node';
COMMENT ON COLUMN txn.waits.reason IS 'ticket: for its turn to update; commit: for a predecessor to commit first; read: for predecessors to end before a statement reads; order: for predecessors to be first at another row; stream: for predecessors to end before more is written (wal_level = logical); gate: for its turn among transactions that take rows met in deadlocks; fallback: for a transaction that cannot be followed; lane: for keys that it has declared, or for others who have; line: for a turn at a row of a node (txn.geo_records)';
COMMENT ON COLUMN txn.waits.blocked_by IS 'the session that it waits for; 0 for a prepared transaction; null: those that have a turn at the row of a node';
COMMENT ON COLUMN txn.waits.key IS 'the row''s key; null unless you may read the key of every row, and of rows at nodes';
COMMENT ON COLUMN txn.stats.followed_prepared IS 'of followed, updates on top of a prepared transaction''s version';

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
