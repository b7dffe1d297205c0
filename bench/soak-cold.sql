-- One of many rows, none of them hot.
\set row random(20001, 120000)
UPDATE hot SET val = val + 1 WHERE id = :row;
