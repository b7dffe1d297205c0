-- What the shapes of transactions need besides the tables of all workloads. Before each run.
CREATE TABLE IF NOT EXISTS rate (id int PRIMARY KEY, value numeric NOT NULL);
INSERT INTO rate SELECT id, 1 FROM generate_series(1, 1000) id ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS numbered (number bigint NOT NULL, series int NOT NULL, PRIMARY KEY (series, number));
TRUNCATE numbered;

DROP TABLE IF EXISTS kinds;
CREATE TABLE kinds (
    id      int PRIMARY KEY,
    val     bigint NOT NULL DEFAULT 0,
    data    jsonb NOT NULL DEFAULT '{"n": 0}',
    at      timestamptz NOT NULL DEFAULT now(),
    changes int NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO kinds SELECT id FROM generate_series(1, 120000) id;

DROP TABLE IF EXISTS watched;
CREATE TABLE watched (
    id      int PRIMARY KEY,
    val     bigint NOT NULL DEFAULT 0,
    at      timestamptz
) WITH (fillfactor = 50);
INSERT INTO watched SELECT id FROM generate_series(1, 120000) id;
CREATE OR REPLACE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.at := now();
    RETURN NEW;
END $$;
CREATE TRIGGER touch BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION touch();

CREATE OR REPLACE PROCEDURE book(of int, what bigint) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hot SET val = val + what WHERE id = of;
    INSERT INTO ledger (hot_id, amount) VALUES (of, what);
END $$;

CREATE OR REPLACE FUNCTION bump_or_tell(of int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_at bigint;
BEGIN
    UPDATE hot SET val = val + 1 WHERE id = of RETURNING val INTO now_at;
    RETURN now_at;
EXCEPTION WHEN numeric_value_out_of_range THEN
    RETURN NULL;
END $$;
VACUUM ANALYZE kinds, watched, rate, numbered;
