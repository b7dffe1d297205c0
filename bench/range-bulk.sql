-- A bulk transaction: a scan of :scan keys, 1 read, 2 updates. A scan that misses a row divides by zero, which ends the run.
\set start random(:first, :last)
\set low least(:start, :last - :scan + 1)
\set high :low + :scan - 1
\set read_1 random(:first, :last)
\set key_1 random(:first, :last)
\set key_2 random(:first, :last)
\set smaller least(:key_1, :key_2)
\set larger greatest(:key_1, :key_2)
BEGIN;
SELECT sum(val), 1 / (count(*) = :scan)::int FROM ycsb WHERE id BETWEEN :low AND :high;
SELECT * FROM ycsb WHERE id = :read_1;
UPDATE ycsb SET val = val + 1 WHERE id = :smaller;
UPDATE ycsb SET val = val + 1 WHERE id = :larger;
COMMIT;
