-- Stock-Level: how many items of a district's last 20 orders are low in stock.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set threshold random(10, 20)
