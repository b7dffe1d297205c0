-- A million rows, of txn_heap where there is one, and the procedures that change the first keys and read the second.
SET client_min_messages = warning;
DO $make$
DECLARE
    ours CONSTANT boolean := EXISTS (SELECT FROM pg_am WHERE amname = 'txn_heap');
    change CONSTANT text := $body$
        FOREACH key IN ARRAY writes LOOP
            UPDATE lane_row SET val = val + 1 WHERE id = key;
        END LOOP;
        FOREACH key IN ARRAY reads LOOP
            SELECT val INTO found FROM lane_row WHERE id = key;
        END LOOP;
    $body$;
    before text;
    kind text;
BEGIN
    EXECUTE format('CREATE TABLE lane_row (id bigint PRIMARY KEY, val bigint NOT NULL, filler text NOT NULL)
        USING %I WITH (fillfactor = 50)', CASE WHEN ours THEN 'txn_heap' ELSE 'heap' END);
    INSERT INTO lane_row SELECT id, 0, repeat('x', 80) FROM generate_series(1, 1000000) id;
    CREATE TABLE lane_total (val bigint NOT NULL);
    INSERT INTO lane_total VALUES (0);
    FOR kind, before IN VALUES
        ('plain', ''), ('writes', ''), ('all', ''),
        ('for_update', 'PERFORM FROM lane_row WHERE id = ANY (writes) ORDER BY id FOR UPDATE;'),
        ('advisory', 'PERFORM pg_advisory_xact_lock(one) FROM (SELECT DISTINCT unnest(writes) AS one ORDER BY 1) sorted;')
    LOOP
        EXECUTE format('CREATE PROCEDURE touch_%s(writes bigint[], reads bigint[]) LANGUAGE plpgsql AS %L', kind,
            'DECLARE key bigint; found bigint; BEGIN ' || before || change || ' END');
    END LOOP;
    IF ours THEN
        PERFORM txn.declare_procedure('touch_writes(bigint[], bigint[])', ARRAY['lane_row($1[*])']);
        PERFORM txn.declare_procedure('touch_all(bigint[], bigint[])', ARRAY['lane_row($1[*])'], ARRAY['lane_row($2[*])']);
    END IF;
END
$make$;
VACUUM ANALYZE lane_row;
