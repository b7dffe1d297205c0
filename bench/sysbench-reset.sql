-- sysbench's table as it was loaded, half of each page free as in table hot.
CREATE TABLE IF NOT EXISTS sbtest1_loaded AS TABLE sbtest1;
ALTER TABLE sbtest1 SET (fillfactor = 50);
TRUNCATE sbtest1;
INSERT INTO sbtest1 SELECT * FROM sbtest1_loaded ORDER BY id;
VACUUM ANALYZE sbtest1;
