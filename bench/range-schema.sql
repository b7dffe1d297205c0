-- The table of the range benchmarks: :rows rows of some :bytes bytes (header of the row not included), in the order of their keys.
-- A tenth of each page is left free for updates.
CREATE TABLE ycsb (
    id     int PRIMARY KEY,
    val    bigint NOT NULL DEFAULT 0,
    filler text NOT NULL
) USING :access_method WITH (fillfactor = 90);
INSERT INTO ycsb (id, filler) SELECT id, repeat('x', :bytes - 20) FROM generate_series(1, :rows) id;
VACUUM ANALYZE ycsb;
CHECKPOINT;
