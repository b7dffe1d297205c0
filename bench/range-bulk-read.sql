-- The bulk transaction of range-bulk.sql without its updates.
\set start random(:first, :last)
\set low least(:start, :last - :scan + 1)
\set high :low + :scan - 1
\set read_1 random(:first, :last)
BEGIN;
SELECT sum(val), 1 / (count(*) = :scan)::int FROM ycsb WHERE id BETWEEN :low AND :high;
SELECT * FROM ycsb WHERE id = :read_1;
COMMIT;
