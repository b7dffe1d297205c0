-- The table of non-hot.sql: no room in its pages, an index on what is updated. Made anew for each run; neighbours 200 apart are
-- on pages of their own.
DROP TABLE IF EXISTS indexed;
CREATE TABLE indexed (
    id  int PRIMARY KEY,
    val bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 100);
INSERT INTO indexed SELECT id FROM generate_series(1, 210000) id;
CREATE INDEX ON indexed (val);
VACUUM ANALYZE indexed;
