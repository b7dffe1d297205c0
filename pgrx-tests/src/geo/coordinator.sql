-- What the coordinator has beside the foreign partitions.
CREATE TABLE account (id int NOT NULL, balance bigint NOT NULL DEFAULT 0, owner text,
                      changed timestamptz) PARTITION BY RANGE (id);
CREATE TABLE ledger (number bigint PRIMARY KEY);
