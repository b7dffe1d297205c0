-- What a data node has. :base is where its ids begin.
CREATE TABLE account (
    id int PRIMARY KEY CHECK (id >= :base AND id < :base + 1000),
    balance bigint NOT NULL,
    owner text,
    changed timestamptz
);
INSERT INTO account
SELECT :base + k, 100 + k % 4, 'o' || nullif(k % 3, 0), '2024-05-06 07:08:09+00'
FROM generate_series(0, 9) k;
CREATE TABLE trace (number bigint PRIMARY KEY);
