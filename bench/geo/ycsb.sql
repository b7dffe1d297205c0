-- YCSB at a node: rows 0 to :rows - 1, counted from :node * :rows. The trigger runs when the row is
-- locked: how long it stays so is measured.
CREATE TABLE usertable (
    id bigint PRIMARY KEY,
    value bigint NOT NULL,
    filler text,
    locked timestamptz
) WITH (fillfactor = 80);
INSERT INTO usertable SELECT :node::bigint * :rows + k, 0, repeat('x', 60), NULL FROM generate_series(0, :rows - 1) k;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.locked = clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER note BEFORE UPDATE ON usertable FOR EACH ROW EXECUTE FUNCTION note();
VACUUM ANALYZE usertable;
