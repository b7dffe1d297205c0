-- TPC-C at a node: :warehouses warehouses, counted from :node * :warehouses. Districts, customers and
-- stock are counted over all warehouses. The trigger runs when a district is locked: how long it
-- stays so is measured.
CREATE TABLE warehouse (w_id bigint PRIMARY KEY, w_tax bigint NOT NULL, w_ytd bigint NOT NULL) WITH (fillfactor = 10);
CREATE TABLE district (
    d_id bigint PRIMARY KEY,
    d_ytd bigint NOT NULL,
    d_next_o_id bigint NOT NULL,
    locked timestamptz
) WITH (fillfactor = 10);
CREATE TABLE customer (
    c_id bigint PRIMARY KEY,
    c_discount bigint NOT NULL,
    c_balance bigint NOT NULL,
    c_payment_cnt bigint NOT NULL,
    c_data text
) WITH (fillfactor = 90);
CREATE TABLE stock (
    s_id bigint PRIMARY KEY,
    s_price bigint NOT NULL,
    s_quantity bigint NOT NULL,
    s_ytd bigint NOT NULL,
    s_order_cnt bigint NOT NULL,
    s_data text
) WITH (fillfactor = 90);
CREATE TABLE history (h_d_id bigint NOT NULL, h_c_id bigint NOT NULL, h_amount bigint NOT NULL);
CREATE TABLE orders (
    o_d_id bigint,
    o_id bigint,
    o_c_id bigint NOT NULL,
    o_ol_cnt bigint NOT NULL,
    PRIMARY KEY (o_d_id, o_id)
);
CREATE TABLE new_order (no_d_id bigint, no_o_id bigint, PRIMARY KEY (no_d_id, no_o_id));
CREATE TABLE order_line (
    ol_d_id bigint,
    ol_o_id bigint,
    ol_number bigint,
    ol_s_id bigint NOT NULL,
    ol_quantity bigint NOT NULL,
    PRIMARY KEY (ol_d_id, ol_o_id, ol_number)
);
INSERT INTO warehouse SELECT :node::bigint * :warehouses + w, w % 20, 0 FROM generate_series(0, :warehouses - 1) w;
INSERT INTO district
SELECT :node::bigint * :warehouses * 10 + d, 0, 0, NULL FROM generate_series(0, :warehouses * 10 - 1) d;
INSERT INTO customer
SELECT :node::bigint * :warehouses * 10 * 300 + c, c % 50, 0, 0, repeat('c', 250)
FROM generate_series(0, :warehouses * 10 * 300 - 1) c;
INSERT INTO stock
SELECT :node::bigint * :warehouses * 10000 + s, 1 + s % 100, 10 + s % 91, 0, 0, repeat('s', 100)
FROM generate_series(0, :warehouses * 10000 - 1) s;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.locked = clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER note BEFORE UPDATE ON district FOR EACH ROW EXECUTE FUNCTION note();
VACUUM ANALYZE warehouse, district, customer, stock;
