-- From version 0.3.0 to 0.4.0.

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
       totals[50] AS lane_rescheduled
FROM txn.stats_raw();
COMMENT ON COLUMN txn.stats.lane_taken IS 'transactions that have declared keys';
COMMENT ON COLUMN txn.stats.lane_waits IS 'waits for declared keys';
COMMENT ON COLUMN txn.stats.lane_drains IS 'waits of declared transactions for writers that had not declared their keys';
COMMENT ON COLUMN txn.stats.lane_skipped IS 'calls of procedures whose declaration could not be used';
COMMENT ON COLUMN txn.stats.lane_overflows IS 'announcements of writers that found no room in their stripe; declared transactions look at all sessions then';
COMMENT ON COLUMN txn.stats.lane_cold IS 'declarations that were not taken, as nobody had waited or was refused because of their keys of late (txn.lane = auto)';
COMMENT ON COLUMN txn.stats.lane_rescheduled IS 'transaction blocks that took the keys which a refused one before them had used (txn.reschedule)';

CREATE FUNCTION txn.lane_waits_raw(
    OUT pid integer, OUT blocked_by integer, OUT relation oid, OUT key text, OUT since bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'lane_waits_wrapper';
COMMENT ON FUNCTION txn.lane_waits_raw() IS 'the waits for declared keys of this database; use the view txn.waits';

CREATE OR REPLACE VIEW txn.waits AS
SELECT pid, blocked_by, relation::regclass, key, reason, txn.moment(since) AS since
FROM txn.waits_raw()
UNION ALL
SELECT pid, blocked_by, relation::regclass, key, 'lane', txn.moment(since)
FROM txn.lane_waits_raw();
COMMENT ON VIEW txn.waits IS 'sessions of this database that wait for a hot row, for a transaction on one, or for declared keys';
COMMENT ON COLUMN txn.waits.relation IS 'the table of the row';
COMMENT ON COLUMN txn.waits.reason IS 'ticket: for its turn to update; commit: for a predecessor to commit first; read: for predecessors to end before a statement reads; order: for predecessors to be first at another row; stream: for predecessors to end before more is written (wal_level = logical); fallback: for a transaction that cannot be followed; lane: for keys that it has declared, or for others who have';
COMMENT ON SCHEMA txn IS 'group locking, range OCC and the lane: views and functions';

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
