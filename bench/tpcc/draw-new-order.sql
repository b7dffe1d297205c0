-- New-Order: an order of 5 to 15 lines for a customer of the client's own warehouse.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 259) % 3000
\set lines random(5, 15)
