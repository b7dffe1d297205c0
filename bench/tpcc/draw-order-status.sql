-- Order-Status: the last order of a customer, 60 of 100 found by their last name.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 259) % 3000
\set by_name random(1, 100) <= 60
\set name CASE WHEN :by_name THEN ((random(0, 255) | random(0, 999)) + 188) % 1000 ELSE -1 END
