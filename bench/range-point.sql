-- A point transaction: 3 reads, 2 updates. The smaller key is updated first: two such transactions are never a deadlock.
\set read_1 random(:first, :last)
\set read_2 random(:first, :last)
\set read_3 random(:first, :last)
\set key_1 random(:first, :last)
\set key_2 random(:first, :last)
\set smaller least(:key_1, :key_2)
\set larger greatest(:key_1, :key_2)
BEGIN;
SELECT * FROM ycsb WHERE id = :read_1;
SELECT * FROM ycsb WHERE id = :read_2;
SELECT * FROM ycsb WHERE id = :read_3;
UPDATE ycsb SET val = val + 1 WHERE id = :smaller;
UPDATE ycsb SET val = val + 1 WHERE id = :larger;
COMMIT;
