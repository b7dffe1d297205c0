-- Payment: 15 of 100 customers are those of another warehouse, 60 of 100 are found by their last
-- name.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set is_remote :warehouses > 1 AND random(1, 100) <= 15
\set c_w CASE WHEN :is_remote THEN 1 + (:w + random(0, :warehouses - 2)) % :warehouses ELSE :w END
\set c_d CASE WHEN :is_remote THEN random(1, 10) ELSE :d END
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 259) % 3000
\set by_name random(1, 100) <= 60
\set name CASE WHEN :by_name THEN ((random(0, 255) | random(0, 999)) + 188) % 1000 ELSE -1 END
\set cents random(100, 500000)
