-- TPC-C without the columns that none of our transactions looks at, :warehouses warehouses with :items items each. There are no
-- orders yet. Tables of a page or two would be read in full, and so be in the way of everybody at any serializable level.
ALTER DATABASE postgres SET enable_seqscan = off;
CREATE TABLE warehouse (
    w_id  int PRIMARY KEY,
    w_tax numeric(4, 4) NOT NULL DEFAULT 0.1,
    w_ytd bigint NOT NULL DEFAULT 0
) USING :access_method WITH (fillfactor = 50);
CREATE TABLE district (
    d_w_id      int,
    d_id        int,
    d_tax       numeric(4, 4) NOT NULL DEFAULT 0.1,
    d_ytd       bigint NOT NULL DEFAULT 0,
    d_next_o_id int NOT NULL DEFAULT 1,
    PRIMARY KEY (d_w_id, d_id)
) USING :access_method WITH (fillfactor = 50);
CREATE TABLE customer (
    c_w_id        int,
    c_d_id        int,
    c_id          int,
    c_discount    numeric(4, 4) NOT NULL DEFAULT 0.1,
    c_balance     bigint NOT NULL DEFAULT 0,
    c_ytd_payment bigint NOT NULL DEFAULT 0,
    c_payment_cnt int NOT NULL DEFAULT 0,
    c_rewards     int NOT NULL DEFAULT 0,
    c_data        text NOT NULL,
    PRIMARY KEY (c_w_id, c_d_id, c_id)
) USING :access_method WITH (fillfactor = 90);
CREATE TABLE history (
    h_w_id   int NOT NULL,
    h_d_id   int NOT NULL,
    h_c_w_id int NOT NULL,
    h_c_d_id int NOT NULL,
    h_c_id   int NOT NULL,
    h_amount bigint NOT NULL
) USING :access_method;
CREATE TABLE orders (
    o_w_id   int,
    o_d_id   int,
    o_id     int,
    o_c_id   int NOT NULL,
    o_ol_cnt int NOT NULL,
    PRIMARY KEY (o_w_id, o_d_id, o_id)
) USING :access_method;
CREATE TABLE new_order (
    no_w_id int,
    no_d_id int,
    no_o_id int,
    PRIMARY KEY (no_w_id, no_d_id, no_o_id)
) USING :access_method;
CREATE TABLE order_line (
    ol_w_id     int,
    ol_d_id     int,
    ol_o_id     int,
    ol_number   int,
    ol_i_id     int NOT NULL,
    ol_quantity int NOT NULL,
    ol_amount   bigint NOT NULL,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
) USING :access_method;
CREATE TABLE item (
    i_id    int PRIMARY KEY,
    i_price int NOT NULL
) USING :access_method;
CREATE TABLE stock (
    s_w_id      int,
    s_i_id      int,
    s_quantity  int NOT NULL DEFAULT 50,
    s_ytd       bigint NOT NULL DEFAULT 0,
    s_order_cnt int NOT NULL DEFAULT 0,
    s_data      text NOT NULL,
    PRIMARY KEY (s_w_id, s_i_id)
) USING :access_method WITH (fillfactor = 90);

INSERT INTO warehouse SELECT generate_series(1, :warehouses);
INSERT INTO district SELECT w, d FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO customer (c_w_id, c_d_id, c_id, c_data)
SELECT w, d, c, repeat('x', 200)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO item SELECT i, 100 + i % 9900 FROM generate_series(1, :items) i;
INSERT INTO stock (s_w_id, s_i_id, s_data)
SELECT w, i, repeat('x', 100) FROM generate_series(1, :warehouses) w, generate_series(1, :items) i;
VACUUM ANALYZE;
CHECKPOINT;
