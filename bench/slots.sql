-- What people do instead: 64 rows for one counter, each update takes one that is free. When all
-- are taken it updates nothing, which is why the slots' sum is what counts.
UPDATE slot SET val = val + 1
WHERE hot_id = 1
  AND slot = (SELECT slot FROM slot WHERE hot_id = 1 LIMIT 1 FOR UPDATE SKIP LOCKED);
