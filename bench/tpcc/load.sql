-- The first contents of :warehouses warehouses (clause 4.3.3.1). The random numbers have a seed, so
-- they are the same at every load.
CREATE FUNCTION number(low int, high int) RETURNS int LANGUAGE sql VOLATILE
AS 'SELECT low + floor(random() * (high - low + 1))::int';
CREATE FUNCTION letters(low int, high int) RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT substr(md5(random()::text) || md5(random()::text), 1, number(low, high)) $$;
-- Texts that the scripts read and write again have digits only: with the simple protocol pgbench
-- puts them into statements as they are.
CREATE FUNCTION digits(low int, high int) RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT translate(letters(low, high), 'abcdef', '123456') $$;
CREATE FUNCTION zip() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT lpad(number(0, 9999)::text, 4, '0') || '11111' $$;
-- One text of ten says that it is of the original make.
CREATE FUNCTION make() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT letters(13, 21) || CASE WHEN number(1, 10) = 1 THEN 'ORIGINAL' ELSE letters(8, 8) END
             || letters(5, 21) $$;
CREATE FUNCTION last_name(number int) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT part[number / 100 + 1] || part[number / 10 % 10 + 1] || part[number % 10 + 1]
      FROM (SELECT '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[]) AS p (part) $$;

-- An order of rows that is the same at every load, too.
SET max_parallel_workers_per_gather = 0;
SELECT setseed(0.17);
INSERT INTO item
SELECT i, number(1, 10000), letters(14, 24), number(100, 10000) / 100.0, make()
FROM generate_series(1, 100000) i;
INSERT INTO warehouse
SELECT w, digits(6, 10), letters(10, 20), letters(10, 20), letters(10, 20),
       upper(letters(2, 2)), zip(), number(0, 2000) / 10000.0, 300000
FROM generate_series(1, :warehouses) w;
INSERT INTO district
SELECT w, d, digits(6, 10), letters(10, 20), letters(10, 20), letters(10, 20),
       upper(letters(2, 2)), zip(), number(0, 2000) / 10000.0, 30000, 3001
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO customer
SELECT w, d, c, letters(8, 16), 'OE',
       last_name(CASE WHEN c <= 1000 THEN c - 1
                 ELSE ((number(0, 255) | number(0, 999)) + 100) % 1000 END),
       letters(10, 20), letters(10, 20), letters(10, 20), upper(letters(2, 2)), zip(),
       lpad(number(0, 99999999)::text, 16, '0'), now(),
       CASE WHEN number(1, 10) = 1 THEN 'BC' ELSE 'GC' END,
       50000, number(0, 5000) / 10000.0, -10, 10, 1, 0, repeat(letters(25, 25), number(12, 20))
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO history
SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, letters(12, 24) FROM customer;
INSERT INTO stock
SELECT w, i, number(10, 100), digits(24, 24), digits(24, 24), digits(24, 24), digits(24, 24),
       digits(24, 24), digits(24, 24), digits(24, 24), digits(24, 24), digits(24, 24),
       digits(24, 24), 0, 0, 0, make()
FROM generate_series(1, :warehouses) w, generate_series(1, 100000) i;
-- Each customer has one order, in random order; the last 900 of a district are not delivered.
INSERT INTO orders
SELECT w, d, o, c, now(), CASE WHEN o <= 2100 THEN number(1, 10) END, number(5, 15), 1
FROM (SELECT w, d, c, row_number() OVER (PARTITION BY w, d ORDER BY random()) AS o
      FROM generate_series(1, :warehouses) w, generate_series(1, 10) d,
           generate_series(1, 3000) c) AS drawn;
INSERT INTO new_order SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_id > 2100;
INSERT INTO order_line
SELECT o_w_id, o_d_id, o_id, line, number(1, 100000), o_w_id,
       CASE WHEN o_id <= 2100 THEN o_entry_d END, 5,
       CASE WHEN o_id <= 2100 THEN 0 ELSE number(1, 999999) / 100.0 END, digits(24, 24)
FROM orders, generate_series(1, o_ol_cnt) line;

ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE UNIQUE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
DROP FUNCTION make, zip, digits, letters, number, last_name;
VACUUM (FREEZE, ANALYZE);
