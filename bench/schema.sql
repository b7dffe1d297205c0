-- The tables of every workload. Half of each page is left free, as one does for tables that live
-- on updates; neighbours 100 apart are on pages of their own.
CREATE TABLE hot (
    id  int PRIMARY KEY,
    val bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO hot SELECT id FROM generate_series(1, 120000) id;

CREATE TABLE ledger (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hot_id int NOT NULL,
    amount bigint NOT NULL
);

CREATE TABLE account (
    id      int PRIMARY KEY,
    balance bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO account SELECT id FROM generate_series(1, 120000) id;

CREATE TABLE posting (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id int NOT NULL REFERENCES account,
    amount     bigint NOT NULL
);

CREATE TABLE slot (
    hot_id int,
    slot   int,
    val    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (hot_id, slot)
) WITH (fillfactor = 50);
INSERT INTO slot SELECT 1, slot FROM generate_series(1, 64) slot;
VACUUM ANALYZE;
