-- Delivery: of each district of the warehouse the oldest order that is new.
\set w 1 + :client_id % :warehouses
\set carrier random(1, 10)
